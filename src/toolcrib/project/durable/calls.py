"""The durable calls of a project: submitted after the checks of every call, and served in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from toolcrib.core.bound import Bound, BoundTool
from toolcrib.core.context import Context, current_trace
from toolcrib.core.pipeline import Pipeline
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolcribError
from toolcrib.guard.idempotency import require_key
from toolcrib.runs import (
    CallState,
    ClaimedCall,
    DurableCall,
    DurableCalls,
    PgQueuerDispatcher,
    Register,
    Take,
    Worker,
    entry_of,
)
from toolcrib.runs.ending import Ending, context_of, ending_of, record_ending
from toolcrib.runs.questions import facts_of
from toolcrib.runs.worker import Attempt
from toolcrib.spec import CallClient, Caller, CallEvent, Result
from toolcrib.state import Transaction, join, join_async

_log = logging.getLogger("toolcrib.runs")


class Concurrency:
    """Returns how many calls of each tool may run at a time; None: any number. `most` is for every tool."""

    def __init__(self, toolset: Toolset, most: int | None) -> None:
        self._toolset, self._most = toolset, most
        self._known: dict[str, int | None] = {}
        self._revision = -1

    def __call__(self) -> Mapping[str, int | None]:
        """Return the limits by name; they are read again after the list of tools has changed."""
        names, revision = self._toolset.names, self._toolset.revision
        # The number too: a tool of a bundle enters the list without a new revision.
        if len(names) != len(self._known) or self._revision != revision:
            known: dict[str, int | None] = {}
            for name in names:
                # A worker asks in a thread, while the event loop may remove tools.
                with suppress(ToolcribError):
                    bound = self._toolset.bound(name)
                    # A registered function has no limit of its own, and its description is made at first use.
                    own = bound.tool.limits.concurrent_calls if isinstance(bound, BoundTool) else None
                    known[name] = min((one for one in (own, self._most) if one is not None), default=None)
            self._known, self._revision = known, revision
        return self._known


class ProjectCalls:
    """Submits durable calls of the project's tools, and serves them in this process."""

    def __init__(
        self,
        calls: Callable[[], DurableCalls],
        pipeline: Pipeline,
        bound: Callable[[str], Bound],
        invoke: Callable[[Context], Awaitable[Result]],
        concurrency: Callable[[], Mapping[str, int | None]],
    ) -> None:
        self._calls, self._pipeline = calls, pipeline
        self._bound, self._invoke = bound, invoke
        self.concurrency = concurrency
        """Returns the tools of this process, and how many calls of each may run at a time."""
        self.others: dict[str, Take] = {}
        """Further entries that this process serves."""
        self.on_serve: list[Callable[[], None]] = []
        """Called once, before this process begins to serve."""
        self.on_beat: list[Callable[[], None]] = [self._find_unserved]
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
        call_id: str | None = None,
        approval: str | None = None,
        **options: Any,
    ) -> str:
        """Check and store a call, and return its id. It runs wherever a worker has the tool.

        `approval` is what the call waits for already; the other options are those of `prepare`.

        Raises the error of a call that would be refused anyway; approval is asked for when it runs.
        """
        ready = self.prepare(name, arguments, **options)
        ready |= {"priority": priority, "delay_s": delay_s, "id": call_id, "approval": approval}
        return self._calls().submit(**ready, transaction=transaction)

    def prepare(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        caller: str = "local",
        identity: Caller | None = None,
        variables: dict[str, Any] | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        timeout_ms: int | None = None,
        idempotency_key: str | None = None,
        client: CallClient | None = None,
        trace: str | None = None,
    ) -> dict[str, Any]:
        """Check a call and return the arguments of `DurableCalls.submit` for it. Raises as `submit` does.

        `client` is asked by `answer`. `trace` is a `traceparent`, without which the current span of
        OpenTelemetry counts.
        """
        bound, given = self._bound(name), {} if arguments is None else arguments
        ctx = Context(bound.name, given, caller, variables, run_id, session_id, identity=identity)
        self._pipeline.admit(ctx)
        if idempotency_key is not None:
            require_key(idempotency_key)
        assert isinstance(ctx.arguments, Mapping)
        hints = bound.tool.annotations
        return {
            "tool": bound.name,
            "arguments": ctx.arguments,
            "caller": caller,
            "idempotency_key": idempotency_key,
            "repeatable": bool(hints.idempotent or hints.read_only or bound.retries_timeouts),
            "context": {
                "identity": None if identity is None else identity.as_dict(),
                "variables": variables,
                "timeout_ms": timeout_ms,
                "idempotency_key": idempotency_key,
                "client": facts_of(client),
                "trace": trace or current_trace(),
            },
            "session_id": session_id,
            "run_id": run_id,
        }

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
        return asyncio.run(self._wait_once(call_id, timeout_s))

    async def _wait_once(self, call_id: str, timeout_s: float | None) -> DurableCall:
        try:
            return await self.wait(call_id, timeout_s)
        finally:
            # The event loop ends with this call. What is given back now need not wait for its lease to end.
            await self.stop()

    @property
    def stored(self) -> DurableCalls:
        """All calls of the project, whoever made them."""
        return self._calls()

    def find(self, call_id: str, caller: str | None = None) -> DurableCall:
        """Return a call as it is now, if it is one of this caller; `NotFoundError`."""
        return self.stored.find(call_id, caller)

    def page(
        self, state: CallState | Sequence[CallState] | None = None, limit: int = 100, **options: Any
    ) -> Sequence[DurableCall]:
        """Return calls, the newest first; options are those of `StoredCalls.page`."""
        return self.stored.page(state, limit, **options)

    def history(self, call_id: str) -> dict[str, Any]:
        """Return a call with every attempt and every change, as JSON. `NotFoundError`."""
        return {
            **self.find(call_id).as_dict(),
            "history": {
                "attempts": [attempt.as_dict() for attempt in self.stored.attempts(call_id)],
                "changes": [change.as_dict() for change in self.stored.changes(call_id)],
            },
        }

    def status(self) -> dict[str, Any]:
        """Return the live workers, the queue by tool, and the tools with calls that no worker has."""
        workers = Register(self.stored.database, self.stored.lease_s).live()
        queue = self.stored.queue()
        served = frozenset[str]().union(*(worker.tools for worker in workers))
        return {
            "workers": [worker.as_dict() for worker in workers],
            "calls": self.stored.counts(),
            "queue": [one.as_dict() for one in queue],
            "unserved": [one.tool for one in queue if one.tool not in served],
        }

    def cancel(self, call_id: str) -> None:
        """End a call; a result that comes later is refused. Raises `ConflictError` if it has ended."""
        # Stored first: the result of an attempt that ends before it can be dropped is refused.
        self.stored.cancel(call_id)
        if self._served is not None:
            self._served[0].drop(call_id)

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
            worker = self.worker(self._attempt, self.concurrency)
            self._loop = asyncio.get_running_loop()
            serving = asyncio.create_task(worker.run(asyncio.Event()))
            serving.add_done_callback(_note_end)
            self._served = worker, serving

    def _find_unserved(self) -> None:
        """Make tools of bundles ready whose calls wait. Until it is used such a tool is not in the list."""
        here = self.concurrency()
        names = [one.tool for one in self.stored.queue() if "/" in one.tool and one.tool not in here]
        if names and self._loop is not None:
            # The registry belongs to the event loop; this runs in the thread that keeps leases.
            self._loop.call_soon_threadsafe(self._make_ready, names)

    def _make_ready(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(ToolcribError):  # It is disabled or gone: its calls keep waiting.
                self._bound(name)

    async def adopt(self, ctx: Context, task: asyncio.Task[None]) -> ClaimedCall | None:
        """Store a direct call that this process runs in a task, and keep its lease from now on.

        The task must not end before this has. Return None where the call cannot be stored.
        """
        # First, because the lease of the call begins below and only a worker renews it.
        self.serve()
        assert self._served is not None
        worker = self._served[0]

        def store() -> ClaimedCall:
            ready = self.prepare(
                ctx.tool,
                ctx.arguments,
                caller=ctx.caller,
                identity=ctx.identity,
                session_id=ctx.session_id,
                timeout_ms=ctx.timeout_ms,
                client=ctx.client,
            )
            return self.stored.adopt(worker.name, id=ctx.identify(), **ready)

        try:
            claim = await asyncio.to_thread(store)
        except Exception as error:  # The call continues, and waits for this.
            if not isinstance(error, ToolcribError):
                _log.exception("a call that runs could not be stored")
            return None
        worker.adopt(claim, task)
        return claim

    async def settle(self, claim: ClaimedCall, ending: Ending) -> None:
        """Record the end of an adopted call, as `Worker.settle` does; once after `stop`."""
        if self._served is None:
            await asyncio.to_thread(record_ending, self.stored, claim, ending)
        else:
            await self._served[0].settle(claim, ending)

    def worker(
        self, attempt: Attempt, tools: Callable[[], Mapping[str, int | None]], **options: Any
    ) -> Worker:
        """Return a worker for the calls of these tools, and for all else that this project serves."""
        while self.on_serve:
            self.on_serve.pop()()
        dispatcher = self.stored.dispatcher
        if isinstance(dispatcher, PgQueuerDispatcher):
            dispatcher.limits = lambda entry: tools().get(entry.removeprefix(entry_of("")), None) or 0
        return Worker(self.stored, attempt, tools, others=self.others, on_beat=self.on_beat, **options)

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
