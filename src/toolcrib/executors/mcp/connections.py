"""Connections to an MCP server, by the official client: the one that callers share, and those for one caller.

In 2025-11-25 and earlier a client announces its capabilities once, and the server asks it during a call. So a
caller of such a session gets a session of its own at the server, and so does each set of capabilities of a
caller of 2026-07-28 where the server is older: the server sees the capabilities of that caller.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.process.stdio import StdioLink
from toolcrib.executors.mcp.relay import CallRelay, Relays, passing_capabilities
from toolcrib.executors.mcp.remote import HttpLink
from toolcrib.spec import CallContext, CallSession

_MODERN = "2026-07-28"
_IDLE_S = 600.0
"""Seconds without a call after which a connection is closed that belongs to no session of a caller."""
_CLOSE_S = 5.0
_MOST_PROCESSES = 8
_MOST_SESSIONS = 256
"""Connections to one server at a time, local or remote. For one more the longest unused one is closed."""


Link = StdioLink | HttpLink
"""One connection to a server: a transport of the official client, entered once."""


class SessionLost(ToolUnavailable):
    """The server refused a call because it does not know the session any more."""


@dataclass
class Connected:
    """A connection that is ready."""

    client: Any
    link: Link
    relays: Relays
    stale: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the list of tools may have changed."""
    listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the list is read."""
    listed_at: float = 0.0
    """The time of the last list, by `time.monotonic`."""
    calls: int = 0
    """Calls that run."""

    @property
    def in_session(self) -> bool:
        """True in 2025-11-25 and earlier, where `initialize` has announced the capabilities."""
        return self.client.session.initialize_result is not None

    def lost_session(self, error: BaseException) -> bool:
        """Return True if the server refused a request because it does not know the session any more."""
        from mcp import MCPError

        # What the official client makes of HTTP 404 in a session.
        return (
            isinstance(self.link, HttpLink)
            and isinstance(error, MCPError)
            and str(error) == "Session terminated"
        )


@asynccontextmanager
async def connected(
    link: Link,
    relays: Relays,
    version: str,
    mode: Literal["auto", "legacy"] = "auto",
    announced: Mapping[str, Any] | None = None,
) -> AsyncIterator[Connected]:
    """Connect. `announced` are the capabilities of `initialize`; None for all that can be passed on."""
    import mcp_types as types
    from mcp import Client

    up: Connected | None = None
    changes = (
        types.ToolListChangedNotification,
        types.PromptListChangedNotification,
        types.ResourceListChangedNotification,
    )

    async def on_message(message: Any) -> None:
        inner = message.root if hasattr(message, "root") else message
        # Before the connection is ready nothing has been listed, so nothing can be stale.
        if up is not None and isinstance(inner, changes):
            up.stale.set()
        elif isinstance(inner, types.ElicitCompleteNotification):
            relays.completed(inner.params.elicitation_id)
        elif isinstance(message, ValueError) and isinstance(link, HttpLink):
            link.could_not_read()

    client = Client(
        passing_capabilities(link, announced),
        mode=mode,
        cache=None,
        message_handler=on_message,
        **relays.callbacks(),
        client_info=types.Implementation(name="toolcrib", version=version),
    )
    async with client:
        # The SDK's validator follows patterns and references without limit, so a server could stop this
        # process. The path of the call checks the result as that of any other tool.
        client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
        up = Connected(client, link, relays)
        if up.in_session and isinstance(link, HttpLink):
            await link.listening()
        yield up


async def _unchecked(name: str, result: Any) -> None:
    """Accept a result, whatever the output schema says."""


_Open = Callable[[Mapping[str, Any], Relays], AbstractAsyncContextManager[Connected]]


class CallerConnection:
    """One connection, made with the first call."""

    def __init__(self, made: Callable[[Relays], AbstractAsyncContextManager[Connected]]) -> None:
        self.relays = Relays()
        self.calls = 0
        """Calls that run."""
        self.used = 0.0
        """The time at which the last call ended."""
        self.replaced = False
        """True if no further call uses it."""
        self._ready: asyncio.Future[Connected] = asyncio.get_running_loop().create_future()
        # In an empty context: it outlives the call.
        self.task = asyncio.create_task(self._run(made), name="toolcrib mcp caller", context=Context())

    async def _run(self, made: Callable[[Relays], AbstractAsyncContextManager[Connected]]) -> None:
        try:
            async with made(self.relays) as up:
                self._ready.set_result(up)
                await up.link.closed.wait()
        except BaseException as error:
            if self._ready.done():
                if not isinstance(error, Exception):
                    raise
                return
            ended = isinstance(error, asyncio.CancelledError)
            self._ready.set_exception(ToolUnavailable("the connection was closed") if ended else error)
            # Marks it as seen: asyncio logs an exception that no call has waited for.
            self._ready.exception()

    @property
    def ended(self) -> bool:
        """True if it can be used no longer."""
        if self.task.done() or self.task.cancelling():
            return True
        if not self._ready.done():
            return False
        return self._ready.exception() is not None or self._ready.result().link.closed.is_set()

    async def ready(self, relay: CallRelay) -> Connected:
        """Wait for the connection. What the server asks meanwhile goes to the client of this session."""
        with self.relays.while_running(relay) if relay.session is not None else nullcontext():
            # Shielded: a call that is cancelled must not end the connection for the others that wait.
            return await asyncio.shield(self._ready)


class CallerConnections:
    """The connections of the callers of one server."""

    def __init__(self, open_: _Open, *, local: bool) -> None:
        self._open = open_
        self._local = local
        self._most = _MOST_PROCESSES if local else _MOST_SESSIONS
        self._made: dict[Hashable, CallerConnection] = {}
        self._refused = False
        """True for a server of 2026-07-28 that knows no sessions."""

    @asynccontextmanager
    async def connection(self, up: Connected, ctx: CallContext, relay: CallRelay) -> AsyncIterator[Connected]:
        """Yield the connection for a call, where `up` is the one that callers share."""
        from mcp import MCPError

        key = self._key(up, ctx, relay)
        if key is None:
            yield up
            return
        one = self._get(key, relay)
        one.calls += 1
        try:
            try:
                found = await one.ready(relay)
            except MCPError:
                # A server of 2026-07-28 that refuses a session still works by the shared connection.
                if up.in_session:
                    raise
                self._refused, found = True, up
            yield found
        except SessionLost:
            one.replaced = True
            raise
        finally:
            self._release(key, one)

    def _key(self, up: Connected, ctx: CallContext, relay: CallRelay) -> Hashable | None:
        """Return the key of the caller's connection; None for the one that callers share.

        A local server that has asked nothing so far keeps one process for all.
        """
        client = ctx.client
        if client is None or self._refused:
            return None
        if up.in_session:
            if self._local and not up.relays.asked:
                return None
        elif client.protocol == _MODERN or not relay.capabilities:
            return None
        if relay.session is not None:
            return relay.session
        return ctx.caller, json.dumps(relay.capabilities, sort_keys=True)

    def _get(self, key: Hashable, relay: CallRelay) -> CallerConnection:
        one = self._made.get(key)
        if one is not None and not (one.ended or one.replaced):
            return one
        self._make_room()
        one = self._made[key] = CallerConnection(partial(self._open, relay.capabilities))
        one.task.add_done_callback(partial(self._forget, key, one))
        if relay.session is not None:
            relay.session.on_end(partial(_close_from_any_thread, asyncio.get_running_loop(), one.task))
        return one

    def _release(self, key: Hashable, one: CallerConnection) -> None:
        loop = asyncio.get_running_loop()
        one.calls, one.used = one.calls - 1, loop.time()
        if one.replaced and not one.calls:
            one.task.cancel()
        if not isinstance(key, CallSession):
            loop.call_later(_IDLE_S, self._close_idle, one, one.used)

    def _close_idle(self, one: CallerConnection, used: float) -> None:
        # After a later call the time differs, and that call has a timer of its own.
        if not one.calls and one.used == used:
            one.task.cancel()

    def _make_room(self) -> None:
        if len(self._made) < self._most:
            return
        idle = [(one.used, key) for key, one in self._made.items() if not one.calls]
        if not idle:
            raise ToolUnavailable(
                f"{self._most} callers use this server already", hint="Call again later.", retryable=True
            )
        # Taken out at once: its task ends later, and the place is needed now.
        self._made.pop(min(idle, key=lambda pair: pair[0])[1]).task.cancel()

    def _forget(self, key: Hashable, one: CallerConnection, _: object) -> None:
        # The key may belong to a newer connection by now.
        if self._made.get(key) is one:
            del self._made[key]

    def renew(self, drain_s: float) -> None:
        """Close them, so that the next calls connect again; those with running calls at the latest then."""
        for one in self._made.values():
            one.replaced = True
            asyncio.get_running_loop().call_later(drain_s if one.calls else 0, one.task.cancel)
        self._made.clear()

    async def aclose(self) -> None:
        """Close all of them."""
        tasks = {one.task for one in self._made.values()}
        while tasks:
            for task in tasks:
                # More than once: the client's cancel scopes also cancel this task, and may swallow ours.
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=_CLOSE_S)


def _close_from_any_thread(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(RuntimeError):  # The loop has ended before.
        loop.call_soon_threadsafe(task.cancel)
