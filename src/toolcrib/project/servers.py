"""The MCP servers of a project: their tools among the project's own, each reviewed before it runs unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import NotFoundError, NotTrusted, ToolcribError, ToolUnavailable, UsageError
from toolcrib.executors.mcp import (
    Definition,
    HttpLink,
    Link,
    Login,
    McpExecutor,
    Server,
    StdioLink,
    Tokens,
    digest,
    files_of,
    job_of,
    names_of,
    tool_of,
)
from toolcrib.guard import Pins, differences, resolve
from toolcrib.manifest.dialects.mcp_servers import ServerSpec
from toolcrib.manifest.lint.wording import hidden_characters, instructions, texts
from toolcrib.project.config.mcp import FILE, NamedServers
from toolcrib.spec import Approval, Executor, SecretSource, Tool
from toolcrib.spec.naming import nearest
from toolcrib.state import Vault

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors import Workspace

__all__ = ["Mounted", "Servers"]

_ALL_OF_IT = "the permission `network: host` of its server covers all of this machine's network"
_HINT = "Run `toolcrib trust` to see what the project would start, and to let it."


class Mounted:
    """One server, and its tools in the project's toolset."""

    def __init__(self, spec: ServerSpec, servers: Servers) -> None:
        self.spec = spec
        self._servers = servers
        self.pins = Pins(servers.vault, spec.name, spec.identity)
        self.live: dict[str, Definition] = {}
        """The definitions that it gives, or gave last."""
        self.known = False
        """Whether it ever told its tools, in this process or one before."""
        self.left: list[str] = []
        """Tools that cannot be used, and why."""
        self.pending: dict[str, str] = {}
        """By name of ours: why a person has to review the tool."""
        self.tools: dict[str, str] = {}
        """Names of ours by the server's own."""
        self._standing: dict[str, Tool] = {}
        self.server = Server(
            spec,
            servers.link_of(spec),
            told=self._told,
            noted=servers.note,
            speed=servers.speed,
            version=servers.version,
        )

    def recall(self) -> None:
        """List what it offered when it was last there."""
        seen = self.pins.seen()
        if seen:
            self.known = True
            self._mount(seen)

    def _told(self, definitions: list[Definition], left: list[str]) -> None:
        found = {str(one["name"]): one for one in definitions}
        self.known, self.left = True, left
        self.pins.see(found)
        if self._servers.unreviewed and not self.pins.reviewed():
            self.pins.accept(found)
        self._mount(found)

    def review(self) -> None:
        """A person has looked at what it offers now."""
        self.pins.accept(self.live)
        self._mount(self.live)

    def _mount(self, found: dict[str, Definition]) -> None:
        """Have these tools, and no others of this server's, in the toolset."""
        toolset, reviewed = self._servers.toolset, self.pins.reviewed()
        self.live, self.pending = found, {}
        names = names_of(self.spec.name, found)
        for name in set(self.tools.values()) - set(names.values()):
            if self._standing.pop(name, None) is not None:
                toolset.remove(name)
        self.tools = names
        for own, name in names.items():
            tool = self._described(name, found[own], reviewed.get(own))
            if self._standing.get(name) == tool:
                continue
            if self._standing.pop(name, None) is not None:
                toolset.remove(name)
            if name in toolset.names:
                self.left.append(f"{own!r}: the project has a tool named {name} already")
                continue
            toolset.add(self._bound(tool))
            self._standing[name] = tool

    def definitions(self) -> dict[str, str]:
        """The digest of each tool's definition, by the tool's name here."""
        return {name: digest(self.live[own]) for own, name in self.tools.items() if name in self._standing}

    def _described(self, name: str, live: Definition, reviewed: Definition | None) -> Tool:
        """The tool as it is shown: as it was reviewed, until somebody has looked at what it is now."""
        now = digest(live)
        reason, text = "", None
        if reviewed is None:
            reason = f"it is new from the MCP server {self.spec.name}, and nobody has reviewed it"
        elif digest(reviewed) != now:
            changes = differences(reviewed, live)
            reason = f"its definition has changed since it was reviewed: {'; '.join(changes)}"
        if reason and reviewed is None and (told := self._suspicious(name, live)) is not None:
            # A model reads this before any person has.
            text = f"[withheld: {told}; `toolcrib servers review {self.spec.name}` shows it]"
            live = {**live, "description": text, "inputSchema": _bare(live["inputSchema"])}
            live.pop("outputSchema", None)
            reason += f"; its text {told}"
        if reason:
            self.pending[name] = reason
            reason += f" (`toolcrib servers review {self.spec.name}`)"
        if self.spec.is_local and self.spec.permissions.network.mode == "host":
            # Whoever trusted the settings has let it start; what it does there is asked for call by call.
            reason += f"{', and ' if reason else ''}{_ALL_OF_IT}"
        approval = Approval(bool(reason), reason[:2_000])
        return tool_of(self.spec, name, reviewed or live, now, approval=approval, text=text)

    def _suspicious(self, name: str, live: Definition) -> str | None:
        """What is wrong with its words, if anything."""
        tool = tool_of(self.spec, name, live, "", approval=Approval())
        for _, text in texts(tool):
            if hidden_characters(text):
                return "holds characters that nobody sees"
            if (found := instructions(text)) is not None:
                return f"reads like instructions to the model: {found[:100]!r}"
        return None

    def _bound(self, tool: Tool) -> BoundTool:
        def executor() -> Executor:
            return McpExecutor(tool, self.server)

        return BoundTool(tool, executor, timeout_ms=self._servers.timeout_ms)

    def as_dict(self) -> dict[str, Any]:
        """How it is, as JSON."""
        server, spec = self.server, self.spec
        error = server.error
        return {
            "name": spec.name,
            "transport": spec.transport,
            "where": spec.where,
            "state": server.state if self._servers.trusted else "not trusted",
            "protocol": server.protocol or None,
            "tools": sorted(self.tools.values()),
            "unreviewed": self.pending,
            "unusable": self.left,
            "starts": server.starts,
            "error": None if error is None else error.as_dict(),
            "stderr": server.stderr,
            "sandbox": server.enforcement.get("level"),
            "permissions": spec.permissions.as_json(),
        }


class Servers:
    """All of them. Nothing is started before `start`, a call, or `ready`."""

    def __init__(
        self,
        named: NamedServers,
        toolset: Toolset,
        *,
        vault: Vault,
        root: Path,
        trusted: bool,
        unreviewed: bool,
        timeout_ms: int,
        workspace: Callable[[], Workspace],
        egress: Callable[[], Egress],
        secrets: SecretSource,
        allowed_hosts: tuple[str, ...] | None = None,
        record: Callable[..., Any] = lambda *_, **__: None,
        know: Callable[[Sequence[Tool]], None] = lambda _: None,
        redact: Callable[[Any], Any] = lambda value: value,
        version: str = "",
        speed: float = 1.0,
    ) -> None:
        self.toolset, self.vault, self.root = toolset, vault, root
        self.trusted = trusted
        """Whether the settings that name them are; else none is started."""
        self.unreviewed = unreviewed
        """Whether what a server offers first needs no review; what differs later does."""
        self.timeout_ms, self.version, self.speed = timeout_ms, version, speed
        self._workspace, self._egress, self._secrets = workspace, egress, secrets
        self._allowed_hosts = allowed_hosts
        self.note, self._redact = record, redact
        self.wrong = {f"{FILE} {name}".strip(): text for name, text in named.wrong.items()}
        """Entries that cannot be used, and why."""
        self.mounted = {spec.name: Mounted(spec, self) for spec in named.specs}
        if trusted:
            from toolcrib.executors.mcp.local import process_of

            know([process_of(spec) for spec in named.specs])
            for mounted in self.mounted.values():
                mounted.recall()

    def definitions(self) -> dict[str, dict[str, str]]:
        """By server, the digest of each tool's definition as the server gives it, or gave it last."""
        return {name: mounted.definitions() for name, mounted in self.mounted.items()}

    def programs(self) -> list[str]:
        """What the local ones run: no tool may write it."""
        return [path for one in self.mounted.values() for path in files_of(one.spec, self.root)]

    def get(self, name: str) -> Mounted:
        """One of them; `NotFoundError` names the nearest."""
        if name not in self.mounted:
            close = nearest(name, self.mounted)
            raise NotFoundError(
                f"there is no MCP server {name!r} here",
                hint=f"Did you mean {close}?" if close else f"Name it in mcp_servers, or in {FILE}.",
            )
        return self.mounted[name]

    def owner(self, tool: str) -> Mounted | None:
        """The server that a tool of this name would belong to."""
        return self.mounted.get(tool.partition("__")[0]) if "__" in tool else None

    def unknown(self, tool: str) -> ToolcribError | None:
        """Why there is no such tool, where it would be one of a server's that is not there."""
        mounted = self.owner(tool)
        if mounted is None:
            name = tool.partition("__")[0]
            wrong = self.wrong.get(f"{FILE} {name}")
            return (
                None if wrong is None else ToolUnavailable(f"the MCP server {name} cannot be used: {wrong}")
            )
        if not self.trusted:
            return NotTrusted(f"the MCP server {mounted.spec.name} is not started", hint=_HINT)
        return mounted.server.error if not mounted.known else None

    def start(self) -> None:
        """Have all of them started, in the background of this event loop."""
        if self.trusted:
            for mounted in self.mounted.values():
                mounted.server.start()

    async def ready(self, limit_s: float | None = None, names: Sequence[str] | None = None) -> None:
        """Start them, and wait until each has told its tools or could not, at most so long."""
        if self.trusted:
            chosen = self.mounted.values() if names is None else [self.get(name) for name in names]
            await asyncio.gather(*(one.server.ready(limit_s) for one in chosen))

    async def aclose(self) -> None:
        """End all of them."""
        await asyncio.gather(*(one.server.aclose() for one in self.mounted.values()))

    def link_of(self, spec: ServerSpec) -> Callable[[], Link]:
        """What makes a connection to this server."""
        return lambda: self._local(spec) if spec.is_local else self._remote(spec)

    def _local(self, spec: ServerSpec) -> Link:
        async def start() -> Any:
            from toolcrib.sandbox.stream import open_stream

            secrets = resolve(spec.permissions, self._secrets)
            return await open_stream(job_of(spec, self._workspace(), secrets))

        return StdioLink(start, self._redact)

    def _remote(self, spec: ServerSpec) -> Link:
        return self._http(spec, Tokens(self.vault, spec).signing)

    def _http(self, spec: ServerSpec, auth: Callable[[str], Any]) -> HttpLink:
        return HttpLink(
            spec,
            self._egress,
            lambda: resolve(spec.permissions, self._secrets),
            allowed_hosts=self._allowed_hosts,
            auth=auth,
        )

    async def login(self, name: str, show: Callable[[str], None], *, limit_s: float = 300.0) -> bool:
        """Have a person log in to a server; whether it asked for that. `show` is given the address to open.

        Raises what keeps the server from being talked to, and `TimedOut` where nobody logs in.
        """
        spec = self.get(name).spec
        if not self.trusted:
            raise NotTrusted(f"the MCP server {name} is not called", hint=_HINT)
        if spec.is_local:
            raise UsageError(f"{name} is a program of this machine: there is nothing to log in to")
        await self.mounted[name].server.aclose()
        async with Login(Tokens(self.vault, spec), show, limit_s=limit_s) as login:
            patient = replace(spec, start_timeout_s=limit_s + 30)
            once = Server(
                patient,
                lambda: self._http(spec, login.signing),
                told=lambda *_: None,
                noted=self.note,
                version=self.version,
            )
            try:
                if not await once.ready():
                    raise once.error or NotFoundError(f"{name} does not answer")
                return login.finish()
            finally:
                await once.aclose()

    def logout(self, name: str) -> bool:
        """Forget what a login gave; whether there was one."""
        return Tokens(self.vault, self.get(name).spec).forget()


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema's outline without a word in it: names of top properties stay out as well."""
    return {"type": "object"} if schema else {}
