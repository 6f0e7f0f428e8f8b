"""The bus of events of running calls: to the listener of each call, and to subscribers of all calls.

No subscriber slows a call down, or makes it fail: a bounded number of events waits for each, the oldest are
dropped, and the next one says how many are missing. While nobody listens, events are not even made.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolcrib.spec import CallEvent, Result

if TYPE_CHECKING:
    from toolcrib.core.results import Mask
    from toolcrib.guard import Redactor

_log = logging.getLogger("toolcrib.core")

_MAX_EVENTS = 1_000
_MAX_TEXT = 1_048_576
"""Characters of events that wait for one subscriber."""

Kind = Literal["started", "progress", "chunk", "approval", "ended"]
_ENDS = ("started", "ended")
Filter = Callable[[CallEvent], bool]
Listener = Callable[[CallEvent], None]


class _Mailbox:
    """Events on their way from any thread to the event loop that made the mailbox."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._events: deque[CallEvent] = deque()
        self._text = 0
        self._missed = 0
        self._lock = threading.Lock()
        self._announced = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def put(self, event: CallEvent) -> None:
        """Add an event; never waits and never fails."""
        with self._lock:
            self._events.append(event)
            self._text += event.size
            while len(self._events) > self._size or (self._text > _MAX_TEXT and len(self._events) > 1):
                dropped = self._events.popleft()
                self._text -= dropped.size
                self._missed += 1 + dropped.missed
            # One wake-up is enough for all events that wait; a thread that reports in a loop must not fill
            # the queue of the event loop with them.
            known, self._announced = self._announced, True
        if threading.get_ident() == self._thread:
            self._arrived()
        elif not known:
            with suppress(RuntimeError):  # The loop is closed: nobody reads any more.
                self._loop.call_soon_threadsafe(self._arrived)

    def _take(self) -> CallEvent | None:
        """Return the oldest event; None if there is none."""
        with self._lock:
            if not self._events:
                return None
            event = self._events.popleft()
            self._text -= event.size
            missed, self._missed = self._missed, 0
        return replace(event, missed=event.missed + missed) if missed else event

    def _arrived(self) -> None:
        """Called on the event loop after events were added."""
        # Before the events are taken: one that is put in between announces itself again, so none stays
        # behind.
        with self._lock:
            self._announced = False


class Subscription(_Mailbox):
    """The events of one subscriber, read on the loop that subscribed. Iterate over it, and close it."""

    def __init__(self, size: int = _MAX_EVENTS, closed: Callable[[Subscription], None] | None = None) -> None:
        super().__init__(size)
        self._closed = False
        self._on_close = closed
        self._woken = asyncio.Event()

    def put(self, event: CallEvent) -> None:
        """Add an event, unless the subscription is closed."""
        if not self._closed:
            super().put(event)

    def _arrived(self) -> None:
        super()._arrived()
        self._woken.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> CallEvent:
        while (event := self._take()) is None:
            if self._closed:
                raise StopAsyncIteration
            # Events set it on this loop only, so none can come between this line and the next one unnoticed.
            self._woken.clear()
            await self._woken.wait()
        return event

    def close(self) -> None:
        """Unsubscribe. Events that came before can still be read."""
        self._closed = True
        self._woken.set()
        if self._on_close is not None:
            self._on_close(self)


class _Relay(_Mailbox):
    """Calls the listener of one call, on the loop that made the call; at once where that is possible."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(_MAX_EVENTS)
        self._listener = listener

    def put(self, event: CallEvent) -> None:
        """Call the listener, now or when the loop gets to it."""
        # Events of other threads that still wait come first, so this one must not overtake them.
        if threading.get_ident() == self._thread and not self._events:
            self._call(event)
        else:
            super().put(event)

    def _arrived(self) -> None:
        super()._arrived()
        while (event := self._take()) is not None:
            self._call(event)

    def _call(self, event: CallEvent) -> None:
        try:
            self._listener(event)
        except Exception:
            _log.exception("a listener of %s failed", event.tool)


class Chunks:
    """The text that one attempt has put out, kept back as far as it could be the beginning of a secret."""

    def __init__(self, redactor: Redactor, attempt: int) -> None:
        from toolcrib.guard import StreamMasker

        self.attempt = attempt
        self._masker = StreamMasker(redactor)
        self._lock = threading.Lock()

    def feed(self, text: str) -> str:
        """Add text, from any thread, and return what can be shown by now."""
        with self._lock:
            return self._masker.feed(text)

    def flush(self) -> str:
        """Return the rest."""
        with self._lock:
            return self._masker.flush()


class EventSource(Protocol):
    """The call that an event is about: a `Context`."""

    tool: str
    caller: str
    attempt: int
    on_event: Listener | None
    redactor: Redactor | None
    chunks: Chunks | None
    plain_ends: bool

    def identify(self) -> str:
        """Return the id of the call."""


class EventBus:
    """Publishes the events of calls. `mask` masks secrets in messages."""

    def __init__(self, mask: Mask | None = None) -> None:
        self._mask = mask
        self.subscriptions: tuple[tuple[Subscription, Filter], ...] = ()

    def subscribe(self, wanted: Filter, size: int = _MAX_EVENTS) -> Subscription:
        """Return the events of all calls that `wanted` lets through, without chunks."""
        subscription = Subscription(size, self._remove)
        # A new tuple, never changed in place: `publish` reads it from other threads without a lock.
        self.subscriptions = (*self.subscriptions, (subscription, wanted))
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        self.subscriptions = tuple(one for one in self.subscriptions if one[0] is not subscription)

    def begin(self, ctx: EventSource) -> None:
        """Publish that a call has arrived."""
        if ctx.on_event is not None:
            ctx.on_event = _Relay(ctx.on_event).put
        self.publish(ctx, "started")

    def chunk(self, ctx: EventSource, text: str) -> None:
        """Publish a part of the call's output. Secrets are masked, also one split across chunks."""
        if not isinstance(text, str):
            raise TypeError(f"a chunk is text, not {type(text).__name__}")
        if ctx.redactor is not None:
            # What the masker kept back from a failed attempt is not the beginning of this one's text.
            if ctx.chunks is None or ctx.chunks.attempt != ctx.attempt:
                ctx.chunks = Chunks(ctx.redactor, ctx.attempt)
            text = ctx.chunks.feed(text)
        if text:
            self.publish(ctx, "chunk", text=text)

    def end(self, ctx: EventSource, result: Result, *, cancelled: bool = False) -> None:
        """Publish the end of a call, after the rest of its output. Nothing follows."""
        if ctx.chunks is not None and (rest := ctx.chunks.flush()):
            self.publish(ctx, "chunk", text=rest)
        self.publish(
            ctx,
            "ended",
            status="cancelled" if cancelled else result.status,
            code=None if result.error is None else result.error.code,
            duration_ms=result.duration_ms,
        )
        ctx.on_event = None

    def publish(self, ctx: EventSource, kind: Kind, message: str = "", **fields: Any) -> None:
        """Publish an event of this call, from any thread, if anybody listens."""
        listener = None if ctx.plain_ends and kind in _ENDS else ctx.on_event
        if listener is None and not self.subscriptions:
            return
        if message and self._mask is not None:
            message = self._mask(message)
        if message and ctx.redactor is not None:
            message = ctx.redactor.redact_text(message)
        event = CallEvent(kind, ctx.identify(), ctx.tool, ctx.caller, ctx.attempt, message=message, **fields)
        if listener is not None:
            listener(event)
        if kind == "chunk":  # Part of a value, which only the caller may see.
            return
        for subscription, wanted in self.subscriptions:
            with suppress(Exception):  # A filter that fails lets nothing through.
                if wanted(event):
                    subscription.put(event)


async def stream_events(call: Callable[[Listener], Awaitable[Result]]) -> AsyncGenerator[CallEvent | Result]:
    """Make a call with a listener; yield its events and, at last, its result. Leaving early cancels it."""
    events = Subscription()
    task = asyncio.ensure_future(call(events.put))
    task.add_done_callback(lambda _: events.close())
    try:
        async for event in events:
            yield event
        yield await task
    finally:
        if not task.done():
            task.cancel()
            # Not `await task`: its CancelledError would take the place of what ended the stream.
            await asyncio.wait([task])
