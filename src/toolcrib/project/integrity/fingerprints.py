"""The digests of tools as they are now: what approvals, trust and the lock refer to.

Agents and workflows are trusted and pinned as tools, by the digest of their file. Their calls are checked
like any other. But the file decides which trusted tools are called, with which instructions, and to which
model their results are sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from toolcrib.guard import Digests, ToolDigest
from toolcrib.manifest import Document
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import ExecConfig, Source, Tool
from toolcrib.spec.record import record


@record
class FileUse(ExecConfig):
    """Everything that a run of an agent or a workflow may use."""

    tools: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Agents and workflows that it may run."""
    provider: str = "scripted"
    """The provider of the model that its conversation is sent to."""

    def reasons(self) -> Iterator[str]:
        """Yield why it needs trust, but for the tools that it calls."""
        if self.provider != "scripted":
            yield f"network: the models of {self.provider}"
        yield from (f"run {name}" for name in self.others)


def as_trusted(kind: str, name: str, description: str, document: Document, use: FileUse) -> Tool:
    """Return the file as a tool named `agent:NAME` or `workflow:NAME`. It is never called."""
    digest = hashlib.sha256(document.raw).hexdigest()
    source = Source("native", document.path, document.raw, digest, shared=True)
    return Tool(f"{kind}:{name}", description, kind, {}, use, bundle="", source=source)


class Fingerprints:
    """The digests of the tools of one project. `parts` returns the tools that a composite tool calls."""

    def __init__(self, root: Path, parts: Callable[[Tool], Sequence[Tool]]) -> None:
        self._digests = Digests(root, lambda: self.written())  # noqa: PLW0108 - set below
        self.parts = parts
        self.written: Callable[[], Iterable[str]] = tuple
        """Returns the paths that tools of the project may write, as the manifests say them."""

    def of(self, tool: Tool, paths: Paths | None = None) -> ToolDigest:
        """Return the digest of a tool by parts: manifest, files beside it, programs, steps.

        `paths` keeps the looks at paths, for the digests of many tools at once.
        """
        return self._of(lambda one: self._digests.of(one, paths), tool)

    def of_many(self) -> Callable[[Tool], ToolDigest]:
        """Return `of` for many tools, as `Digests.of_many`."""
        return partial(self._of, self._digests.of_many())

    def _of(self, digest_of: Callable[[Tool], ToolDigest], tool: Tool) -> ToolDigest:
        if isinstance(tool.config, FileUse):
            assert tool.source is not None
            return ToolDigest(tool.source.sha256, {"manifest": tool.source.sha256})
        own = digest_of(tool)
        steps = {f"step/{part.name}": digest_of(part).digest for part in self.parts(tool)}
        if not steps:
            return own
        whole = " ".join((own.digest, *steps.values()))
        return ToolDigest(hashlib.sha256(whole.encode()).hexdigest(), {**own.parts, **steps})
