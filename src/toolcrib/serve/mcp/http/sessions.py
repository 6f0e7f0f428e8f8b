"""Sessions of MCP clients over HTTP: made by `initialize`, bounded, and ended by DELETE or by time."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable

from toolcrib.serve.auth import Client
from toolcrib.serve.mcp.connection import Connection
from toolcrib.serve.mcp.http.streams import EventStream, HeldEvents
from toolcrib.serve.mcp.wire import busy

IDLE_S = 3600.0
"""Seconds after which a session ends that made no request and reads nothing."""
_MOST = 2_000
_MOST_STREAMS = 32
"""Ended streams that are kept for a client that comes back."""
_SWEEP_S = 60.0


class McpSession:
    """One session: its client, its connection, and its streams of events."""

    def __init__(
        self, client: Client, make: Callable[[EventStream], Connection], held: HeldEvents | None = None
    ) -> None:
        # MCP, Session Management: the id should be unique and cryptographically secure; it has 256 bits.
        self.id = secrets.token_urlsafe(32)
        self.client = client
        """The client that began it. To any other it does not exist."""
        self._held = held or HeldEvents()
        self.own = EventStream("0", self._held)
        """The stream of GET: everything that belongs to no request."""
        self.connection = make(self.own)
        self.used = 0.0
        self._streams: dict[str, EventStream] = {"0": self.own}
        self._begun = 0

    def stream(self) -> EventStream:
        """Return a new stream for one request."""
        self._begun += 1
        made = EventStream(str(self._begun), self._held)
        made.primes = self.primes
        self._streams[made.name] = made
        return made

    @property
    def primes(self) -> bool:
        """True if its client knows events without data, which are new in 2025-11-25."""
        return (self.connection.version or "") >= "2025-11-25"

    def settled(self, stream: EventStream) -> None:
        """Note that a stream was answered, or its client is gone. Those that can be read again are kept."""
        if stream.is_plain:
            self._streams.pop(stream.name, None)
        ended = [name for name, one in self._streams.items() if one.done and not one.is_read]
        for name in ended[:-_MOST_STREAMS]:
            self._streams.pop(name).forget()

    def find(self, event: str) -> tuple[EventStream, int] | None:
        """Return the stream of an event and the event's number; None if it cannot be read on from there."""
        name, _, number = event.rpartition("-")
        stream = self._streams.get(name)
        # The client writes this text, and `int` raises for more than 4,300 digits.
        if stream is None or not (number.isascii() and number.isdecimal() and len(number) < 16):
            return None
        return (stream, int(number)) if stream.holds(int(number)) else None

    @property
    def is_idle(self) -> bool:
        """True if no call runs and no stream is read."""
        return not self.connection.running and not any(one.is_read for one in self._streams.values())

    async def end(self, reason: str) -> None:
        """Cancel the calls, which are answered with `reason`, and close the streams."""
        await self.connection.drain(0, reason)
        for stream in self._streams.values():
            stream.discard()


class McpSessions:
    """All sessions of one server."""

    def __init__(self) -> None:
        self._open: dict[str, McpSession] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.held = HeldEvents()

    def add(self, session: McpSession) -> None:
        """Keep a session. With too many, the client that has most loses the one it used longest ago.

        Raises JsonRpcError if that is this client, and all its sessions are in use.
        """
        if len(self._open) >= _MOST:
            self._evict(session.client.caller)
        session.used = self._now()
        self._open[session.id] = session
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def find(self, session_id: str, client: Client) -> McpSession | None:
        """Return a client's own session, which then lasts longer."""
        session = self._open.get(session_id)
        if session is None or session.client != client:
            return None
        session.used = self._now()
        return session

    async def remove(self, session: McpSession) -> None:
        """End a session."""
        self._open.pop(session.id, None)
        await session.end("the session was ended")

    async def close(self) -> None:
        """End all sessions."""
        if self._timer is not None:
            self._timer.cancel()
        sessions, self._open = list(self._open.values()), {}
        await asyncio.gather(
            *(session.end("the server is shutting down") for session in sessions), *self._ending
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _evict(self, newcomer: str) -> None:
        # The client with most sessions pays, so no client can push out the sessions of others.
        most = Counter(session.client.caller for session in self._open.values()).most_common(1)[0][0]
        theirs = [one for one in self._open.values() if one.client.caller == most]
        idle = [one for one in theirs if one.is_idle]
        # Nor can one keep all others out, with sessions that are never idle.
        if not idle and most == newcomer:
            raise busy("too many sessions are open", "End one with DELETE, or begin one later.")
        self._end(min(idle or theirs, key=lambda session: session.used))

    def _end(self, session: McpSession) -> None:
        task = asyncio.get_running_loop().create_task(self.remove(session))
        # At once, so that its place is free: the task needs some turns of the event loop.
        del self._open[session.id]
        # The event loop has only a weak reference to a task.
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _sweep(self) -> None:
        """End the sessions that were not used for long."""
        oldest = self._now() - IDLE_S
        for session in [one for one in self._open.values() if one.used < oldest and one.is_idle]:
            self._end(session)
        again = asyncio.get_running_loop().call_later
        self._timer = again(_SWEEP_S, self._sweep) if self._open else None
