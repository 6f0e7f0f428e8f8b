"""The reasons why a tool needs trust: what it may change or reach, in words.

While `toolcrib serve --dev` runs, changes of a trusted tool that widen nothing need no person.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from toolcrib.errors import ManifestError, ToolcribError
from toolcrib.guard import Ledger, Trusted, excess, opened
from toolcrib.manifest import load, parse_tool
from toolcrib.manifest.kinds import is_function, is_served, kind_of
from toolcrib.manifest.touches import effects
from toolcrib.project.integrity.fingerprints import FileUse
from toolcrib.spec import Limits, Permissions, Tool

DEFAULTS = {"memory_bytes": 4 << 30, "processes": 1_024, "open_files": 512}
"""The limits of a confined tool that states none."""
ATTEMPTS = 2
"""The default of `retry.max_attempts`: to have a tool run more often is a change to show."""


def subject_of(tool: Tool) -> str:
    """Return the subject of a tool, agent or workflow in the ledger, such as `tool:NAME`."""
    return tool.name if isinstance(tool.config, FileUse) else f"tool:{tool.name}"


def only_reads(tool: Tool, root: Path) -> list[str] | None:
    """Return the paths that a tool may read, if that is all that it may do itself; None for any other."""
    acts = any(effects(tool)) or any(opened(tool, root)) or any(_limits(tool)) or any(_called(tool))
    return None if acts else list(tool.permissions.read)


def _called(tool: Tool) -> list[str]:
    """Return the names of the tools that it calls, each once."""
    return list(dict.fromkeys(name for _, name in kind_of(tool).calls(tool.config)))


def _limits(tool: Tool) -> Iterator[str]:
    """Yield what a tool may use beyond the limits of others, in words."""
    if tool.retry is not None and tool.retry.max_attempts > ATTEMPTS:
        yield f"run {tool.retry.max_attempts} times (retry.max_attempts)"
    for name, most in DEFAULTS.items():
        if (getattr(tool.limits, name) or 0) > most:
            yield f"use more than other tools (limits.{name})"


class Reasons:
    """The reasons why the tools of one project need trust. `find` returns the tool of a name."""

    def __init__(self, root: Path, ledger: Ledger, find: Callable[[str], Tool]) -> None:
        self._root, self._ledger, self._find = str(root), ledger, find
        self._known: dict[str, tuple[Tool, tuple[str, ...]]] = {}

    def of(self, tool: Tool) -> tuple[str, ...]:
        """Return what a tool may change or reach, or no longer asks, in words.

        A tool that only reads inside the project needs no trust: it has none.
        """
        known = self._known.get(tool.name)
        # By identity: a tool that was loaded again may have other permissions.
        if known is None or known[0] is not tool:
            self._known[tool.name] = (tool, ())  # Ends the way through tools that call each other.
            self._known[tool.name] = known = (tool, tuple(self._reasons(tool)))
        return known[1]

    def _reasons(self, tool: Tool) -> Iterator[str]:
        if isinstance(tool.config, FileUse):
            yield from tool.config.reasons()
            yield from self._calls(tool.config.tools)
            return
        yield from effects(tool)
        yield from self._calls(_called(tool))
        paths = [("read", path) for path in tool.permissions.read]
        paths += [("run", path) for _, path in opened(tool, Path(self._root))]
        yield from (f"{access} {path}" for access, path in paths if not self._inside(path))
        yield from self.links(tool)
        yield from _limits(tool)
        # To drop the approval of each call weakens a tool as much as a new permission.
        subject = subject_of(tool), tool.bundle
        asks = tool.approval.required or subject not in self._ledger.known()
        last = None if asks else self._ledger.last(*subject)
        if last is not None and "approval" in last.shown.get("parts", ()):
            yield "run without the approval of each call that it needed before"

    def _calls(self, names: Iterable[str]) -> Iterator[str]:
        """Yield why tools may not be called by what chooses their arguments unseen."""
        for name in names:
            try:
                tool = self._find(name)
            except ToolcribError:  # It may be one of another program, or be there later.
                tool = None
            if tool is None or is_served(tool) or (is_function(tool) and not tool.annotations.read_only):
                yield f"call {name}, which may do anything"
            elif found := self.of(tool):
                yield f"call {name}: {', '.join(found)}"

    def of_paths(self, read: tuple[str, ...]) -> list[str]:
        """Return why these paths to read need trust: they lie outside of the project, or are links."""
        return [*(f"read {path}" for path in read if not self._inside(path)), *self._links(read)]

    def links(self, tool: Tool) -> list[str]:
        """Return the grants that pass through a symbolic link, in words. Trust pins where each leads."""
        return self._links((*tool.permissions.read, *tool.permissions.write))

    def _links(self, paths: tuple[str, ...]) -> list[str]:
        root = self._root
        found = []
        for path in dict.fromkeys(paths):
            written = os.path.normpath(os.path.join(root, path))
            real = os.path.realpath(written)
            if real != written:
                shown_real = os.path.relpath(real, root) if self._inside(path) else real
                found.append(f"{path} is a link to {shown_real}")
        return found

    def _inside(self, path: str) -> bool:
        try:
            return Path(os.path.realpath(os.path.join(self._root, path))).is_relative_to(self._root)
        except (OSError, ValueError):
            return False  # A path that cannot be resolved counts as outside, so a person looks at it.


def widens_nothing(tool: Tool, last: Trusted, manifest: bytes, root: Path) -> bool:
    """Return True if a tool is confined to the project and may do no more than its version trusted `last`.

    `manifest` is the one of that version. False for every tool that has network, a secret or an environment
    variable, or that runs values of a call as code.
    """
    assert tool.source is not None
    kind = kind_of(tool)
    if tool.source.dialect != "native" or any(kind.touches(tool)) or any(kind.calls(tool.config)):
        return False
    try:
        before = parse_tool(load(manifest, tool.source.path))
    except ManifestError:
        return False
    if before.approval.required and not tool.approval.required:
        return False
    # Its own code is no grant, but must be in the project too.
    code = (os.path.realpath(root / path) for _, path in opened(tool, root))
    granted = last.shown["parts"]
    ceiling = Permissions(
        read=_inside((*_granted(granted, "read", root), *code), root),
        write=_inside(_granted(granted, "write", root), root),
    )
    return (
        not excess(tool, ceiling, root) and _attempts(tool) <= _attempts(before) and _is_limited(tool, before)
    )


def _granted(parts: Mapping[str, str], access: str, root: Path) -> Iterator[str]:
    """Yield the real paths of the grants when a person saw them, without those that are now links."""
    for name, path in parts.items():
        real = str(root / path)
        if name.startswith(f"grants/{access}/") and os.path.realpath(real) == real:
            yield real


def _inside(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(path for path in paths if Path(path).is_relative_to(root))


def _attempts(tool: Tool) -> int:
    return ATTEMPTS if tool.retry is None else max(ATTEMPTS, tool.retry.max_attempts)


def _is_limited(tool: Tool, before: Tool) -> bool:
    """Return True if no limit of a tool is above the one that it had before."""
    for one in fields(Limits):
        unset = 0 if one.name == "min_interval_ms" else DEFAULTS.get(one.name, math.inf)
        now, then = (getattr(limits, one.name) for limits in (tool.limits, before.limits))
        now, then = (unset if limit is None else limit for limit in (now, then))
        if now < then if one.name == "min_interval_ms" else now > then:
            return False
    return True
