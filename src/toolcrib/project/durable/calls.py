"""The durable calls of a project: submitted after the checks of every call, and served in this process.

One that runs already is stored once its caller does not wait for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from toolcrib.core.bound import Bound
from toolcrib.core.context import Context, current_trace
from toolcrib.core.decision import Cancel
from toolcrib.core.toolset import Toolset
from toolcrib.errors import Cancelled, ToolcribError
from toolcrib.guard.idempotency import require_key
from toolcrib.runs import (
    ClaimedCall,
    DurableCall,
    DurableCalls,
    KnownTools,
    Offer,
    PgQueuerDispatcher,
    Worker,
    entry_of,
    live_workers,
    worker_name,
)
from toolcrib.runs.ending import Ending, Lost, context_of, ending_of, record_ending
from toolcrib.runs.filters import Change, Changed, Conditions, Filters, changeable
from toolcrib.runs.questions import facts_of
from toolcrib.runs.serving import whole
from toolcrib.runs.worker import Attempt
from toolcrib.spec import Call, Caller, CallEvent, Result
from toolcrib.state import Transaction
from toolcrib.state.drivers.joined import join, join_async

if TYPE_CHECKING:
    from toolcrib.project.durable.advance import RunAdvance
    from toolcrib.runs.sessions import ClaimedRun, DurableRuns

_log = logging.getLogger("toolcrib.runs")


class ProjectCalls:
    """Submits durable calls of the project's tools, and serves them in this process."""

    def __init__(
        self,
        runs: Callable[[], DurableRuns],
        toolset: Toolset,
        bound: Callable[[str], Bound],
        invoke: Callable[[Context], Awaitable[Result]],
        offer: Callable[[], Offer],
        advance: Callable[[], RunAdvance],
    ) -> None:
        self._runs, self._toolset, self._advance = runs, toolset, advance
        self._bound, self._invoke = bound, invoke
        self.offer = offer
        """Returns the tools whose calls this process runs, and why it does not run others."""
        self.on_beat: list[Callable[[], object]] = [self._find_unserved]
        """Called about once a second while this process serves."""
        self.on_event: Callable[[CallEvent], None] | None = None
        """Called with each event of a call that this process runs."""
        self._served: tuple[Worker, asyncio.Task[None]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        priority: int = 0,
        delay_s: float = 0.0,
        transaction: Transaction | None = None,
        **options: Any,
    ) -> str:
        """Check and store a call, and return its id. It runs wherever a worker has the tool.

        Higher priorities are taken first; options are fields of `Call`. Raises the error of a call that would
        be refused anyway; approval is asked for when it runs.
        """
        call = Call(name, {} if arguments is None else arguments, **options)
        return self.store(call, priority=priority, delay_s=delay_s, transaction=transaction)

    def store(self, call: Call, **how: Any) -> str:
        """Check and store a call of any interface, and return its id; `how` as of `DurableCalls.submit`.

        With the key of an earlier call it is that one's. Raises as `submit` does.
        """
        return self.stored.submit(**self.draft(call), id=call.call_id, **how)

    def draft(self, call: Call, elsewhere: dict[str, Bound] | None = None) -> dict[str, Any]:
        """Check a call and return what is stored of it, as arguments of `DurableCalls.submit`.

        `elsewhere` has tools that other processes run. One that is not here is looked up among those, and
        added to it. The call's client is asked by `answer`. Without a trace the current span of OpenTelemetry
        counts.
        """
        ctx, elsewhere = Context.of(call), {} if elsewhere is None else elsewhere
        if call.tool not in elsewhere:
            try:
                ctx.tool = self._bound(call.tool).name
            except ToolcribError:
                elsewhere |= self.known.some((call.tool,))
                if call.tool not in elsewhere:
                    raise
        self._toolset.pipeline.admit(ctx, elsewhere.get(call.tool))
        if ctx.idempotency_key is not None:
            require_key(ctx.idempotency_key)
        assert isinstance(ctx.arguments, Mapping)
        return {
            "tool": ctx.tool,
            "arguments": ctx.arguments,
            "caller": ctx.caller,
            "idempotency_key": ctx.idempotency_key,
            "repeatable": ctx.bound.may_repeat,
            "context": {
                "identity": None if ctx.identity is None else ctx.identity.as_dict(),
                "variables": ctx.variables,
                "timeout_ms": ctx.timeout_ms,
                "idempotency_key": ctx.idempotency_key,
                "client": facts_of(ctx.client),
                "trace": ctx.trace or current_trace(),
            },
            "session_id": ctx.session_id,
            "run_id": ctx.run_id,
        }

    def submit_many(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Store all of these calls in one transaction, or none, and return their ids.

        Each has `tool`, perhaps `arguments`, and options of `submit`. Raises the error of the first one that
        would be refused; `details` has its `index`, from 0.
        """
        drafts, elsewhere = list[dict[str, Any]](), dict[str, Bound]()
        for index, call in enumerate(calls):
            how = {name: value for name, value in call.items() if name in ("priority", "delay_s")}
            try:
                one = Call(**{name: call[name] for name in call.keys() - how})
                drafts.append({**self.draft(one, elsewhere), **how})
            except ToolcribError as error:
                error.message = f"call {index + 1}: {error.message}"
                error.args, error.details["index"] = (error.message,), index
                raise
        with self.stored.database.write(f"calls {worker_name()}") as tx:
            # In the order of their keys: two that store the same ones never wait for each other.
            order = sorted(range(len(drafts)), key=lambda index: drafts[index]["idempotency_key"] or "")
            ids = dict(zip(order, self.stored.submit_all(tx, [drafts[one] for one in order]), strict=True))
        return [ids[index] for index in range(len(drafts))]

    def submit_in(self, connection: object, name: str, arguments: Any = None, **options: Any) -> str:
        """Submit inside the transaction that is open on this `psycopg.Connection`."""
        work = partial(self.submit, name, arguments, **options)
        return join(self.stored.database, connection, lambda tx: work(transaction=tx))

    async def submit_in_async(
        self, connection: object, name: str, arguments: Any = None, **options: Any
    ) -> str:
        """Submit inside the transaction of a `psycopg.AsyncConnection`."""
        work = partial(self.submit, name, arguments, **options)
        return await join_async(self.stored.database, connection, lambda tx: work(transaction=tx))

    async def wait(
        self, call_id: str, timeout_s: float | None = None, *, caller: str | None = None
    ) -> DurableCall:
        """Return a call once it has ended, or as it is when the time is up. This process serves meanwhile."""
        if caller is not None:
            self.find(call_id, caller)
        self.serve()
        return await self.stored.wait(call_id, timeout_s)

    def wait_sync(self, call_id: str, timeout_s: float | None = None) -> DurableCall:
        """Do the same as `wait`, for code without an event loop."""

        async def wait_once() -> DurableCall:
            async with self.serving():
                return await self.wait(call_id, timeout_s)

        return asyncio.run(wait_once())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Open the tools and serve, for code whose event loop ends with it."""
        async with self._toolset:
            self.serve()
            try:
                yield
            finally:
                # What is given back now need not wait for its lease to end.
                await self.stop()

    @property
    def stored(self) -> DurableCalls:
        """All calls of the project, whoever made them."""
        return self._runs().calls

    @property
    def known(self) -> KnownTools:
        """The tools that calls may be stored for, whichever process has them."""
        return self._runs().tools

    def find(self, call_id: str, caller: str | None = None) -> DurableCall:
        """Return a call as it is now, if it is one of this caller; `NotFoundError`."""
        return self.stored.find(call_id, caller)

    def page(
        self,
        state: str | Sequence[str] | None = None,
        limit: int = 100,
        *,
        before: str | None = None,
        **filters: Unpack[Conditions],
    ) -> Sequence[DurableCall]:
        """Return calls that match, the newest first; as `StoredCalls.page`."""
        return self.stored.page(state, limit, before=before, **filters)

    def count(self, change: Change | None = None, **filters: Unpack[Filters]) -> int:
        """Return how many calls match; with `change`, how many `cancel_all` or `retry_all` would change."""
        return self.stored.count(**(filters if change is None else changeable("calls", change, filters)))

    def history(self, call_id: str) -> dict[str, Any]:
        """Return a call with every attempt and every change, as JSON. `NotFoundError`."""
        return {**self.find(call_id).as_dict(), "history": self.stored.history(call_id)}

    def status(self) -> dict[str, Any]:
        """Return the live workers, the queue by tool, and the tools with calls that no worker has."""
        workers = live_workers(self.stored.database, self.stored.lease_s)
        if not workers:  # Nobody else finds the calls of one that has died.
            self.stored.rescue()
        queue = self.stored.queue()
        served = frozenset[str]().union(*(worker.tools for worker in workers))
        return {
            "workers": [worker.as_dict() for worker in workers],
            "calls": self.stored.counts(),
            "queue": [{**one.as_dict(), "served": one.tool in served} for one in queue],
            "unserved": [one.tool for one in queue if one.tool not in served],
        }

    def cancel(self, call_id: str) -> None:
        """End a call; a result that comes later is refused. Raises `ConflictError` if it has ended."""
        # Stored first: the result of an attempt that ends before it can be dropped is refused.
        self.stored.cancel(call_id)
        if self._served is not None:
            self._served[0].drop(call_id)

    def cancel_all(self, **filters: Unpack[Filters]) -> Changed:
        """Cancel every matching call that has not ended."""
        cancelled = self.stored.cancel_all(**filters)
        if self._served is not None:
            for call_id in cancelled:
                self._served[0].drop(call_id)
        return Changed(cancelled, {})

    def retry_all(self, **filters: Unpack[Filters]) -> Changed:
        """Run every matching call again that ended without a result, each for the caller who made it."""
        return Changed(self.stored.retry_all(**filters), {})

    def answer(self, call_id: str, answers: Mapping[str, Any]) -> None:
        """Give a call the answers of its client, by the names of its questions."""
        self.stored.answer(call_id, answers)

    def retry(self, call_id: str, *, identity: Caller | None = None) -> None:
        """Run a call again that ended without a result. Raises `ConflictError` for any other.

        It runs for the caller who made it; for that of another a caller with a token gets `DeniedError`.
        """
        if identity is not None:
            identity.require_made(f"call {call_id}", self.find(call_id).caller)
        self.stored.retry(call_id)

    def serve(self) -> None:
        """Serve in this event loop from now on, until `stop`."""
        if self._served is None or self._served[1].done():
            advance = self._advance()
            worker = self.worker(self._attempt, self.offer, advance, advance.has_loaded, on_beat=self.on_beat)
            self._loop = asyncio.get_running_loop()
            serving = asyncio.create_task(worker.run(asyncio.Event()))
            serving.add_done_callback(_note_end)
            self._served = worker, serving

    def _find_unserved(self) -> None:
        """Make tools of bundles ready whose calls wait. Until it is used such a tool is not in the list."""
        names = [tool for tool in self.stored.ready_tools() if "/" in tool]
        if names and self._loop is not None:
            here = self.offer().tools
            names = [tool for tool in names if tool not in here]
            # The registry belongs to the event loop; this runs in the thread that keeps leases.
            self._loop.call_soon_threadsafe(self._make_ready, names)

    def _make_ready(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(ToolcribError):  # It is disabled or gone: its calls keep waiting.
                self._bound(name)

    def adopt(self, ctx: Context, running: asyncio.Task[None]) -> AdoptedCall:
        """Store a direct call that runs in a task of this process, and keep its lease from now on."""
        return AdoptedCall(self, ctx, running)

    async def take_running(self, ctx: Context, running: asyncio.Task[None]) -> ClaimedCall:
        """Store a call that runs already, and take it."""
        # First, because the lease of the call begins below and only a worker renews it.
        self.serve()
        assert self._served is not None
        worker, call_id = self._served[0], ctx.identify()
        claim = await asyncio.to_thread(lambda: self.stored.adopt(worker.name, id=call_id, **self.draft(ctx)))
        worker.adopt(claim, running)
        return claim

    async def settle(self, claim: ClaimedCall, ending: Ending) -> None:
        """Record the end of an adopted call, as `Worker.settle` does; once after `stop`."""
        if self._served is None:
            await asyncio.to_thread(record_ending, self.stored, claim, ending)
        else:
            await self._served[0].settle(claim, ending)

    def worker(
        self,
        attempt: Attempt,
        offer: Callable[[], Offer],
        advance: Callable[[ClaimedRun], Awaitable[None]],
        has_loaded: Callable[[], bool],
        *,
        on_beat: Sequence[Callable[[], object]] = (),
        **options: Any,
    ) -> Worker:
        """Return a worker for this offer of calls and runs; arguments as of `Worker` and `RunSteps`."""
        from toolcrib.runs.sessions import RunSteps

        steps = RunSteps(self._runs().changes, worker_name(), advance, has_loaded)
        dispatcher = self.stored.dispatcher
        if isinstance(dispatcher, PgQueuerDispatcher):
            dispatcher.limits = lambda entry: offer().tools.get(entry.removeprefix(entry_of("")), None) or 0
        beats = (steps.beat, *on_beat)
        return Worker(self.stored, attempt, offer, runs=steps.take, on_beat=beats, **options)

    async def _attempt(self, claim: ClaimedCall) -> Ending:
        ctx = context_of(claim)
        ctx.on_event = self.on_event
        return ending_of(ctx, await self._invoke(ctx))

    async def stop(self) -> None:
        """Stop serving; calls that run are given back."""
        served, self._served = self._served, None
        if served is not None:
            served[1].cancel()
            await asyncio.wait([served[1]])


def _note_end(serving: asyncio.Task[None]) -> None:
    if not serving.cancelled() and (error := serving.exception()) is not None:
        _log.error("this process takes no durable calls any more", exc_info=error)


class AdoptedCall:
    """A direct call that runs in a task of this process, and is kept in the store from now on.

    The task must not end before `end`. Whoever cancels the call, and not only its run here, sets `stored` of
    its context to False before.
    """

    def __init__(self, calls: ProjectCalls, ctx: Context, running: asyncio.Task[None]) -> None:
        self._calls, self._ctx, self._running = calls, ctx, running
        ctx.stored = True
        self._storing = asyncio.create_task(self._store())

    async def is_stored(self) -> bool:
        """Return True once the call is stored; False where it cannot be."""
        return await asyncio.shield(self._storing) is not None

    async def _store(self) -> ClaimedCall | None:
        try:
            return await self._calls.take_running(self._ctx, self._running)
        except Exception as error:  # The call goes on, and waits for this.
            if not isinstance(error, ToolcribError):
                _log.exception("a call that runs could not be stored")
            self._ctx.stored = False
            return None

    async def end(self, result: Result) -> None:
        """Record the end of the call, whole."""
        with suppress(asyncio.CancelledError):  # It has ended, and is being recorded.
            await whole(self._end(result))

    async def _end(self, result: Result) -> None:
        claim = await self._storing
        if claim is None:
            return
        ending: Ending
        if not isinstance(result.error, Cancelled):
            ending = ending_of(self._ctx, result)
        elif self._ctx.stored:
            ending = Lost("the process that ran it has stopped")
        else:
            ending = Cancel(result.error)
        await self._calls.settle(claim, ending)
