"""The MCP servers of a project. Their tools wait until a person has trusted them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolcrib import __version__
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
from toolcrib.executors.mcp.launch.launchers import is_launcher
from toolcrib.executors.mcp.login import Login, OAuthTokens
from toolcrib.executors.mcp.process.local import environment_of, job_of, process_of
from toolcrib.executors.mcp.process.refusals import LocalProcess
from toolcrib.executors.mcp.process.stdio import StdioLink
from toolcrib.executors.mcp.process.unconfined import start_unconfined
from toolcrib.executors.mcp.remote import HttpLink
from toolcrib.executors.mcp.server import McpServer
from toolcrib.guard import Trusted, resolve
from toolcrib.manifest.dialects.mcp_servers import ServerSpec
from toolcrib.project.config.mcp import FILE, server_line
from toolcrib.project.config.started import scripts_in
from toolcrib.project.control.records import SecretsStep
from toolcrib.project.setup import Setup
from toolcrib.project.tools.binding import Binder
from toolcrib.project.tools.mounted import Mounted
from toolcrib.project.tools.server_sheets import tool_sheet
from toolcrib.project.trust.sheets import TrustSheet
from toolcrib.project.trust.trust import ProjectTrust
from toolcrib.schema import to_json_text
from toolcrib.spec import Call, McpExec, Result, Tool
from toolcrib.spec.naming import suggestion
from toolcrib.spec.record import record

_HINT = "Run `toolcrib trust` to see what the project would start, and to allow it."


@record
class LoginStep:
    """The next step of a person who logs in; nothing if both are None."""

    address: str | None = None
    """The address to open in a browser on this machine."""
    host: str | None = None
    """A host that would take part in the login, which the person has to allow first."""


class Servers:
    """The MCP servers of a project. None is started before `start`, a call, or `ready`."""

    def __init__(
        self, setup: Setup, toolset: Toolset, binder: Binder, secrets: SecretsStep, trust: ProjectTrust
    ) -> None:
        named, config = setup.named_servers, setup.config
        self.toolset, self.root = toolset, setup.place.root
        self.vault, self.ledger = setup.vault, setup.ledger
        self.trusted = setup.trusted
        """False: no server is started."""
        self.whole = trust.whole
        """True: the program that opened the project accepts whatever they offer."""
        self._digest_of, trust.servers = trust.digest_of, self
        self.timeout_ms = config.timeout_ms
        self.note = setup.audit.record
        self._binder, self._starts = binder, setup.starts
        self._secrets, self.mask, self._know = setup.secrets, secrets.mask, secrets.know
        self._allowed_hosts = config.allowed_hosts
        self.wrong = {f"{FILE} {name}".strip(): text for name, text in named.wrong.items()}
        """Unusable entries, and why."""
        self.notes = named.notes
        """Server name to what its entry says without effect here, or that it is disabled."""
        self.owners: dict[str, Mounted] = {}
        """Tool name here to the server that offers it, or offered it before."""
        self.mounted: dict[str, Mounted] = {}
        self._logins: dict[str, asyncio.Task[None]] = {}
        self.add(named.specs)

    def add(self, specs: Sequence[ServerSpec]) -> None:
        """Take further servers, with the tools that they listed when they last ran."""
        self.mounted |= {spec.name: Mounted(spec, self) for spec in specs}
        if self.trusted:
            self._know([process_of(spec) for spec in specs])
            for spec in specs:
                self.mounted[spec.name].list_last()

    def specs(self) -> list[ServerSpec]:
        """Return what starts each of them, and what it may use."""
        return [one.spec for one in self.mounted.values()]

    def unusable(self) -> list[str]:
        """Return what of the servers' lists cannot be used, a line each."""
        return [f"{name}: not usable: {text}" for name, one in self.mounted.items() for text in one.left]

    def definitions(self) -> dict[str, dict[str, str]]:
        """Return by server the digest of each tool's definition."""
        return {name: mounted.definitions() for name, mounted in self.mounted.items()}

    def hosts(self) -> dict[str, str]:
        """Return by server the hosts that a person has allowed it, as JSON."""
        found = {name: mounted.trust.network() for name, mounted in self.mounted.items()}
        return {name: to_json_text(one.as_json()).decode() for name, one in found.items() if one is not None}

    # -- trust ---------------------------------------------------------------------------------------

    def reread(self) -> None:
        """Take up what was trusted since, also by another process."""
        for mounted in self.mounted.values():
            mounted.reread()

    def is_new(self, name: str) -> bool:
        """Return True for a tool that a server offers, of which nobody has trusted any version."""
        owner = self.owners.get(name)
        return owner is not None and name in owner.new

    def why_waits(self, tool: Tool) -> str | None:
        """Return why a tool of a server waits for trust; None if it does not."""
        owner = self.owners.get(tool.name)
        return None if owner is None else owner.waiting.get(tool.name)

    def sheet(self, tool: Tool) -> TrustSheet:
        """Return a tool of a server as it is shown to the person who trusts it."""
        return tool_sheet(self.owners[tool.name], tool, self._digest_of(tool))

    def rows(self, tools: Iterable[str], *, trusted: bool = True) -> list[Trusted]:
        """Return the rows that trust these tools of servers beside what is trusted of them, or no longer."""
        names = [name for name in tools if name in self.owners]
        owners = {owner.spec.name: owner for owner in map(self.owners.__getitem__, names)}.values()
        return [owner.row(names) if trusted else owner.row_without(names) for owner in owners]

    def get(self, name: str) -> Mounted:
        """Return one server. Raises NotFoundError with the nearest name."""
        if name not in self.mounted:
            hint = suggestion(name, self.mounted, f"Name it in mcp_servers, or in {FILE}.")
            raise NotFoundError(f"there is no MCP server {name!r} here", hint=hint)
        return self.mounted[name]

    def _owner(self, tool: str) -> Mounted | None:
        """Return the server that a tool of this name would belong to."""
        return self.mounted.get(tool.partition("__")[0]) if "__" in tool else None

    def before(self, tool: str) -> Mounted | None:
        """Return the server whose tools must be listed before a call of this name is checked.

        That is one that has never listed them, does not run, or may have changed them since.
        """
        owner = self.owners.get(tool)
        if owner is None:
            owner = self._owner(tool)
            return owner if owner is not None and not owner.known else None
        owner.reread()
        return None if tool in owner.waiting or owner.server.is_listed else owner

    async def invoke_when_listed(self, owner: Mounted, call: Call, limit_s: float) -> Result:
        """Wait until a server has listed its tools as they are now, or cannot, and make the call."""
        if self.trusted:
            # One that has never listed its tools may be broken, so its first failure is enough.
            await (owner.server.listed(limit_s) if owner.known else owner.server.ready(limit_s))
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
        if self.why_waits(tool) is not None:
            return {"completion": {"values": []}}
        server = self.get(tool.config.server).server
        return await server.complete(tool.config.tool, argument, typed, given)

    async def restart(self, name: str) -> Mounted:
        """End a server and start it again; its running calls fail. Raises NotFoundError, NotTrusted."""
        mounted = self.get(name)
        if not self.trusted:
            raise NotTrusted(f"the MCP server {name} is not started", hint=_HINT)
        await mounted.server.aclose()
        mounted.server.start()
        return mounted

    async def remove(self, name: str) -> None:
        """End a server that was removed from `.mcp.json`, and forget its tools; its running calls fail."""
        self.wrong.pop(f"{FILE} {name}", None)
        if (task := self._logins.pop(name, None)) is not None:
            task.cancel()
        if (mounted := self.mounted.pop(name, None)) is not None:
            await mounted.server.aclose()
            mounted.unmount()

    async def aclose(self) -> None:
        """End all of them."""
        for task in self._logins.values():
            task.cancel()
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
            argv = line.argv
            if spec.resolved is not None and is_launcher(argv[0]):
                argv = (*spec.resolved.argv, *argv[1:])
            # The program is looked up twice and only `line` is checked: a link may have changed meanwhile.
            if process.job.argv != argv:
                raise ConflictError("its program has changed while it was started", hint="Try again.")
            return await open_stream(process.job)

        def explain(error: ToolcribError, text: str, arguments: Any) -> ToolcribError:
            return error if process is None else process.explain(error, text, arguments)

        def created() -> tuple[str, ...]:
            return () if process is None else process.created()

        return StdioLink(start, self.mask, explain, created)

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
        mounted = self.get(name)
        spec = mounted.spec
        if not self.trusted:
            raise NotTrusted(f"the MCP server {name} is not called", hint=_HINT)
        if spec.is_local:
            raise UsageError(f"{name} is a local program, so there is nothing to log in to")
        await mounted.server.aclose()
        port = spec.oauth.callback_port
        async with Login(self._tokens(spec), show, allow=allow, port=port, limit_s=limit_s) as login:
            # A person logs in while the server is being started; 30 s are left for the start itself.
            patient = replace(spec, start_timeout_s=limit_s + 30)
            link = partial(self._http, spec, login)
            once = McpServer(patient, link, on_tools=lambda *_: None, on_event=self.note, version=__version__)
            mounted.logging_in = True
            try:
                if not await once.ready():
                    raise once.error or NotFoundError(f"{name} does not answer")
                return login.finish()
            finally:
                mounted.logging_in = False
                await once.aclose()

    async def begin_login(self, name: str, hosts: Collection[str]) -> LoginStep:
        """Begin a login that goes on in the background, and return what the person has to do next.

        `hosts` are those beside the server's own that they have allowed to take part. A login that had begun
        before ends. Raises as `login`.
        """
        if (before := self._logins.pop(name, None)) is not None:
            before.cancel()
            await asyncio.wait([before])
        step: asyncio.Future[LoginStep] = asyncio.get_running_loop().create_future()

        def answer(address: str | None = None, host: str | None = None) -> None:
            if not step.done():
                step.set_result(LoginStep(address, host))

        def allow(host: str) -> bool:
            if host not in hosts:
                answer(host=host)
            return host in hosts

        async def log_in() -> None:
            try:
                await self.login(name, answer, allow=allow)
                answer()
            except ToolcribError as error:
                if not step.done():
                    step.set_exception(error)
            finally:
                if not step.done():
                    step.set_exception(ConflictError(f"another login to {name} has begun"))
            if name in self.mounted and self.trusted:
                self.mounted[name].server.start()

        self._logins[name] = asyncio.create_task(log_in(), name=f"toolcrib login {name}")
        return await step

    def logout(self, name: str) -> bool:
        """Remove the tokens of a login, and return True if there were any."""
        return OAuthTokens(self.vault, self.get(name).spec).forget()

    async def end_login(self, name: str) -> bool:
        """Log out as `logout` does, and end a connection that still has the tokens."""
        if found := self.logout(name):
            await self.mounted[name].server.aclose()
        return found
