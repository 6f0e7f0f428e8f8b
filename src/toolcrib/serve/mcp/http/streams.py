"""The answer to one HTTP request: JSON if nothing comes before it, else server-sent events.

In a session each event has an id, and the last ones are kept: a client whose connection broke reads on from
the event that it saw last (MCP 2025-11-25, Streamable HTTP, resumability).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress

_HIGH = 1 << 20
"""Unread bytes above which progress and messages are left out."""
_KEPT = 64 << 10
"""Bytes of events that were sent already and are kept for a client that comes back."""
_SHORT = 4 << 10
_QUIET_S = 15.0
"""Seconds without an event after which a comment shows that the connection still works."""
_EVENT = 128
"""Bytes that an event takes besides its data."""
MOST_HELD = 64 << 20
_RETRY_MS = 1_000
"""Milliseconds that a client waits before it reads on."""


class HeldEvents:
    """The memory that the events of all streams of a server take, at most `MOST_HELD` or a little more.

    Above that, the largest of the streams that ended and that nobody reads lose their events, so that a
    client with many cannot push out a short answer of another one.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.ended: dict[EventStream, None] = {}

    @property
    def is_full(self) -> bool:
        """Return True if no further progress may wait for a client."""
        return self.bytes > MOST_HELD

    def add(self, size: int) -> None:
        """Count bytes of an event that is kept from now on; negative for one that is not any longer."""
        self.bytes += size
        while size > 0 and self.is_full and self.ended:
            max(self.ended, key=lambda stream: stream.size).forget()


class EventStream:
    """Everything that goes back to the client for one request, in its order. One reader at a time."""

    answer: bytes | None = None
    """The answer, if nothing was sent before it."""
    error: int | None = None
    """The code of that answer, if it is an error."""
    done = False
    """True once nothing more will come."""
    is_read = False
    """True while a client reads it as events."""
    size = 0
    """Bytes of its events in memory."""
    primes = True
    """True if a reader gets an event without data first, so that its client knows an id at once."""
    _is_final = False
    _begun = False
    _last = 0
    _read = 0
    _unread = 0
    """Bytes that no client has read."""
    _kept = 0
    """Bytes that one has read."""
    _reader: object = None

    def __init__(self, name: str = "", held: HeldEvents | None = None) -> None:
        self.name = name
        """Names the stream in the ids of its events; "" for a stream that is not kept."""
        self._held = held or HeldEvents()
        self._events: deque[tuple[int, bytes]] = deque()
        self._changed = asyncio.Event()

    @property
    def is_plain(self) -> bool:
        """True if the answer is there, and nothing was sent before it."""
        return self.done and not self._begun

    def congested(self) -> bool:
        """Return True if the client reads too slowly."""
        return self._unread > _HIGH or (self._unread > 0 and self._held.is_full)

    def send(self, data: bytes) -> None:
        """Add a message."""
        self._begun = True
        self._last += 1
        # A short text of orjson has a buffer of 4 KiB: a copy has not, and may be kept for long.
        self._events.append((self._last, b"%b" % data if len(data) < _SHORT else data))
        self._unread += len(data)
        self._count(len(data) + _EVENT)
        self._changed.set()

    def _count(self, size: int) -> None:
        self.size += size
        self._held.add(size)

    def discard(self) -> None:
        """End the stream, and drop its events after its present reader."""
        self._is_final = True
        self.close()

    def forget(self) -> None:
        """Drop all events: nobody can read them any longer."""
        self._held.ended.pop(self, None)
        self._events.clear()
        self._unread = self._kept = 0
        self._count(-self.size)

    def reply(self, data: bytes | None, error: int | None = None, /) -> None:
        """Add the answer, which ends the stream."""
        if data is not None and self._begun:
            self.send(data)
        elif data is not None:
            self.answer, self.error = data, error
        self.close()

    def close(self) -> None:
        """End the stream."""
        self.done = True
        self._changed.set()
        self._settle_unread()

    def _settle_unread(self) -> None:
        """Drop the events that nobody reads any more: at once, or when memory is short."""
        if not self.done or self.is_read:
            return
        if self._is_final:
            self.forget()
        elif self._events and self.name:  # One without a name is about to be read.
            self._held.ended[self] = None

    async def settle(self, seconds: float) -> None:
        """Wait until there is something to send, at most this many seconds."""
        if not self.done and not self._begun:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()

    async def events(self, after: int | None = None) -> AsyncGenerator[bytes]:
        """Give the events after this number as they come. A later reader ends this one.

        None begins with the first event, and before it with one without data if the stream `primes`.
        """
        # The newest reader gets the stream: after a broken connection the old one may still seem alive.
        me = self._reader = object()
        self._begun = self.is_read = True
        self._held.ended.pop(self, None)
        self._changed.set()
        if after is None and self.name and self.primes:
            yield b"id: %s-0\nretry: %d\ndata: \n\n" % (self.name.encode(), _RETRY_MS)
        position = after or 0
        try:
            while self._reader is me:
                # Cleared before the events are read, so one that comes meanwhile is not missed. The copy is
                # needed because `_note_read` removes events.
                self._changed.clear()
                for number, data in tuple(self._events):
                    if number > position:
                        position = number
                        yield self._event(number, data)
                        self._note_read(number)
                if self.done and position >= self._last:
                    return
                if position >= self._last and self._reader is me:
                    try:
                        async with asyncio.timeout(_QUIET_S):
                            await self._changed.wait()
                    except TimeoutError:
                        yield b":\n\n"
        finally:
            if self._reader is me:
                self.is_read = False
                self._settle_unread()

    def _event(self, number: int, data: bytes) -> bytes:
        if self.name:
            return b"id: %s-%d\nevent: message\ndata: %s\n\n" % (self.name.encode(), number, data)
        return b"event: message\ndata: %s\n\n" % data

    def _note_read(self, number: int) -> None:
        """Note that an event was read, and forget what is not kept any longer."""
        for at, data in self._events if number > self._read else ():
            if self._read < at <= number:
                self._unread -= len(data)
                self._kept += len(data)
        self._read = max(number, self._read)
        limit = _KEPT if self.name else 0
        while self._events and self._kept > limit and self._events[0][0] <= self._read:
            size = len(self._events.popleft()[1])
            self._kept -= size
            self._count(-size - _EVENT)

    def holds(self, after: int) -> bool:
        """Return True if every event after this number is still there."""
        first = self._events[0][0] if self._events else self._last + 1
        return first - 1 <= after <= self._last
