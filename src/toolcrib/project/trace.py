"""Watches one tool of a project while it is called, on the project's one call path."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.errors import ManifestError, TimedOut, ToolFailed, UsageError
from toolcrib.executors.trace.block import Block, Line, whole
from toolcrib.executors.trace.observation import Observation
from toolcrib.manifest import Document, kind_of, load, parse_tool
from toolcrib.project.project import Project
from toolcrib.spec import Call, Network, Result, Tool
from toolcrib.spec.record import record

_FLAGS = {"fs.read": "read", "fs.write": "write", "network": "host", "network.allow": "host", "env": "env"}
Path = Callable[[Call], Awaitable[Result]]


@record
class Allowed:
    """Permissions for one run on top of the manifest: paths from the project root, hosts, variables."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def to(self, tool: Tool) -> Tool:
        """Return the tool with these permissions besides its own."""
        own = tool.permissions
        network = own.network
        if self.hosts:
            if network.mode in ("any", "host") and kind_of(tool).confined:
                raise UsageError(
                    f"{tool.name} may reach every host already; --allow-host would only limit it"
                )
            network = Network("hosts", (*network.allow, *(host.lower() for host in self.hosts)))
        permissions = replace(
            own,
            network=network,
            read=tuple(dict.fromkeys((*own.read, *self.read))),
            write=tuple(dict.fromkeys((*own.write, *self.write))),
            env=tuple(dict.fromkeys((*own.env, *self.env))),
        )
        return replace(tool, permissions=permissions)


@dataclass(slots=True)
class Trace:
    """One tool under observation: the `block` is of what calls of its `path` or of the project have used."""

    tool: Tool
    """The tool with the permissions of this run."""
    seen: Observation = field(default_factory=Observation)

    @classmethod
    def of(cls, tool: Tool, allowed: Allowed | None = None) -> Trace:
        """Return a tool to watch. Raises UsageError if tools of its kind run where nothing is watched."""
        if (untraceable := kind_of(tool).untraceable) is not None:
            why, hint = untraceable
            raise UsageError(f"{tool.name} {why}", hint=hint)
        return cls(tool if allowed is None else allowed.to(tool))

    @classmethod
    def begin(cls, project: Project, name: str, allowed: Allowed) -> Trace:
        """Watch all calls of a tool of this project from now on. The manifest stays as it is.

        Raises:
            UsageError: tools of its kind run where nothing is watched.
            ToolcribError: there is no such tool, or its manifest is wrong.
        """
        trace = cls.of(project.get(name), allowed)
        project.catalog.observe(trace.tool, trace.seen)
        return trace

    def path(self, project: Project) -> Path:
        """Return the project's path for one watched call; all others are as before.

        If the tool ran, the details of the result have under `watched` the block, by folders.
        """
        invoke = project.catalog.path_of_draft(self.tool, self.seen).invoke

        async def call_watched(call: Call) -> Result:
            result = await invoke(call)
            if not self.ran(result):
                return result
            found = watched(self.block.in_folders(self._root), self.seen)
            return replace(result, details={**(result.details or {}), "watched": found})

        return call_watched

    @property
    def block(self) -> Block:
        """The smallest permissions for what has been seen."""
        return Block.of(self.tool, self.seen)

    def ran(self, result: Result) -> bool:
        """Return True if the tool itself ran, so that its use could be recorded."""
        error = result.error
        if error is None or isinstance(error, (ToolFailed, TimedOut)) or "enforcement" in error.details:
            return True
        return not kind_of(self.tool).confined and bool(self.seen.hosts or self.seen.reach)

    def text(self) -> str:
        """Return the block as YAML, each line with its reason, and below it what it leaves out."""
        block = self.block
        return block.text(_secrets(self.tool)) + block.comments(self._root)

    def as_dict(self) -> dict[str, Any]:
        """Return the block and what was observed, as JSON."""
        return watched(self.block, self.seen)

    def applied(self, document: Document) -> str:
        """Return the text of the tool's manifest with the block by folders in place of its own.

        Raises UsageError for a manifest that is not written line by line.
        """
        return applied(self.block.in_folders(self._root), document, self.tool)

    @property
    def _root(self) -> str:
        return "" if self.seen.reach is None else self.seen.reach.root

    def flag(self, line: Line) -> str:
        """Return the option that allows what was refused, for another run."""
        value = "HOST" if line.value.endswith("[HOST]") else whole(line.value)
        return f"--allow-{_FLAGS[line.permission]} {shlex.quote(value)}  ({line.why})"


def watched(block: Block, seen: Observation) -> dict[str, Any]:
    """Return a block and what was observed, as JSON."""
    return {**block.as_dict(), "observed": seen.as_dict(), "calls": seen.calls}


def applied(block: Block, document: Document, tool: Tool) -> str:
    """Return the text of a tool's manifest with this block in place of its own permissions.

    Raises UsageError for a manifest that is not written line by line.
    """
    text = document.text
    new = block.text(_secrets(tool))
    lines = text.splitlines(keepends=True)
    starts = sorted(document.locate((key,), key=True)[0] for key in document.data)
    if "permissions" in document.data:
        first = document.locate(("permissions",), key=True)[0]
        last = next((line for line in starts if line > first), len(lines) + 1)
        while last - 1 > first and lines[last - 2].lstrip()[:1] in ("", "#", "\n"):
            last -= 1  # what is above the next key belongs to it
    else:
        first = last = len(lines) + 1
        new = new if text.endswith("\n") else f"\n{new}"
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    changed = "".join((*lines[: first - 1], new, *lines[last - 1 :]))
    try:
        same = parse_tool(load(changed.encode(), document.path)).permissions
    except ManifestError:
        same = None
    found = block.permissions()
    paths = {"read": [], "write": [], **found.get("fs", {})}
    wanted = {"network": found["network"], "fs": paths, "secrets": [*found.get("secrets", ())]}
    wanted |= {"env": found["env"]} if "env" in found else {}
    if same is None or same.as_json() != wanted:
        text = f"the permissions of {document.path} cannot be replaced"
        raise UsageError(text, hint="Write the block there by hand.")
    return changed


def _secrets(tool: Tool) -> dict[str, dict[str, Any]]:
    return {one.name: {"type": one.type, "required": one.required} for one in tool.permissions.secrets}
