"""The MCP servers of a project. Their tools need approval until a person has trusted them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolcrib import __version__
from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import (
    ConflictError,
    NotFoundError,
    NotTrusted,
    ToolcribError,
    ToolUnavailable,
    UsageError,
)
from toolcrib.executors.mcp.connections import Link
from toolcrib.executors.mcp.definitions import Definition, digest, masked, names_of, takes_address, tool_of
from toolcrib.executors.mcp.login import Login, OAuthTokens
from toolcrib.executors.mcp.process.local import (
    environment_of,
    files_of,
    grants_of,
    job_of,
    process_of,
    unconfined_program,
)
from toolcrib.executors.mcp.process.refusals import LocalProcess
from toolcrib.executors.mcp.process.stdio import StdioLink
from toolcrib.executors.mcp.process.unconfined import start_unconfined
from toolcrib.executors.mcp.remote import HttpLink
from toolcrib.executors.mcp.server import McpExecutor, McpServer
from toolcrib.guard import ServerTrust, Trusted, differences, resolve
from toolcrib.manifest.dialects.mcp_servers import ServerSpec
from toolcrib.manifest.lint.wording import hidden_characters, instructions, texts
from toolcrib.project.config.mcp import FILE, server_line
from toolcrib.project.config.started import scripts_in
from toolcrib.project.control.records import SecretsStep
from toolcrib.project.setup import Setup
from toolcrib.project.tools.binding import Binder
from toolcrib.spec import ApprovalRule, Call, McpExec, Network, Result, Tool
from toolcrib.spec.naming import suggestion

_ALL_OF_IT = "the permission `network: host` of its server covers all of this machine's network"
_HINT = "Run `toolcrib trust` to see what the project would start, and to allow it."


class Mounted:
    """One server, and its tools in the project's toolset."""

    def __init__(self, spec: ServerSpec, servers: Servers) -> None:
        self._servers = servers
        self.trust = ServerTrust(servers.vault, servers.ledger, spec.name, spec.identity)
        self._version = self.trust.version
        self.spec = self._with_hosts(spec)
        self.live: dict[str, Definition] = {}
        """The definitions that it offers, or offered last."""
        self.known = False
        """True once it has listed its tools, in this process or an earlier one."""
        self.left: list[str] = []
        """Unusable tools, and why."""
        self.pending: dict[str, str] = {}
        """Tool name here to the reason why it waits for trust."""
        self.tools: dict[str, str] = {}
        """Tool name of the server to the name here."""
        self._listed: dict[str, Tool] = {}
        self.server = McpServer(
            spec,
            partial(servers.link, self),
            on_tools=self._offered,
            on_event=servers.note,
            version=__version__,
        )

    def list_last(self) -> None:
        """List the tools that it offered when it last ran."""
        if seen := self.trust.seen():
            self.known = True
            self._mount(seen)

    def _offered(self, definitions: list[Definition], left: list[str]) -> None:
        found = {str(one["name"]): masked(one, self._servers.mask) for one in definitions}
        self.known, self.left = True, left
        self.trust.see(found)
        self._mount(found)

    def row(self, network: Network | None = None) -> Trusted:
        """Return the ledger's row that trusts what it offers now, with these hosts or those of before."""
        if network is not None:
            self.require_open_hosts()
        return self.trust.row(self.live, network or self.trust.network())

    def require_open_hosts(self) -> None:
        """Raise UsageError if its entry in the settings decides which hosts it may reach."""
        if not self.spec.is_local or self.spec.states_network:
            raise UsageError(
                f"the entry of {self.spec.name} decides which hosts it may reach",
                hint="Change permissions.network there, then: toolcrib trust",
            )

    def reread(self) -> None:
        """Take up what was trusted since, also by another process."""
        version = self.trust.version
        if version == self._version:
            return
        self._version, spec = version, self._with_hosts(self.spec)
        if spec != self.spec:
            self.spec = spec
            self.server.renew()
        self._mount(self.live)

    @property
    def waits_for_hosts(self) -> bool:
        """True if its tools take addresses, and nobody has decided yet which hosts it may reach."""
        return (
            self.spec.is_local
            and not self.spec.states_network
            and self.trust.network() is None
            and not unconfined_program(self.spec, str(self._servers.root))
            and any(map(takes_address, self.live.values()))
        )

    def _with_hosts(self, spec: ServerSpec) -> ServerSpec:
        """Return the server with the hosts that a person has allowed it."""
        network = self.trust.network()
        if network is None or spec.states_network or not spec.is_local:
            return spec
        return replace(spec, permissions=replace(spec.permissions, network=network))

    def _mount(self, found: dict[str, Definition]) -> None:
        """Put these tools of the server, and no others, into the toolset."""
        toolset, trusted, owners = self._servers.toolset, self.trust.trusted(), self._servers.owners
        self.live, self.pending = found, {}
        names = names_of(self.spec.name, found, prefix=self.spec.prefix)
        for name in set(self.tools.values()) - set(names.values()):
            if self._listed.pop(name, None) is not None:
                toolset.remove(name)
        self.tools = names
        for own, name in names.items():
            tool = self._described(name, found[own], trusted.get(own))
            if self._listed.get(name) == tool:
                continue
            if self._listed.pop(name, None) is not None:
                toolset.remove(name)
            if (other := toolset.same_name(name)) is not None:
                named = f"named {other}" if other == name else f"{other}, of the same name for clients,"
                self.left.append(f"{own!r}: the project has a tool {named} already")
                continue
            make = partial(McpExecutor, tool, self.server)
            toolset.add(BoundTool(tool, make, timeout_ms=self._servers.timeout_ms))
            self._listed[name], owners[name] = tool, self

    def definitions(self) -> dict[str, str]:
        """Return the digest of each tool's definition, by the tool's name here."""
        return {name: digest(self.live[own]) for own, name in self.tools.items() if name in self._listed}

    def _described(self, name: str, live: Definition, trusted: Definition | None) -> Tool:
        """Return the tool as it is shown: the trusted definition until a person has trusted the new one."""
        now = digest(live)
        reason, text = "", None
        if trusted is None:
            reason = f"it is new from the MCP server {self.spec.name}, and nobody has trusted it"
        elif digest(trusted) != now:
            changes = differences(trusted, live)
            reason = f"its definition has changed since it was trusted: {'; '.join(changes)}"
        if reason and trusted is None and (finding := self._suspicious(name, live)) is not None:
            # A model reads this before any person has.
            text = f"[withheld: {finding}; `toolcrib trust` shows it]"
            # No word of the schema either, not even the names of properties.
            outline = {"type": "object"} if live["inputSchema"] else {}
            live = {**live, "description": text, "inputSchema": outline}
            live.pop("outputSchema", None)
            reason += f"; its text {finding}"
        if reason:
            self.pending[name] = reason
            reason += " (`toolcrib trust`)"
        if self.spec.is_local and self.spec.permissions.network.mode == "host":
            # Trusting the settings allowed the start; each call still needs approval.
            reason += f"{', and ' if reason else ''}{_ALL_OF_IT}"
        approval = ApprovalRule(bool(reason), reason[:2_000])
        return tool_of(self.spec, name, trusted or live, now, approval=approval, text=text)

    def _suspicious(self, name: str, live: Definition) -> str | None:
        """Return why its words must not reach a model before a person has read them; None if they may."""
        tool = tool_of(self.spec, name, live, "", approval=ApprovalRule())
        for _, text in texts(tool):
            if hidden_characters(text):
                return "has invisible characters"
            if (found := instructions(text)) is not None:
                return f"reads like instructions to the model: {found[:100]!r}"
        return None

    def grants(self) -> list[str]:
        """List in words what its process may use, one line each; nothing of a remote server."""
        return grants_of(self.spec, str(self._servers.root)) if self.spec.is_local else []

    def as_dict(self) -> dict[str, Any]:
        """Return its state as JSON."""
        server, spec, error = self.server, self.spec, self.server.error
        return {
            "name": spec.name,
            "transport": spec.transport,
            "where": spec.where,
            "state": server.state if self._servers.trusted else "not trusted",
            "protocol": server.protocol or None,
            "tools": sorted(self.tools.values()),
            "waiting": self.pending,
            "unusable": self.left,
            "starts": server.starts,
            "error": None if error is None else error.as_dict(),
            "stderr": server.stderr,
            "sandbox": server.enforcement.get("level"),
            "permissions": spec.permissions.as_json(),
            "grants": self.grants(),
            "unwritable": list(spec.unwritable),
        }


class Servers:
    """The MCP servers of a project. None is started before `start`, a call, or `ready`."""

    def __init__(self, setup: Setup, toolset: Toolset, binder: Binder, secrets: SecretsStep) -> None:
        named, config = setup.named_servers, setup.config
        self.toolset, self.root = toolset, setup.place.root
        self.vault, self.ledger = setup.vault, setup.ledger
        self.trusted = setup.trusted
        """False: no server is started."""
        self.timeout_ms = config.timeout_ms
        self.note = setup.audit.record
        self._binder, self._starts = binder, setup.starts
        self._secrets, self.mask = setup.secrets, secrets.mask
        self._allowed_hosts = config.allowed_hosts
        self.wrong = {f"{FILE} {name}".strip(): text for name, text in named.wrong.items()}
        """Unusable entries, and why."""
        self.owners: dict[str, Mounted] = {}
        """Tool name here to the server that offers it, or offered it before."""
        self.mounted = {spec.name: Mounted(spec, self) for spec in named.specs}
        if self.trusted:
            secrets.know([process_of(spec) for spec in named.specs])
            for mounted in self.mounted.values():
                mounted.list_last()

    def definitions(self) -> dict[str, dict[str, str]]:
        """Return by server the digest of each tool's definition."""
        return {name: mounted.definitions() for name, mounted in self.mounted.items()}

    def programs(self) -> list[str]:
        """Return the programs of local servers, which no tool may write."""
        return [path for one in self.mounted.values() for path in files_of(one.spec, self.root)]

    def get(self, name: str) -> Mounted:
        """Return one server. Raises NotFoundError with the nearest name."""
        if name not in self.mounted:
            hint = suggestion(name, self.mounted, f"Name it in mcp_servers, or in {FILE}.")
            raise NotFoundError(f"there is no MCP server {name!r} here", hint=hint)
        return self.mounted[name]

    def _owner(self, tool: str) -> Mounted | None:
        """Return the server that a tool of this name would belong to."""
        return self.mounted.get(tool.partition("__")[0]) if "__" in tool else None

    def may_bring(self, tool: str) -> bool:
        """Return True for a name that a server may offer that has never listed its tools."""
        mounted = self._owner(tool)
        return mounted is not None and not mounted.known and tool not in self.toolset.names

    async def invoke_when_ready(self, call: Call, limit_s: float) -> Result:
        """Start the server that a tool would belong to, wait for its tools, and make the call."""
        mounted = self._owner(call.tool)
        if mounted is not None:
            await self.ready(limit_s, [mounted.spec.name])
        return await self.toolset.invoke(call)

    def why_missing(self, tool: str) -> ToolcribError | None:
        """Return the error of the server that this missing tool would belong to."""
        mounted, name = self._owner(tool), tool.partition("__")[0]
        if mounted is None:
            wrong = self.wrong.get(f"{FILE} {name}")
            text = f"the MCP server {name} cannot be used: {wrong}"
            return None if wrong is None else ToolUnavailable(text)
        if not self.trusted:
            return NotTrusted(f"the MCP server {name} is not started", hint=_HINT)
        return mounted.server.error if not mounted.known else None

    def start(self) -> None:
        """Start all of them in the background of this event loop."""
        if self.trusted:
            for mounted in self.mounted.values():
                mounted.server.start()

    async def ready(self, limit_s: float | None = None, names: Sequence[str] | None = None) -> None:
        """Start all, or these, and wait until each has listed its tools or failed, or the time is up."""
        if self.trusted:
            chosen = self.mounted.values() if names is None else [self.get(name) for name in names]
            await asyncio.gather(*(one.server.ready(limit_s) for one in chosen))

    async def complete(
        self, tool: Tool, argument: str, typed: str, given: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the completion of an argument by the server that a tool belongs to, as MCP's result."""
        assert isinstance(tool.config, McpExec)
        server = self.get(tool.config.server).server
        return await server.complete(tool.config.tool, argument, typed, given)

    async def aclose(self) -> None:
        """End all of them."""
        await asyncio.gather(*(one.server.aclose() for one in self.mounted.values()))

    def link(self, mounted: Mounted) -> Link:
        """Return a new connection to this server."""
        spec = mounted.spec
        return self._local(spec) if spec.is_local else self._http(spec, self._tokens(spec))

    def _local(self, spec: ServerSpec) -> Link:
        process: LocalProcess | None = None

        async def start() -> Any:
            from toolcrib.sandbox.stream import open_stream

            nonlocal process
            line = server_line(spec, self.root)
            # At every start: this compares the files of now with what the user has trusted and the lock pins.
            code = self._starts.code(f"mcp_servers.{spec.name}", line)
            secrets = resolve(spec.permissions, self._secrets)
            if line.unconfined:
                # Without a sandbox there are no mounts, so the files could be replaced after this check.
                if loaded := scripts_in(line.variables, self.root):
                    raise ToolUnavailable(
                        f"it runs unconfined, so not with code of the project ({', '.join(loaded)})",
                        hint="Remove the variables that load these files.",
                    )
                folder = os.path.join(self.root, line.cwd)
                environment = environment_of(spec, secrets)
                return await start_unconfined(line.unconfined, line.argv, folder, environment)
            process = job_of(spec, self._binder.workspace(), secrets, code)
            # The program is looked up twice and only `line` is checked: a link may have changed meanwhile.
            if process.job.argv != line.argv:
                raise ConflictError("its program has changed while it was started", hint="Try again.")
            return await open_stream(process.job)

        def explain(error: ToolcribError, text: str, arguments: Any) -> ToolcribError:
            return error if process is None else process.explain(error, text, arguments)

        return StdioLink(start, self.mask, explain)

    def _tokens(self, spec: ServerSpec) -> OAuthTokens:
        return OAuthTokens(self.vault, spec, lambda: resolve(spec.permissions, self._secrets))

    def _http(self, spec: ServerSpec, login: OAuthTokens | Login) -> HttpLink:
        return HttpLink(
            spec,
            self._binder.egress,
            lambda: resolve(spec.permissions, self._secrets),
            allowed_hosts=self._allowed_hosts,
            login=login,
        )

    async def login(
        self,
        name: str,
        show: Callable[[str], None],
        *,
        allow: Callable[[str], bool] = lambda _: False,
        limit_s: float = 300.0,
    ) -> bool:
        """Have a person log in, and return True if the server asked for it. `show` gets the address to open,
        and `allow` is asked for each host beside the server's own that takes part.

        Raises the error of a server that cannot be reached, and `TimedOut` if nobody logs in.
        """
        spec = self.get(name).spec
        if not self.trusted:
            raise NotTrusted(f"the MCP server {name} is not called", hint=_HINT)
        if spec.is_local:
            raise UsageError(f"{name} is a local program, so there is nothing to log in to")
        await self.mounted[name].server.aclose()
        port = spec.oauth.callback_port
        async with Login(self._tokens(spec), show, allow=allow, port=port, limit_s=limit_s) as login:
            # A person logs in while the server is being started; 30 s are left for the start itself.
            patient = replace(spec, start_timeout_s=limit_s + 30)
            link = partial(self._http, spec, login)
            once = McpServer(patient, link, on_tools=lambda *_: None, on_event=self.note, version=__version__)
            try:
                if not await once.ready():
                    raise once.error or NotFoundError(f"{name} does not answer")
                return login.finish()
            finally:
                await once.aclose()

    def logout(self, name: str) -> bool:
        """Remove the tokens of a login, and return True if there were any."""
        return OAuthTokens(self.vault, self.get(name).spec).forget()
