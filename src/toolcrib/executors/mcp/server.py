"""One MCP server kept at hand: started when it is needed, listed, called, and started again when it dies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from toolcrib.errors import TimedOut, ToolcribError, ToolFailed, ToolUnavailable
from toolcrib.executors.mcp.definitions import Definition, fetch
from toolcrib.executors.mcp.results import outcome_of
from toolcrib.spec import CallContext, Outcome

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

__all__ = ["Link", "Server", "State", "pause_s"]

State = Literal["stopped", "starting", "ready", "waiting", "failed"]
"""Not asked for yet · being started · answers · to be started again after a pause · not tried any more."""
LONGEST_PAUSE_S = 60.0
STEADY_S = 60.0
"""Seconds that a server has to be up for its failures before to be forgotten."""
QUICK = 1
"""So many failures in a row are waited out by a call; after more of them it is refused at once."""
_TAIL = 2_000
_RELISTEN_S = 5.0
_STUBBORN_S = 5.0
T = TypeVar("T")


class Link(Protocol):
    """A way to a server, and a transport of the official client: entered once, for one connection."""

    @property
    def closed(self) -> asyncio.Event:
        """Set when no message can come any more."""

    @property
    def stderr(self) -> str:
        """The end of what its process wrote to standard error."""

    def trouble(self) -> str | ToolcribError:
        """Why it cannot be talked to any more, as far as that is known."""

    def enforcement(self) -> dict[str, Any]:
        """What holds its process."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


def pause_s(failures: int, chance: float) -> float:
    """Seconds before the next start: 1, 2, 4 … 60 after so many failures in a row, a fifth more or less."""
    return float(min(LONGEST_PAUSE_S, 2.0 ** min(failures - 1, 10)) * (0.8 + 0.4 * chance))


@dataclass
class _Up:
    """A connection that answers."""

    client: Any
    link: Link
    stale: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the list of tools may have changed."""
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a call that found the connection gone."""


class Server:
    """One server. Nothing is started before `start`, a call, or `ready`.

    Arguments:
        connect: makes a link; raises a ToolcribError where that cannot be.
        told: gets the definitions whenever the server has told them, and why some were left out.
        noted: gets an event (`MCP_SERVER_STARTED`, `MCP_SERVER_ENDED`) and facts of it.
        speed: pauses between starts are so many times shorter.
        version: ours, which the server is told.
    """

    def __init__(
        self,
        spec: ServerSpec,
        connect: Callable[[], Link],
        *,
        told: Callable[[list[Definition], list[str]], None],
        noted: Callable[..., None] = lambda *_, **__: None,
        speed: float = 1.0,
        version: str = "",
    ) -> None:
        self.spec = spec
        self._version = version
        self._connect = connect
        self._told = told
        self._noted = noted
        self._speed = speed
        self.state: State = "stopped"
        self.error: ToolcribError | None = None
        """Why it was not there last; None where it never failed, or is there again."""
        self.stderr_before = ""
        self.failures = 0
        """In a row."""
        self.starts = 0
        self.protocol = ""
        """Version of the protocol that is spoken."""
        self.enforcement: Mapping[str, Any] = {}
        self._up: _Up | None = None
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._changed: asyncio.Event = asyncio.Event()

    @property
    def stderr(self) -> str:
        """The end of what its process, or the last one, wrote to standard error."""
        return (self._link.stderr if self._link is not None else "") or self.stderr_before

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Have it started in the background of this event loop, and kept."""
        loop = asyncio.get_running_loop()
        if self._task is not None and self._loop is not None and not self._loop.is_closed():
            if self._loop is loop and self._task.done():
                self._task = None
            else:
                return
        self._loop, self._changed, self._up = loop, asyncio.Event(), None
        self.failures, self.state = 0, "starting"
        self._task = loop.create_task(self._keep(), name=f"toolcrib mcp {self.spec.name}")

    async def aclose(self) -> None:
        """End it, and wait until its process is gone."""
        task, loop = self._task, self._loop
        self._task = None
        if task is None or loop is None or loop.is_closed():
            return
        if loop is not asyncio.get_running_loop():
            loop.call_soon_threadsafe(task.cancel)
            return
        self._stopping = True
        try:
            while not task.done():
                # Once may not do: the client's scopes cancel this task too, and one may hide the other.
                task.cancel()
                await asyncio.wait([task], timeout=_STUBBORN_S)
        finally:
            self._stopping = False
        self.state = "stopped"

    async def _keep(self) -> None:
        while True:
            began = time.monotonic()
            self._be("starting")
            self.starts += 1
            try:
                await self._session()
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if _fatal(error):
                    raise
                self._fail(error)
            if self._stopping:
                return
            steady = time.monotonic() - began >= STEADY_S
            self.failures = 1 if steady else self.failures + 1
            self._noted("MCP_SERVER_ENDED", name=self.spec.name, failures=self.failures)
            self._be("waiting")
            # Not for secrets: only that a hundred servers do not start in one moment.
            await asyncio.sleep(pause_s(self.failures, random.random()) / self._speed)  # noqa: S311

    async def _session(self) -> None:
        """One connection from its beginning to its end."""
        await _import_client()
        from mcp import Client
        from mcp_types import Implementation, ToolListChangedNotification

        self._link = link = self._connect()
        up: _Up | None = None

        async def heard(message: Any) -> None:
            inner = message.root if hasattr(message, "root") else message
            if up is not None and isinstance(inner, ToolListChangedNotification):
                up.stale.set()

        client = Client(
            link,
            cache=None,
            message_handler=heard,
            client_info=Implementation(name="toolcrib", version=self._version),
        )
        try:
            async with AsyncExitStack() as stack:
                limit = await stack.enter_async_context(asyncio.timeout(self.spec.start_timeout_s))
                await stack.enter_async_context(client)
                up = _Up(client, link)
                self._told(*await fetch(client))
                limit.reschedule(None)
                self.protocol, self.enforcement = client.protocol_version, link.enforcement()
                self._noted(
                    "MCP_SERVER_STARTED",
                    name=self.spec.name,
                    protocol=self.protocol,
                    sandbox=self.enforcement.get("level"),
                )
                self._up, self.error = up, None
                self._be("ready")
                await self._tend(up)
        except TimeoutError:
            raise self._gone(f"it did not tell its tools within {self.spec.start_timeout_s:g} s") from None
        finally:
            self._up = None
            self.stderr_before = link.stderr
        raise self._gone("its connection ended")

    async def _tend(self, up: _Up) -> None:
        """Follow its list of tools until the connection ends."""
        ends = [asyncio.ensure_future(event.wait()) for event in (up.link.closed, up.broken)]
        listener = asyncio.create_task(self._listen(up))
        try:
            while not any(end.done() for end in ends):
                stale = asyncio.ensure_future(up.stale.wait())
                await asyncio.wait([stale, *ends], return_when=asyncio.FIRST_COMPLETED)
                if not stale.done():
                    stale.cancel()
                    continue
                up.stale.clear()
                async with asyncio.timeout(self.spec.start_timeout_s):
                    self._told(*await fetch(up.client))
        finally:
            for task in (*ends, listener):
                task.cancel()
            await asyncio.gather(*ends, listener, return_exceptions=True)

    async def _listen(self, up: _Up) -> None:
        """Where changes have to be asked for (2026-07-28), ask, again whenever the stream ends."""
        from mcp.client.subscriptions import ListenNotSupportedError

        tools = up.client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        while True:
            try:
                async with up.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        up.stale.set()
            except ListenNotSupportedError:
                return
            except Exception:  # noqa: S110 - what is lost is told by the next listing
                pass
            await asyncio.sleep(_RELISTEN_S)
            up.stale.set()

    def _be(self, state: State) -> None:
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()

    def _fail(self, error: BaseException) -> None:
        leaf = _leaf(error)
        self.error = leaf if isinstance(leaf, ToolUnavailable) else self._gone(_words(leaf), leaf)

    def _gone(self, what: str, cause: BaseException | None = None) -> ToolcribError:
        """The error of a server that is not there: what happened, and what it said itself."""
        link, name = self._link, self.spec.name
        found = "" if link is None else link.trouble()
        origin = found if isinstance(found, ToolcribError) else cause
        words = (isinstance(found, str) and found) or what
        said = self.stderr[-_TAIL:].strip()
        details: dict[str, Any] = {"server": name}
        hint = "`toolcrib servers` shows how it is, and what it wrote."
        if isinstance(origin, ToolcribError):
            words, hint = origin.message, origin.hint or hint
            details |= {"cause": origin.code}
        if said:
            details["stderr"] = said
            words += f". It wrote: {said.splitlines()[-1][:300]}"
        return ToolUnavailable(
            f"the MCP server {name} is not available: {words}", hint=hint, details=details, retryable=True
        )

    # -- use -------------------------------------------------------------------------------------

    async def ready(self, limit_s: float | None = None) -> bool:
        """Start it where need be, and wait until it has told its tools or could not; whether it has."""
        self.start()

        async def settled() -> bool:
            while self.state == "starting":
                await self._changed.wait()
            return self.state == "ready"

        try:
            async with asyncio.timeout(limit_s):
                return await self._at_home(settled())
        except TimeoutError:
            return False

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> Outcome:
        """Call one of its tools, its progress and our cancellation passed on.

        Raises `ToolUnavailable` while it is not there, `ToolFailed` for what the tool itself says, and where
        the server ends before it has answered.
        """
        self.start()
        return await self._at_home(self._call(tool, arguments, ctx))

    async def _call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> Outcome:
        up = await self._available()

        async def progressed(done: float, total: float | None, message: str | None) -> None:
            ctx.progress(done, total, message or "")

        try:
            result = await up.client.call_tool(tool, dict(arguments), progress_callback=progressed)
        except Exception as error:
            raise self._call_failed(up, tool, _leaf(error)) from error
        return outcome_of(self.spec.name, tool, result)

    async def _available(self) -> _Up:
        while True:
            if self._up is not None and not self._up.link.closed.is_set() and not self._up.broken.is_set():
                return self._up
            hopeless = self.state == "waiting" and self.failures > QUICK
            if hopeless or self._task is None or self._task.done():
                raise _again(self.error or self._gone("it is not running"))
            await self._changed.wait()

    def _call_failed(self, up: _Up, tool: str, error: BaseException) -> BaseException:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

        if isinstance(error, (ToolcribError, TimedOut)):
            return error
        name = self.spec.name
        told = f"{name}: {tool}"
        terminated = isinstance(error, MCPError) and (
            error.code == CONNECTION_CLOSED
            or (error.code == INVALID_REQUEST and "terminated" in error.message.lower())
        )
        if (
            terminated
            or up.link.closed.is_set()
            or not isinstance(error, (MCPError, RuntimeError, ValueError))
        ):
            up.broken.set()
            details = {"server": name, "tool": tool}
            return ToolFailed(
                f"{told}: the server ended before it answered",
                hint="Whether the call took effect is not known. The server is started again.",
                details=details,
            )
        return ToolFailed(f"{told}: {_words(error)}", details={"server": name, "tool": tool})

    async def _at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the event loop that the connection belongs to."""
        loop = self._loop
        if loop is None or loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def _import_client() -> None:
    """Load the official client, in a thread: it takes a second, and nobody else shall wait for it."""
    try:
        await asyncio.to_thread(import_module, "mcp")
    except ImportError as error:
        raise ToolUnavailable(
            f"the official MCP client cannot be loaded: {error}",
            hint="Install it: pip install 'toolcrib[mcp]'",
        ) from None


def _again(error: ToolcribError) -> ToolcribError:
    """The same error once more: one that is raised twice would gather both tracebacks."""
    return ToolcribError.from_dict(error.as_dict())


def _leaf(error: BaseException) -> BaseException:
    """The first exception in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fatal(error: BaseException) -> bool:
    return isinstance(_leaf(error), (KeyboardInterrupt, SystemExit, GeneratorExit))


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
