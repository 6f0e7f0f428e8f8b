"""One MCP server: started when it is needed, listed, called, and started again when it ends.

One task keeps it running. Each turn of it is one connection, from the start over the first list of tools to
the end. Calls wait until that connection is ready, and use it or one of their own caller, always on the event
loop of the task.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from toolcrib.errors import (
    CapabilityMissing,
    DeniedError,
    InputRequired,
    PermissionDenied,
    ToolcribError,
    ToolFailed,
    ToolUnavailable,
)
from toolcrib.executors.mcp.connections import CallerConnections, Connected, Link, SessionLost, connected
from toolcrib.executors.mcp.definitions import (
    PROMPT,
    RESOURCE,
    Definition,
    as_json,
    fetch,
    resource_uri,
)
from toolcrib.executors.mcp.outcomes import error_text, is_answer, outcome_of
from toolcrib.executors.mcp.process.refusals import summary
from toolcrib.executors.mcp.relay import CallRelay, Relays
from toolcrib.spec import CallContext, Outcome
from toolcrib.state.installation import install_hint

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

ServerState = Literal["stopped", "starting", "ready", "waiting"]
"""Not needed yet, being started, answering, or to be started again after a pause."""
_MAX_PAUSE_S = 60.0
_STABLE_S = 60.0
"""Seconds after which a server counts as stable, and its earlier failures no longer count."""
_PATIENCE = 1
"""Failures in a row after which a call still waits for the next start; after more it is refused at once."""
_MAX_STDERR = 2_000
_RELISTEN_S = 5.0
_REST = 9
"""The pause after a list of a changed server, as a multiple of its duration, `_RELISTEN_S` at most: a server
may announce changes without end."""
_OLD_S = 60.0
"""Seconds after which a list is read again before a call: a server may change its tools and not say so."""
_CANCEL_S = 5.0
_COMPLETE_S = 10.0
_DRAIN_S = 30.0
"""Seconds that running calls have to end before the server starts again with other permissions."""
_CAPABILITY_MISSING = -32021
"""The error code of 2026-07-28 for a client without a capability that the server needs."""
_T = TypeVar("_T")


def pause_s(failures: int, chance: float) -> float:
    """Return the seconds before the next start: 1, 2, 4 … 60 by failures in a row.

    `chance`, 0 to 1, varies them by a fifth, so that many servers do not start at the same moment.
    """
    return float(min(_MAX_PAUSE_S, 2.0 ** min(failures - 1, 10)) * (0.8 + 0.4 * chance))


class McpServer:
    """One server. Nothing is started before `start`, `ready` or a call.

    Args:
        connect: makes a link; raises ToolcribError if that is impossible.
        on_tools: gets the definitions whenever the server has listed them, and the reasons why others are
            left out.
        on_event: gets an audit event (`MCP_SERVER_STARTED`, `MCP_SERVER_ENDED`) and its fields.
        version: our version for the server.
    """

    def __init__(
        self,
        spec: ServerSpec,
        connect: Callable[[], Link],
        *,
        on_tools: Callable[[list[Definition], list[str]], None],
        on_event: Callable[..., None] = lambda *_, **__: None,
        version: str = "",
    ) -> None:
        self.spec, self._version, self._connect = spec, version, connect
        self._on_tools, self._on_event = on_tools, on_event
        self.state: ServerState = "stopped"
        self.limit_s = spec.start_timeout_s
        """Seconds until a connection must have listed its tools."""
        self.error: ToolcribError | None = None
        """The last failure since `start`; None if it is ready again."""
        self._last_stderr = ""
        self.failures = 0
        """Failures in a row."""
        self.starts = 0
        self.protocol = ""
        """Protocol version of the connection."""
        self.enforcement: Mapping[str, Any] = {}
        self._up: Connected | None = None
        self._callers = CallerConnections(self._for_caller, local=spec.is_local)
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._renewing = False
        self._changed: asyncio.Event = asyncio.Event()

    @property
    def stderr(self) -> str:
        """The end of the standard error of its present or last process."""
        return ("" if self._link is None else self._link.stderr) or self._last_stderr

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it in the background of this event loop, and keep it running."""
        loop = asyncio.get_running_loop()
        # A task whose event loop was closed never runs again, so the server starts anew on this loop.
        # On another loop that is still open it continues there.
        if self._task is not None and self._loop is not None and not self._loop.is_closed():
            if self._loop is loop and self._task.done():
                self._task = None
            else:
                return
        self._loop, self._changed, self._up = loop, asyncio.Event(), None
        self.failures, self.state, self.error = 0, "starting", None
        self._task = loop.create_task(self._keep_running(), name=f"toolcrib mcp {self.spec.name}")

    async def aclose(self) -> None:
        """End it, and wait until its process has ended."""
        task, loop = self._task, self._loop
        self._task = None
        if task is None or loop is None or loop.is_closed():
            return
        if loop is not asyncio.get_running_loop():
            loop.call_soon_threadsafe(task.cancel)
            return
        self._stopping = True
        try:
            await self._callers.aclose()
            while not task.done():
                # More than once: the client's cancel scopes also cancel this task, and may swallow ours.
                task.cancel()
                await asyncio.wait([task], timeout=_CANCEL_S)
        finally:
            self._stopping = False
        self.state = "stopped"

    def renew(self) -> None:
        """Connect again, because what the server may use has changed. Running calls may end before."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        # The call that follows must find the new connection, so this comes before it on either loop.
        self._renew() if loop is here else loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        self._callers.renew(_DRAIN_S)
        self._replace(self._up)

    def _replace(self, up: Connected | None) -> None:
        """Connect again in place of the shared connection `up`, once its calls have ended."""
        if up is not None and up is self._up and not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_later(_DRAIN_S if up.calls else 0, up.link.closed.set)

    async def _keep_running(self) -> None:
        while True:
            began = time.monotonic()
            self._set_state("starting")
            self.starts += 1
            try:
                await self._session()
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if isinstance(_leaf(error), (KeyboardInterrupt, SystemExit, GeneratorExit)):
                    raise
                self._fail(error)
            if self._stopping:
                return
            if self._renewing:
                self._renewing = False
                continue
            stable = time.monotonic() - began >= _STABLE_S
            self.failures = 1 if stable else self.failures + 1
            self._on_event("MCP_SERVER_ENDED", name=self.spec.name, failures=self.failures)
            self._set_state("waiting")
            # Not a secret: the random part only spreads the starts of many servers.
            await asyncio.sleep(pause_s(self.failures, random.random()))  # noqa: S311

    async def _session(self) -> None:
        """Run one connection from its beginning to its end."""
        await _import_client()
        self._link = link = self._connect()
        try:
            async with AsyncExitStack() as stack:
                limit = await stack.enter_async_context(asyncio.timeout(self.limit_s))
                up = await stack.enter_async_context(connected(link, Relays(), self._version))
                # The limit includes the first list: a server that connects and then is silent has failed.
                self._on_tools(*await fetch(up.client))
                up.listed_at = time.monotonic()
                limit.reschedule(None)
                self.protocol, self.enforcement = up.client.protocol_version, link.enforcement()
                self._note_start(up)
                self._up, self.error = up, None
                self._set_state("ready")
                await self._follow(up)
        finally:
            self._up, self._last_stderr = None, link.stderr
        raise self._unavailable("its connection ended")

    def _note_start(self, up: Connected) -> None:
        protocol, level = up.client.protocol_version, up.link.enforcement().get("level")
        self._on_event("MCP_SERVER_STARTED", name=self.spec.name, protocol=protocol, sandbox=level)

    @asynccontextmanager
    async def _for_caller(self, capabilities: Mapping[str, Any], relays: Relays) -> AsyncIterator[Connected]:
        """Connect once more, as a client with these capabilities. Raises MCPError if it refuses sessions."""
        from mcp import MCPError

        link, up = self._connect(), None
        try:
            async with AsyncExitStack() as stack:
                limit = await stack.enter_async_context(asyncio.timeout(self.spec.start_timeout_s))
                made = connected(link, relays, self._version, "legacy", capabilities)
                up = await stack.enter_async_context(made)
                limit.reschedule(None)
                self._note_start(up)
                # Only the shared connection lists the tools, so a change that is announced here must wake it.
                if self._up is not None:
                    up.stale = self._up.stale
                yield up
        except Exception as error:
            leaf = _leaf(error)
            if up is not None or (isinstance(leaf, MCPError) and not link.failure()):
                raise leaf from None
            raise self._unavailable(leaf, link) from None

    async def _follow(self, up: Connected) -> None:
        """Read its list of tools again after each change, until the connection ends."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._listen(up)), group.create_task(self._relist_when_stale(up))]
            await up.link.closed.wait()
            for task in tasks:
                task.cancel()

    async def _relist_when_stale(self, up: Connected) -> None:
        while True:
            await up.stale.wait()
            began = time.monotonic()
            # The condition is evaluated first, so this is the time of the list.
            rest = _REST * (time.monotonic() - began) if await self._relist(up) else _RELISTEN_S
            await asyncio.sleep(min(rest, _RELISTEN_S))

    async def _relist(self, up: Connected) -> bool:
        """Read its list again, unless that was done meanwhile; return True if it is as new as can be known.

        After an error answer the last list stays, and is read again later.
        """
        async with up.listing:
            return not self._is_old(up) or await self._list_again(up)

    @staticmethod
    def _is_old(up: Connected) -> bool:
        return up.stale.is_set() or time.monotonic() - up.listed_at > _OLD_S

    async def _list_again(self, up: Connected) -> bool:
        up.stale.clear()
        try:
            async with asyncio.timeout(self.limit_s):
                self._on_tools(*await fetch(up.client))
            up.listed_at = time.monotonic()
        except Exception as error:
            leaf = _leaf(error)
            if up.lost_session(leaf):
                self._replace(up)
            elif not is_answer(leaf) or up.link.lost or up.link.failure():
                raise
            up.stale.set()
            text = (
                f"the MCP server {self.spec.name} did not list its changed tools: {self._text(leaf, up.link)}"
            )
            self.error = ToolUnavailable(
                text, hint="The tools that it listed before stay; it is asked again."
            )
            return False
        self.error = None
        return True

    async def _listen(self, up: Connected) -> None:
        """Subscribe to changes of the list, as 2026-07-28 requires, and again whenever the stream ends."""
        from mcp.client.subscriptions import ListenNotSupportedError

        offered = up.client.server_capabilities
        changed = {
            f"{kind}_list_changed": True
            for kind in ("tools", "prompts", "resources")
            if getattr(getattr(offered, kind), "list_changed", False)
        }
        if not changed:
            return
        while True:
            try:
                async with up.client.listen(**changed) as changes:
                    async for _ in changes:
                        up.stale.set()
            except ListenNotSupportedError:
                return
            except Exception:  # noqa: S110 - the next listing shows lost changes
                pass
            # Changes while no stream was open are lost, so the list is read again.
            await asyncio.sleep(_RELISTEN_S)
            up.stale.set()

    def _set_state(self, state: ServerState) -> None:
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()

    def _text(self, error: BaseException, link: Link | None) -> str:
        """Return what an error says of the server, as a part of a sentence."""
        if isinstance(error, TimeoutError):  # Only starts and lists have a limit.
            return f"it did not answer within {self.limit_s:g} s"
        return error_text(error, 0 if link is None else link.status)

    def _fail(self, error: BaseException) -> None:
        leaf = _leaf(error)
        self.error = leaf if isinstance(leaf, ToolUnavailable) else self._unavailable(leaf)

    def _unavailable(self, cause: str | BaseException, link: Link | None = None) -> ToolcribError:
        """Return the error of a server that is not available, with the end of its standard error."""
        link, name = link or self._link, self.spec.name
        found = "" if link is None else link.failure()
        origin = found if isinstance(found, ToolcribError) else cause
        what = cause if isinstance(cause, str) else self._text(cause, link)
        reason = (isinstance(found, str) and found) or what
        stderr = self.stderr[-_MAX_STDERR:].strip()
        details: dict[str, Any] = {"server": name}
        hint = "Run `toolcrib servers list` for its state and its standard error."
        if isinstance(origin, ToolcribError):
            reason, hint = origin.message, origin.hint or hint
            details |= {"cause": origin.code}
        if isinstance(origin, DeniedError):  # It was refused, so to try again does not help.
            return type(origin)(f"the MCP server {name} is not started: {reason}", hint=hint, details=details)
        if stderr:
            details["stderr"] = stderr
            reason += f". It wrote: {summary(stderr)[:300]}"
        error = ToolUnavailable(
            f"the MCP server {name} is not available: {reason}", hint=hint, details=details, retryable=True
        )
        if link is None or isinstance(origin, ToolcribError):
            return error
        return link.explain(error, summary(stderr), ())

    # -- use -------------------------------------------------------------------------------------

    async def ready(self, limit_s: float | None = None) -> bool:
        """Start it, and wait until it has listed its tools or failed. Return True if it is ready."""
        self.start()

        async def settled() -> bool:
            while self.state == "starting":
                await self._changed.wait()
            return self.state == "ready"

        try:
            async with asyncio.timeout(limit_s):
                return await self._on_its_loop(settled())
        except TimeoutError:
            return False

    @property
    def is_listed(self) -> bool:
        """True if it is ready, and its list of tools need not be read again before a call."""
        up = self._up
        return up is not None and not (up.link.closed.is_set() or self._renewing or self._is_old(up))

    async def listed(self, limit_s: float) -> None:
        """Start it, and wait until its tools are listed as they are now, or it has failed."""
        self.start()
        with suppress(ToolcribError, TimeoutError):  # The call itself reports it.
            async with asyncio.timeout(limit_s):
                await self._on_its_loop(self._listed())

    async def _listed(self) -> Connected:
        """Return the connection that callers share, its list of tools as new as can be known.

        Raises ToolUnavailable if it does not list them.
        """
        up = await self._available()
        if self._is_old(up):
            try:
                listed = await self._relist(up)
                if self._renewing:
                    return await self._available()
                if not listed:
                    raise _copy_of(self.error or self._unavailable("it does not list its tools"))
            except ToolcribError:
                raise
            except Exception as error:
                # The connection ends by this as it does in `_relist_when_stale`.
                up.link.closed.set()
                raise self._unavailable(_leaf(error), up.link) from None
        return up

    async def call(
        self, tool: str, arguments: Mapping[str, Any], ctx: CallContext, check: Callable[[], None]
    ) -> Outcome:
        """Call one of its tools. Progress and cancellation are passed on.

        `check` is called once the tools are listed, and raises if the call must not go out.

        Raises ToolUnavailable while the server is not available, and ToolFailed for the tool's own error and
        if the server ends before it has answered.
        """
        self.start()
        return await self._on_its_loop(self._call(tool, arguments, ctx, check))

    async def _call(
        self, tool: str, arguments: Mapping[str, Any], ctx: CallContext, check: Callable[[], None]
    ) -> Outcome:
        try:
            return await self._call_once(tool, arguments, ctx, check)
        except SessionLost:  # The server has refused the call, so it has not run it.
            return await self._call_once(tool, arguments, ctx, check)

    async def _call_once(
        self, tool: str, arguments: Mapping[str, Any], ctx: CallContext, check: Callable[[], None]
    ) -> Outcome:
        shared = await self._listed()
        check()
        relay = CallRelay(ctx)
        shared.calls += 1
        try:
            async with self._callers.connection(shared, ctx, relay) as up:
                return await self._call_by(up, relay, tool, arguments, ctx)
        finally:
            shared.calls -= 1
            with suppress(PermissionDenied):  # As after a command.
                ctx.created += shared.link.created()
            if self._renewing and not shared.calls:
                shared.link.closed.set()

    async def _call_by(
        self, up: Connected, relay: CallRelay, tool: str, arguments: Mapping[str, Any], ctx: CallContext
    ) -> Outcome:
        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            ctx.progress(done, total, message or "")

        given, session = dict(arguments), up.client.session

        async def send(responses: Any, state: str | None) -> Any:
            more: dict[str, Any] = {"input_responses": responses, "request_state": state}
            more |= {"meta": relay.meta, "allow_input_required": True}
            if tool.startswith(PROMPT):
                return await session.get_prompt(tool[len(PROMPT) :], given or None, **more)
            if tool.startswith(RESOURCE):
                return await session.read_resource(resource_uri(tool, given), **more)
            return await session.call_tool(tool, given, progress_callback=on_progress, **more)

        try:
            result = await up.relays.run(relay, send)
        except InputRequired:
            raise
        except Exception as error:
            failed = self._call_failed(up, tool, _leaf(error))
            if type(failed) is ToolFailed:
                failed = up.link.explain(failed, failed.message, arguments)
            raise failed from error
        try:
            return outcome_of(self.spec.name, tool, result)
        except ToolFailed as error:
            raise up.link.explain(error, error.message, arguments) from None

    async def complete(
        self, tool: str, argument: str, typed: str, given: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the server's completion of an argument of a prompt or resource template, as MCP's result."""
        self.start()
        return await self._on_its_loop(self._complete(tool, {"name": argument, "value": typed}, given))

    async def _complete(
        self, tool: str, argument: dict[str, str], given: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        up = await self._available()
        from mcp_types import PromptReference, ResourceTemplateReference

        empty: dict[str, Any] = {"completion": {"values": []}}
        if up.client.server_capabilities.completions is None:
            return empty
        ref = (
            PromptReference(name=tool[len(PROMPT) :])
            if tool.startswith(PROMPT)
            else ResourceTemplateReference(uri=tool[len(RESOURCE) :])
        )
        try:
            async with asyncio.timeout(_COMPLETE_S):
                found = await up.client.complete(ref, argument, dict(given) if given else None)
        except TimeoutError:
            return empty
        except Exception as error:
            raise self._call_failed(up, tool, _leaf(error)) from error
        return {"completion": as_json(found.completion)}

    async def _available(self) -> Connected:
        while True:
            # After its end a connection stays here until `_session` has run its clean-up.
            up = self._up
            if up is not None and not (up.link.closed.is_set() or self._renewing):
                return up
            failing = self.state == "waiting" and self.failures > _PATIENCE
            if failing or self._task is None or self._task.done():
                raise _copy_of(self.error or self._unavailable("it is not running"))
            await self._changed.wait()

    def _call_failed(self, up: Connected, tool: str, error: BaseException) -> BaseException:
        from mcp.shared.exceptions import MCPError

        if isinstance(error, ToolcribError):
            return error
        # The client's error hides the cause that the link saw, such as HTTP 401 or a login that has ended.
        if isinstance(found := up.link.failure(), ToolcribError) and not up.link.lost:
            up.link.closed.set()
            return _copy_of(found)
        if isinstance(error, MCPError) and error.code == _CAPABILITY_MISSING:
            data = error.data if isinstance(error.data, dict) else {}
            return CapabilityMissing(
                error.message, details={"required": data.get("requiredCapabilities", {})}
            )
        name = self.spec.name
        details: dict[str, Any] = {"server": name, "tool": tool}
        if up.lost_session(error):
            self._replace(up)
            return SessionLost(
                f"{name}: {tool}: the server ended its session", details=details, retryable=True
            )
        if not is_answer(error) or up.link.lost:
            up.link.closed.set()
            why = up.link.fault and f": {up.link.fault}"
            return ToolFailed(
                f"{name}: {tool}: the server ended before it answered{why}",
                hint="The call may have taken effect: check before you repeat it. The server starts again.",
                details=details,
            )
        if isinstance(error, MCPError):
            details["mcpError"] = {"code": error.code, "data": error.data}
        return ToolFailed(f"{name}: {tool}: {self._text(error, up.link)}", details=details)

    async def _on_its_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` on the event loop of the connection."""
        loop = self._loop
        if loop is None or loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def _import_client() -> None:
    """Import the official client in a thread: it takes a second, and nothing else must wait for it."""
    try:
        await asyncio.to_thread(import_module, "mcp")
    except ImportError as error:
        raise ToolUnavailable(
            f"the official MCP client cannot be loaded: {error}",
            hint=install_hint("mcp"),
        ) from None


def _copy_of(error: ToolcribError) -> ToolcribError:
    """Return the same error as a new object: one raised twice would collect both tracebacks."""
    return ToolcribError.from_dict(error.as_dict())


def _leaf(error: BaseException) -> BaseException:
    """Return the first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
