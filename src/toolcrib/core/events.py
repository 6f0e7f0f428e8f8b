"""The feed of events of running calls. It costs nothing while nobody has subscribed."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable

from toolcrib.spec import Call, CallEvent, Result
from toolcrib.spec.identifier import new_id

__all__ = ["CallFeed", "Subscription"]

Filter = Callable[[CallEvent], bool]


class Subscription:
    """The events of one subscriber, from the loop that subscribed. Iterate over it, and close it."""

    def __init__(self, feed: CallFeed, wanted: Filter, size: int) -> None:
        self.lost = 0
        self._feed = feed
        self._wanted = wanted
        self._events: deque[CallEvent] = deque(maxlen=size)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._woken = asyncio.Event()
        self._closed = False

    def publish(self, event: CallEvent) -> None:
        """Add an event, from any thread."""
        if threading.get_ident() == self._thread:
            self._add(event)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._add, event)

    def _add(self, event: CallEvent) -> None:
        if self._closed or not self._wanted(event):
            return
        self.lost += len(self._events) == self._events.maxlen
        self._events.append(event)
        self._woken.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> CallEvent:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._woken.clear()
            await self._woken.wait()
        return self._events.popleft()

    def close(self) -> None:
        """Unsubscribe. Events that came before can still be read."""
        self._closed = True
        self._woken.set()
        self._feed.remove(self)


class CallFeed:
    """Publishes the events of calls. `changed` is called when subscribers come or go."""

    def __init__(self, invoke: Callable[[Call], Awaitable[Result]], changed: Callable[[], None]) -> None:
        self._invoke = invoke
        self._changed = changed
        self._subscriptions: tuple[Subscription, ...] = ()

    @property
    def active(self) -> bool:
        """True while somebody has subscribed."""
        return bool(self._subscriptions)

    def subscribe(self, wanted: Filter, size: int) -> Subscription:
        """Return the events that `wanted` lets through. At most `size` of them wait to be read."""
        subscription = Subscription(self, wanted, size)
        self._subscriptions = (*self._subscriptions, subscription)
        self._changed()
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)
        self._changed()

    async def invoke(self, call: Call) -> Result:
        """Make a call, and publish its events."""
        call.call_id = call_id = call.call_id or new_id()
        tool, caller, listener = call.tool, call.caller, call.on_progress

        def progress(done: float, total: float | None, message: str) -> None:
            self._publish(CallEvent("progress", call_id, tool, caller, done, total, message))
            if listener is not None:
                listener(done, total, message)

        call.on_progress = progress
        self._publish(CallEvent("started", call_id, tool, caller))
        try:
            result = await self._invoke(call)
        except BaseException:
            self._publish(CallEvent("ended", call_id, tool, caller, status="cancelled"))
            raise
        finally:
            call.on_progress = listener
        code = None if result.error is None else result.error.code
        took = result.duration_ms
        self._publish(
            CallEvent("ended", call_id, tool, caller, status=result.status, code=code, duration_ms=took)
        )
        return result

    def _publish(self, event: CallEvent) -> None:
        for subscription in self._subscriptions:
            subscription.publish(event)
