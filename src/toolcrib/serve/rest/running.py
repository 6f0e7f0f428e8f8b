"""The calls of one server: those that run, and those that ended a short while ago."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from toolcrib.core.context import Context
from toolcrib.errors import (
    Cancelled,
    ConflictError,
    InvalidInput,
    InvalidOutput,
    RateLimited,
    StateUnavailable,
    TimedOut,
    ToolcribError,
    ToolFailed,
)
from toolcrib.project.durable.calls import AdoptedCall, ProjectCalls
from toolcrib.runs import CallStatus, DurableCall
from toolcrib.runs.filters import Changed, Filters
from toolcrib.runs.serving import whole
from toolcrib.schema import to_json_text
from toolcrib.serve.auth import Client
from toolcrib.spec import Call, CallEvent, Result
from toolcrib.spec.identifier import made_at

_log = logging.getLogger("toolcrib.serve.rest")

Path = Callable[[Call], Awaitable[Result]]
_MOST_RUNNING = 1_000
_MOST_FOLLOWED = 1_000
"""Calls of the store whose events are kept from their beginning; of further ones from when somebody asks."""
_MOST_ENDED = 1_000
_KEPT_S = 3_600.0
_KEPT_BYTES = 67_108_864
"""Bytes of the results and events of all calls that have ended."""
_MOST_EVENTS = 1_000
_MOST_TEXT = 262_144
"""Characters of events kept of one call."""
_WAIT_S = 60.0
"""Seconds that a client waits for a result unless it says otherwise."""
_SHORT_S = 0.05
_END_S = 2.0
"""Seconds that a cancelled call may take to end."""
_AGAIN_S = 0.5
"""Seconds until the store is asked again, while its database is away."""


class OpenCall:
    """One call: its events, and its result once it has ended."""

    def __init__(
        self, ctx: Context, client: Client, began_at: float, before: int = 0, path: Path | None = None
    ) -> None:
        self.ctx = ctx
        self.path = path
        """The path of a tool that is not stored, and whose call cannot be either; None for any other."""
        self.id = ctx.identify()
        self.client = client
        self.began_at = began_at
        self.ended_at: float | None = None
        self.approval: CallEvent | None = None
        """The event that it began to wait for a person."""
        self.result: Result | None = None
        self.body = b""
        """The result as JSON: `{"ok": true, "value": …}` or `{"ok": false, "error": …}`."""
        self.kept = False
        """True if it continues when its client leaves."""
        self.asked = (ctx.tool, ctx.arguments, ctx.dry_run)
        """Tool and arguments as the client sent them, and True for a dry run."""
        self.task: asyncio.Task[None] | None = None
        self.stops = False
        """True if the server stops, and cancels the call for that."""
        self.is_durable = False
        """True if it is in the store, and not only in this server."""
        self.is_followed = False
        """True if this server waits for its end in the store."""
        self.adopted: AdoptedCall | None = None
        """Keeps a call that takes long in the store."""
        self._past: deque[CallEvent] = deque()
        self.before = before
        """The number before its first event here: other processes may have counted events of it."""
        self._first = before + 1
        self._text = 0
        self._next: asyncio.Future[None] | None = None

    @property
    def _events(self) -> deque[CallEvent]:
        """The events that are kept. That a call has started is noted when somebody looks: most end unseen."""
        if self.ctx.plain_ends and not self._past and self._first == 1:
            self._past.append(CallEvent("started", self.id, self.ctx.tool, self.ctx.caller))
        return self._past

    @property
    def status(self) -> CallStatus:
        """The state of the call."""
        if self.result is None:
            waits = self.approval is not None and self.ctx.started == 0
            return "awaiting_approval" if waits else "running"
        if isinstance(self.result.error, Cancelled):
            return "cancelled"
        return "ok" if self.result.ok else "error"

    @property
    def has_begun(self) -> bool:
        """True once its tool runs, it waits for a person, or it has ended: before that it may be refused."""
        ran = self.is_durable or self.ctx.started > 0
        return ran or self.result is not None or self.approval is not None

    @property
    def refusal(self) -> ToolcribError | None:
        """The reason why nothing of the tool ran; None if it ran, or has not ended."""
        error = None if self.result is None else self.result.error
        # An answer 200 has the result of a tool that ran, its error too. Only a call of which nothing ran is
        # answered with the HTTP status of its error.
        if error is None or isinstance(error, (ToolFailed, TimedOut, Cancelled)):
            return None
        ran = "enforcement" in error.details or error.details.get("started")  # In a sandbox.
        # A plain ToolcribError is a fault of unknown cause: the tool may have run.
        if type(error) is ToolcribError or ran:
            return None
        by_tool = isinstance(error, InvalidInput) and error.details.get("raisedBy") == "tool"
        return None if by_tool else error

    @property
    def last(self) -> int:
        """The number of its latest event; that of the result follows."""
        return self._first + len(self._events) - 1

    @property
    def size(self) -> int:
        """Bytes that are kept of it, about."""
        return len(self.body) + self._text + 500 * len(self._past)

    def add(self, event: CallEvent) -> None:
        """Record an event. The oldest are dropped when there are too many."""
        # The event `result` is the last one: `end` has it.
        if event.kind == "ended":
            return
        if event.kind == "approval":
            self.approval = event
        elif event.kind == "started":
            self.approval = None
            if self._events:  # Another attempt of a call of the store.
                return
        self._events.append(event)
        self._text += event.size
        while len(self._events) > _MOST_EVENTS or (self._text > _MOST_TEXT and len(self._events) > 1):
            self._text -= self._events.popleft().size
            self._first += 1
        self.wake()

    def end(self, result: Result, at: float) -> None:
        """Record the end."""
        try:
            self.body = to_json_text(result.answer())
        except (TypeError, ValueError) as broken:
            error = InvalidOutput(f"the tool's output cannot be written as JSON: {str(broken)[:200]}")
            result = Result("error", error=error, call_id=result.call_id)
            self.body = to_json_text(result.answer())
        self.result = result
        self.ended_at = at
        self.wake()

    def after(self, number: int) -> Iterator[tuple[int, CallEvent, int]]:
        """Yield the events after this one: number, event, and how many before it are missing."""
        skip = max(0, number + 1 - self._first)
        missed = max(0, self._first - number - 1)
        for place, event in enumerate(list(self._events)[skip:], self._first + skip):
            yield place, event, event.missed + missed
            missed = 0

    def change(self) -> asyncio.Future[None]:
        """Return the future, common to all who wait, that ends with the next event, or with the call."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def wake(self) -> None:
        """Wake those who wait for a change."""
        change, self._next = self._next, None
        if change is not None:
            change.set_result(None)


class ServerCalls:
    """The calls that this server has made. `invoke` makes a call by the one path.

    A call whose client does not wait for the end is in the store of durable calls, `durable`.
    """

    def __init__(
        self,
        invoke: Path,
        durable: ProjectCalls,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._invoke = invoke
        self._clock = clock
        self._durable = durable
        durable.on_event = self._add
        self._running: dict[str, OpenCall] = {}
        """The calls that run, also those of the store that are followed."""
        self._here: Counter[str] = Counter()
        """Caller to the number of the others: those that were begun here."""
        self._ended: dict[str, OpenCall] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._stops = False

    def start(self, ctx: Context, client: Client, path: Path | None = None) -> OpenCall:
        """Make a call. Raises RateLimited if its caller has too many: nobody can keep all others out.

        `path` is that of a tool that is not stored.
        """
        if self._here[client.caller] >= _MOST_RUNNING:
            raise RateLimited(
                f"{_MOST_RUNNING} of your calls are running here already",
                hint="Call again later.",
                details={"retryAfterS": 1},
            )
        call = OpenCall(ctx, client, _begun(ctx), path=path)
        ctx.on_event, ctx.on_run, ctx.plain_ends = call.add, call.wake, True
        ctx.may_be_stored = path is None
        self._running[call.id] = call
        self._here[client.caller] += 1
        call.task = asyncio.get_running_loop().create_task(self._run(call))
        return call

    async def submit(self, ctx: Context, client: Client) -> OpenCall:
        """Make a call that continues whatever happens to this server. Raises as `start` and `submit` do."""
        call = OpenCall(ctx, client, _begun(ctx))
        stored = await self._store(call)
        # By its idempotency key it may be a call that this server follows already.
        if (followed := self._running.get(stored)) is not None:
            return followed
        if len(self._running) - self._here.total() >= _MOST_FOLLOWED:
            call.id = stored
            return call
        return self._follow(call, stored)

    async def _store(self, call: OpenCall) -> str:
        """Store a call and return its id there: that of an earlier one with the same idempotency key."""
        approval = None if call.approval is None else call.approval.approval
        call.is_durable = True
        self._running[call.id] = call  # Its events may come before the next line has ended.
        try:
            return await run_in_threadpool(partial(self._durable.store, call.ctx, approval=approval))
        finally:
            del self._running[call.id]

    def _follow(self, call: OpenCall, stored: str) -> OpenCall:
        call.id, call.kept, call.is_durable, call.is_followed = stored, True, True, True
        self._running[stored] = call
        call.task = asyncio.get_running_loop().create_task(self._wait_for(call))
        return call

    async def _wait_for(self, call: OpenCall) -> None:
        """Wait until a call of the store has ended, in whatever process."""
        while call.result is None and not call.stops:
            try:
                call.end((await self._followed(call)).outcome(), self._clock())
            except StateUnavailable:
                # Else it would stay here as a call that runs, whatever becomes of it in the store.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(_AGAIN_S)
            except ToolcribError as error:
                call.end(Result("error", error=error, call_id=call.id), self._clock())
        self._running.pop(call.id, None)
        self._keep(call)

    async def _followed(self, call: OpenCall) -> DurableCall:
        try:
            return await self._durable.wait(call.id)
        except asyncio.CancelledError:
            # The client has cancelled it. When the server stops, a stored call is left to the next worker.
            if not call.stops:
                with suppress(ConflictError):  # It has just ended.
                    await run_in_threadpool(self._durable.cancel, call.id)
            return await run_in_threadpool(self._durable.find, call.id)

    async def keep(self, call: OpenCall) -> None:
        """Put a call into the store whose client will not wait for its end."""
        call.kept = True
        while call.status == "awaiting_approval" and not call.is_followed:
            await call.change()  # It is being stored.
        if call.is_durable or call.result is not None or call.task is None or call.path is not None:
            return
        # A tool that runs is not begun twice: the call stays here, and the store keeps a lease for it.
        call.adopted = call.adopted or self._durable.adopt(call.ctx, call.task)
        call.is_durable = await call.adopted.is_stored()

    def _add(self, event: CallEvent) -> None:
        call = self._running.get(event.call_id)
        if call is not None and call.is_durable:
            call.add(event)

    async def look(self, id_: str, client: Client, *, follow: bool = True) -> OpenCall:
        """Return a call, also one of the store, which this server follows then. Raises NotFoundError.

        Without `follow` a call of the store is returned as it is now.
        """
        kept = self.find(id_, client)
        if kept is not None and (not kept.is_durable or kept.result is None):
            return kept
        call = opened(await run_in_threadpool(self._durable.find, id_, client.seen_by), client)
        if kept is not None and kept.body == call.body:
            return kept
        self._drop(id_)  # It was retried, here or by another process.
        if call.result is None and follow:
            return self._running.get(id_) or self._follow(call, id_)
        return call

    async def page(self, client: Client, filters: Filters, limit: int, before: str | None) -> list[OpenCall]:
        """Return calls of the store that match, the newest first."""
        found = await run_in_threadpool(partial(self._durable.page, limit=limit, before=before, **filters))
        return [opened(stored, client) for stored in found]

    def same(self, ctx: Context) -> OpenCall | None:
        """Return the running call of which this one is a repetition, by its idempotency key; None if none."""
        key = ctx.idempotency_key
        if key is None:
            return None
        for call in self._running.values():
            other = call.ctx
            # A key counts for its caller only: nobody gets the result of another by guessing one.
            if (other.idempotency_key, other.caller) == (key, ctx.caller):
                return call if call.asked == (ctx.tool, ctx.arguments, ctx.dry_run) else None
        return None

    async def _run(self, call: OpenCall) -> None:
        try:
            result = await self._result(call)
        finally:
            self._here[call.client.caller] -= 1
        call.ctx.on_run = None  # It leads back to the call, and would keep both until the next collection.
        if result.status == "pending":
            await self._leave_to_store(call)
            return
        call.end(result, self._clock())
        del self._running[call.id]
        self._keep(call)

    async def _leave_to_store(self, call: OpenCall) -> None:
        """Store a call that waits for a person: a worker makes it once that person has decided."""
        is_cancelled = False
        try:
            if not call.is_durable:
                call.id = await whole(self._store(call))
        except asyncio.CancelledError:
            is_cancelled = not call.stops
        except ToolcribError as error:
            call.is_durable = False
            call.end(Result("error", error=error, call_id=call.id), self._clock())
        call.kept = True
        self._running[call.id] = call
        if is_cancelled:
            with suppress(ToolcribError):  # It has just ended.
                await run_in_threadpool(self._durable.cancel, call.id)
        call.is_followed = True
        call.wake()
        await self._wait_for(call)

    async def _result(self, call: OpenCall) -> Result:
        """Make a call, and return its result."""
        try:
            result = await (call.path or self._invoke)(call.ctx)
        except asyncio.CancelledError:
            why = "the server stopped before the call had ended" if call.stops else "the call was cancelled"
            result = Result("error", error=Cancelled(why), call_id=call.id)
        except Exception as error:  # The path promises not to raise.
            _log.exception("the call path raised")
            result = Result("error", error=ToolcribError(f"the call failed: {type(error).__name__}"))
        if call.adopted is not None:
            await call.adopted.end(result)
        return result

    def _keep(self, call: OpenCall) -> None:
        self._ended[call.id] = call
        self._sizes[call.id] = size = call.size
        self._bytes += size
        while len(self._ended) > _MOST_ENDED or (self._bytes > _KEPT_BYTES and len(self._ended) > 1):
            self._drop(next(iter(self._ended)))

    def _drop(self, id_: str) -> None:
        if self._ended.pop(id_, None) is not None:
            self._bytes -= self._sizes.pop(id_)

    def _drop_old(self) -> None:
        """Forget calls that ended more than an hour ago."""
        oldest = self._clock() - _KEPT_S
        while self._ended and (next(iter(self._ended.values())).ended_at or 0.0) < oldest:
            self._drop(next(iter(self._ended)))

    async def settle(self, call: OpenCall, receive: Receive, wait_s: float | None = None) -> None:
        """Wait until the call has ended, or for this many seconds.

        A client that did not say how long (None) does not wait for a person. If it leaves, nobody can get the
        result, so the call is cancelled; one with an idempotency key continues. Raises ClientDisconnect.
        """
        await asyncio.sleep(0)  # Most calls end in their first step, and so do most refusals.

        def is_over() -> bool:
            if call.result is not None or (self._stops and call.is_durable):
                return True
            return (wait_s is None or self._stops) and call.status == "awaiting_approval"

        if call.result is None:
            await self._wait(call, receive, _WAIT_S if wait_s is None else wait_s, is_over)

    async def begin(self, call: OpenCall, receive: Receive) -> None:
        """Wait until the call has begun, so it is known if it was refused. Raises ClientDisconnect."""
        call.kept = True
        await asyncio.sleep(0)
        await self._wait(call, receive, _WAIT_S, lambda: call.has_begun)

    async def _wait(
        self, call: OpenCall, receive: Receive, seconds: float, is_over: Callable[[], bool]
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        gone: asyncio.Future[Any] | None = None
        try:
            while not is_over():
                left = end - loop.time()
                if left <= 0:
                    return
                change: asyncio.Future[Any] = call.change()
                # Most of the others end within a moment. After that, look after the client too.
                awaited, limit = ({change}, min(left, _SHORT_S)) if gone is None else ({change, gone}, left)
                await asyncio.wait(awaited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if gone is None:
                    gone = asyncio.ensure_future(_left(receive))
                elif gone.done():
                    # With a key the client can ask again, and gets this result.
                    if not call.kept and call.ctx.idempotency_key is None:
                        await self.cancel(call)
                    raise ClientDisconnect
        finally:
            if gone is not None:
                gone.cancel()

    def find(self, id_: str, client: Client) -> OpenCall | None:
        """Return a call of this server that the client may see: its own, or any for an administrator."""
        self._drop_old()
        call = self._running.get(id_) or self._ended.get(id_)
        return call if call is not None and _may_see(client, call) else None

    def list(self, client: Client, filters: Filters | None = None) -> Sequence[OpenCall]:
        """Return the calls that this client may see and that match; `page` has those of the store."""
        self._drop_old()
        ended = [call for call in self._ended.values() if not call.is_durable]
        found = [*ended, *self._running.values()]
        return [one for one in found if _may_see(client, one) and _matches(one, filters or {})]

    def mark(self) -> tuple[object, ...]:
        """Return values of which one differs once a call of this server has begun or ended."""
        return next(reversed(self._running), None), len(self._running), next(reversed(self._ended), None)

    async def cancel_all(self, client: Client, filters: Filters, at_most: int | None) -> tuple[int, Changed]:
        """Cancel the matching calls unless there are more than `at_most`; return their number too."""
        here = [one for one in self.list(client, filters) if one.result is None and not one.is_durable]
        count = len(here) + await run_in_threadpool(partial(self._durable.count, "cancel", **filters))
        if not may_change(count, at_most):
            return count, Changed([], {})
        await asyncio.gather(*map(self.cancel, here))
        changed = await run_in_threadpool(partial(self._durable.cancel_all, **filters))
        return count, Changed([*(one.id for one in here), *changed.done], {})

    async def cancel(self, call: OpenCall) -> None:
        """Cancel a call and wait until it has ended, for two seconds at most."""
        await asyncio.sleep(0)  # A task that is cancelled before its first step would never end its call.
        if call.task is not None and not call.task.done():
            call.kept, call.ctx.stored = True, False  # The call ends, and not only its run here.
            call.task.cancel()
            await asyncio.wait({call.task}, timeout=_END_S)

    async def history(self, call: OpenCall) -> dict[str, Any] | None:
        """Return the attempts and the changes of a call of the store; None for any other."""
        return await run_in_threadpool(self._durable.stored.history, call.id) if call.is_durable else None

    async def retry(self, call: OpenCall, client: Client) -> OpenCall:
        """Run a call of the store again, and follow it. Raises as `ProjectCalls.retry` does."""
        if not call.is_durable:
            raise ConflictError(
                f"call {call.id} is not stored, as its client waited for it", hint="Make the call again."
            )
        await run_in_threadpool(partial(self._durable.retry, call.id, identity=client.identity))
        return await self.look(call.id, client)

    def stop(self) -> None:
        """Let no client wait for a person, or for a call of the store: the server stops."""
        self._stops = True
        for call in self._running.values():
            call.wake()

    async def close(self) -> None:
        """Cancel all calls that still run."""
        await asyncio.sleep(0)  # As in `cancel`.
        tasks = []
        for call in self._running.values():
            call.stops = True
            if call.task is not None:  # Else it is being stored.
                call.task.cancel()
                tasks.append(call.task)
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S)


def opened(stored: DurableCall, client: Client) -> OpenCall:
    """Return a call of the store as one of this server."""
    ctx = Context(stored.tool, stored.arguments, stored.caller, call_id=stored.id)
    # In microseconds, as nobody counts events faster: so a client that comes back with a number of another
    # process gets all that it has not seen.
    elapsed = (stored.ended_at or time.time()) - stored.submitted_at
    call = OpenCall(ctx, client, stored.submitted_at, before=1 + max(0, int(elapsed * 1e6)))
    call.is_durable = True
    if stored.state == "waiting":
        call.approval = CallEvent("approval", stored.id, stored.tool, stored.caller, approval=stored.approval)
    if stored.ended:
        call.end(stored.outcome(), stored.ended_at or 0.0)
    return call


async def _left(receive: Receive) -> None:
    """Wait until the client is gone. Its request was read to the end."""
    while (await receive())["type"] != "http.disconnect":
        pass


def may_change(count: int, at_most: int | None) -> bool:
    """Return True if so many may be changed, False if they are only counted. ConflictError for too many."""
    if at_most is not None and count > at_most:
        raise ConflictError(f"{count:,} match by now, and not at most {at_most:,}: nothing was changed")
    return at_most is not None


def _matches(call: OpenCall, filters: Filters) -> bool:
    # A call of an agent is in the store.
    since, until = filters.get("since") or 0.0, filters.get("until") or inf
    asked = (filters.get("tool"), filters.get("session_id"), filters.get("caller"), filters.get("agent"))
    has = (call.ctx.tool, call.ctx.session_id, call.ctx.caller, None)
    fits = all(one in (None, own) for one, own in zip(asked, has, strict=True))
    return fits and since <= call.began_at < until


def _may_see(client: Client, call: OpenCall) -> bool:
    return client.seen_by in (None, call.client.caller)


def _begun(ctx: Context) -> float:
    """Return the time at which a call was made; it is that of its id, also once it is stored."""
    return made_at(ctx.identify()) or time.time()
