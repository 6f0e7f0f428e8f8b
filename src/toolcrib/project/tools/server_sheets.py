"""MCP servers and their tools as they are shown to the person who trusts them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from toolcrib.executors.mcp.process.local import OWN_PROGRAM
from toolcrib.guard import ToolDigest, Trusted
from toolcrib.guard.trust.definitions import differences
from toolcrib.manifest.touches import may_touch
from toolcrib.project.tools.mounted import Mounted
from toolcrib.project.trust.sheets import SHOWN, Status, TrustSheet, cut, folded
from toolcrib.spec import Network, Tool
from toolcrib.spec.naming import printable
from toolcrib.spec.record import camel, record


@record
class ServerSheet:
    """One MCP server as it is shown to the person who trusts it."""

    name: str
    where: str
    """Its command line or address."""
    known: bool
    """True if it has listed its tools, or a lock that was accepted has their digests."""
    new: tuple[str, ...]
    """Tools, by their names here, of which no version was trusted."""
    changed: Mapping[str, list[str]]
    """Tool name here to what has changed since it was trusted."""
    suspicious: Mapping[str, str]
    """Tool name here to the reason why nobody may trust its words unseen, for those that wait."""
    definitions: Mapping[str, Mapping[str, Any]]
    """Tool name here to the definition that the server sent last, for those that wait."""
    may: list[str]
    """The permissions of its process, in words; what reaches out, writes or takes secrets comes first."""
    takes_addresses: bool
    """True if its tools take addresses, and nobody has decided which hosts it may reach."""

    @property
    def names(self) -> list[str]:
        """The tools that wait."""
        return [*self.new, *self.changed]

    def lines(self) -> Iterator[str]:
        """Yield what waits: the new tools in one line, and a line for each change."""
        if self.new:
            tools = "1 new tool" if len(self.new) == 1 else f"{len(self.new)} new tools"
            yield cut(f"server {self.name}: {tools}: {folded(self.new)}")
            yield cut(f"  may {self._briefly}")
        for number, (name, changes) in enumerate(self.changed.items()):
            if number < SHOWN:
                yield cut(f"server {self.name}: {name} has changed: {'; '.join(changes)}")
        if len(self.changed) > SHOWN:
            yield cut(f"server {self.name}: {len(self.changed) - SHOWN} more tools have changed")
        yield from self.findings()
        if self.takes_addresses and self.new:
            yield self.hosts_hint()

    def findings(self) -> Iterator[str]:
        """Yield a line for each tool whose words nobody may trust unseen."""
        yield from (cut(f"  {name} {why}") for name, why in self.suspicious.items())

    def hosts_hint(self) -> str:
        """Return how to let a server whose tools take addresses reach hosts."""
        return f"  takes addresses, may reach no host; to allow some: toolcrib trust {self.name} --allow HOST"

    def starts(self) -> Iterator[str]:
        """Yield what an answer means before the server has run."""
        yield cut(f"your answer starts server {self.name} ({self.where}) and trusts the tools that it lists")
        yield cut(f"  it may {self._briefly}")

    @property
    def _briefly(self) -> str:
        """The permissions of its process, without the files of its own program."""
        return folded(line for line in self.may if not line.endswith(OWN_PROGRAM))

    def whole(self, names: Collection[str] | None = None) -> Iterator[str]:
        """Yield all about it, with each definition that waits, or those of these tools."""
        yield printable(f"server {self.name}: {self.where}")
        yield from (printable(f"  may {line}") for line in self.may)
        if not self.known:
            yield "  it has not listed its tools yet"
        for name, definition in self.definitions.items():
            if names is not None and name not in names:
                continue
            yield printable(f"  {name}: {'changed since it was trusted' if name in self.changed else 'new'}")
            if name in self.suspicious:
                yield printable(f"    {self.suspicious[name]}")
            yield from (f"    {line}" for line in lines_of(definition, self.changed.get(name)))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return camel(asdict(self))


def server_sheet(mounted: Mounted) -> ServerSheet:
    """Return a server as it is shown."""
    findings = {name: mounted.suspicious(name) for name in mounted.waiting}
    return ServerSheet(
        mounted.spec.name,
        mounted.spec.where,
        mounted.known or bool(mounted.trust.pins()),
        tuple(name for name in mounted.waiting if name in mounted.new),
        {name: _changes(mounted, name) for name in mounted.waiting if name not in mounted.new},
        {name: why for name, why in findings.items() if why is not None},
        {name: mounted.definition(name) for name in mounted.waiting},
        _may(mounted),
        mounted.waits_for_hosts,
    )


def _may(mounted: Mounted) -> list[str]:
    """Return what a server may use: what reaches out, writes or takes secrets comes first."""
    spec, grants = mounted.spec, mounted.grants()
    if not spec.is_local:
        secrets = [f"get the secret {one.name}" for one in spec.permissions.secrets]
        return [f"be called at {spec.where}", *secrets]
    if mounted.is_unconfined:
        return grants
    others = [line for line in grants if not line.startswith("network")]
    others.sort(key=lambda line: line.startswith("read "))
    return [reach_of(spec.permissions.network), *others]


def reach_of(network: Network) -> str:
    """Return a permission in words."""
    words = {"none": "no host", "any": "every public host", "host": "this machine's network"}
    return f"reach {words.get(network.mode) or ', '.join(network.allow)}"


def tool_sheet(mounted: Mounted, tool: Tool, digest: str) -> TrustSheet:
    """Return one tool of a server as it is shown; `digest` is the one that approvals are for."""
    server, name = mounted.spec.name, tool.name
    waits = name in mounted.waiting
    status: Status = "trusted" if not waits else "new" if name in mounted.new else "changed"
    changes = _changes(mounted, name) if status == "changed" else []
    reasons = [f"run on the MCP server {server}", *(f"its {line}" for line in changes)]
    if waits and (why := mounted.suspicious(name)) is not None:
        reasons.append(f"its text {why}")
    last = None if status == "new" else mounted.trust.last()
    if last is not None:  # The parts of a tool, of which the definition is the one that can change.
        shown_then = {"parts": {"definition": ""}}
        last = Trusted(last.subject, last.digest, shown=shown_then, by=last.by, at=last.at)
    parts = ToolDigest(digest, {"definition": digest})
    definition = mounted.definition(name)

    def shown() -> list[str]:
        return list(lines_of(definition, changes))

    return TrustSheet(
        mounted.offered(name), f"server:{server}", parts, status, last, may_touch(tool), tuple(reasons),
        None, waits, shown,
    )  # fmt: skip


def lines_of(definition: Mapping[str, Any], changes: list[str] | None) -> Iterator[str]:
    """Yield a definition, or what has changed in it, without control or invisible characters."""
    if changes:
        yield from map(printable, changes)
        return
    # ASCII only, so that invisible characters show.
    yield json.dumps(definition.get("description") or definition.get("title") or "(no description)")
    yield f"input: {json.dumps(definition['inputSchema'])}"


def _changes(mounted: Mounted, name: str) -> list[str]:
    return differences(mounted.trusted_definition(name) or {}, mounted.definition(name))
