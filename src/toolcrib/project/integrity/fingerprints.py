"""The digests of tools as they are now: what approvals, reviews and the lock refer to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from toolcrib.guard import Digests, ToolDigest
from toolcrib.project.integrity.agent_files import FileUse, file_digest
from toolcrib.spec import Tool


class Fingerprints:
    """The digests of the tools of one project. `parts` returns the tools that a composite tool calls."""

    def __init__(self, root: Path, parts: Callable[[Tool], Sequence[Tool]]) -> None:
        self._digests = Digests(root)
        self._parts = parts

    def of(self, tool: Tool) -> ToolDigest:
        """Return the digest of a tool by parts: manifest, files beside it, programs, steps."""
        if isinstance(tool.config, FileUse):
            return file_digest(tool)
        own = self._digests.of(tool)
        steps = {f"step/{part.name}": self._digests.of(part).digest for part in self._parts(tool)}
        if not steps:
            return own
        whole = " ".join((own.digest, *steps.values()))
        return ToolDigest(hashlib.sha256(whole.encode()).hexdigest(), {**own.parts, **steps})
