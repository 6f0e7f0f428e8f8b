"""Watches one tool of a project while it is called, on the project's one call path."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.errors import ManifestError, TimedOut, ToolFailed, UsageError
from toolcrib.executors.trace.block import Block, Line, whole
from toolcrib.executors.trace.observation import Observation
from toolcrib.manifest import Document, kind_of, load, parse_tool
from toolcrib.project.project import Project
from toolcrib.spec import Network, Result, Tool
from toolcrib.spec.record import record

_FLAGS = {"fs.read": "read", "fs.write": "write", "network": "host", "env": "env"}


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
    """One tool under observation. Call it by `Project.invoke`, then read the `block`."""

    tool: Tool
    """The tool with the permissions of this run."""
    seen: Observation = field(default_factory=Observation)

    @classmethod
    def begin(cls, project: Project, name: str, allowed: Allowed) -> Trace:
        """Watch a tool from now on. The manifest stays as it is.

        Raises:
            UsageError: tools of its kind run where nothing is watched.
            ToolcribError: there is no such tool, or its manifest is wrong.
        """
        tool = project.get(name)
        if (untraceable := kind_of(tool).untraceable) is not None:
            why, hint = untraceable
            raise UsageError(f"{name} {why}", hint=hint)
        trace = cls(allowed.to(tool))
        project.catalog.observe(trace.tool, trace.seen)
        return trace

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
        return block.text(self._secrets()) + block.comments(self._root)

    def applied(self, document: Document) -> str:
        """Return the text of the tool's manifest with the block by folders in place of its own.

        Raises UsageError for a manifest that is not written line by line.
        """
        text = document.text
        new = self.block.in_folders(self._root).text(self._secrets())
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
        found = self.block.in_folders(self._root).permissions()
        paths = {"read": [], "write": [], **found.get("fs", {})}
        wanted = {"network": found["network"], "fs": paths, "secrets": [*found.get("secrets", ())]}
        wanted |= {"env": found["env"]} if "env" in found else {}
        if same is None or same.as_json() != wanted:
            text = f"the permissions of {document.path} cannot be replaced"
            raise UsageError(text, hint="Write the block there by hand.")
        return changed

    @property
    def _root(self) -> str:
        return "" if self.seen.reach is None else self.seen.reach.root

    def _secrets(self) -> dict[str, dict[str, Any]]:
        return {
            one.name: {"type": one.type, "required": one.required} for one in self.tool.permissions.secrets
        }

    def flag(self, line: Line) -> str:
        """Return the option that allows what was refused, for another run."""
        value = "HOST" if line.value.endswith("[HOST]") else whole(line.value)
        return f"--allow-{_FLAGS[line.permission]} {shlex.quote(value)}  ({line.why})"
