"""A worker: takes the calls of tools that it has, runs one attempt of each, and records what follows."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from toolcrib.core.context import Context
from toolcrib.core.decision import Fail, SnoozeFor
from toolcrib.errors import RateLimited, StateUnavailable
from toolcrib.runs.calls import ClaimedCall, DurableCalls, entry_of
from toolcrib.runs.dispatch import Take, Work
from toolcrib.schema import to_json_text
from toolcrib.spec import Caller, Result
from toolcrib.state import Transaction

__all__ = ["Worker", "context_of", "identity_as_json", "record", "worker_name"]

_log = logging.getLogger("toolcrib.runs")
_AGAIN_S = 0.5
"""Seconds until what a call gave is recorded again, while the database is away."""


def worker_name() -> str:
    """Return a name for the worker of this process, to show to people."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Worker:
    """Serves the calls of `tools` (read again for each look) in this event loop.

    `invoke` makes a call by the one path. `others` are further entries, such as those of runs, and `on_beat`
    is called about once a second.
    """

    def __init__(
        self,
        calls: DurableCalls,
        invoke: Callable[[Context], Awaitable[Result]],
        tools: Callable[[], Collection[str]],
        *,
        others: Mapping[str, Take] | None = None,
        on_beat: Sequence[Callable[[], None]] = (),
        name: str | None = None,
        concurrency: int = 100,
    ) -> None:
        self.name = name or worker_name()
        self._calls = calls
        self._invoke = invoke
        self._handlers = _Handlers(tools, self._take, others or {})
        self._on_beat = on_beat
        self._concurrency = concurrency
        self._running: dict[str, tuple[ClaimedCall, asyncio.Task[None]]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set and what was taken has ended. Cancelling this gives the rest back."""
        beat = asyncio.create_task(self._beat())
        try:
            await self._calls.dispatcher.serve(self._handlers, stop=stop, concurrency=self._concurrency)
        finally:
            beat.cancel()
            running = [task for _, task in self._running.values()]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    def _take(self, tx: Transaction, key: str) -> Work | None:
        claim = self._calls.take(tx, key, self.name)
        return None if claim is None else partial(self._work, claim)

    async def _work(self, claim: ClaimedCall) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running[claim.id] = claim, task
        try:
            ctx = context_of(claim)
            result = await self._invoke(ctx)
            while not self._recorded(claim, ctx, result):  # noqa: ASYNC110 - until the database answers
                await asyncio.sleep(_AGAIN_S)
        except asyncio.CancelledError:  # The worker ends, or no longer has the call: then this is refused.
            with suppress(StateUnavailable):
                self._calls.hand_back(claim)
        finally:
            del self._running[claim.id]

    def _recorded(self, claim: ClaimedCall, ctx: Context, result: Result) -> bool:
        """Record what follows; a second time is refused. Return False if the database is away."""
        try:
            record(self._calls, claim, ctx, result)
        except StateUnavailable as error:
            _log.warning("the end of call %s is not yet recorded: %s", claim.id, error)
            return False
        return True

    async def _beat(self) -> None:
        """Keep what this worker runs, give up what it no longer has, take over from silent workers."""
        while True:
            try:
                running = list(self._running.values())
                if running:
                    kept = self._calls.renew([claim for claim, _ in running])
                    for claim, task in running:
                        if claim not in kept:
                            task.cancel()
                self._calls.rescue()
                self._calls.resend()
                self._calls.wake_decided()
                for beat in self._on_beat:
                    beat()
            except StateUnavailable as error:
                _log.warning("the calls of this worker were not renewed: %s", error)
            await asyncio.sleep(self._calls.lease_s / 5)


def context_of(claim: ClaimedCall) -> Context:
    """Return a claimed call for the one path: one attempt, which waits for nobody."""
    more = claim.context
    identity = more.get("identity")
    ctx = Context(
        claim.tool,
        claim.arguments,
        claim.caller,
        more.get("variables"),
        claim.run_id,
        claim.session_id,
        call_id=claim.id,
        timeout_ms=more.get("timeout_ms"),
        identity=None if identity is None else identity_from(identity),
        wait="pending",
        idempotency_key=more.get("idempotency_key"),
    )
    ctx.single, ctx.attempt, ctx.snoozes = True, claim.attempt, claim.snoozes
    return ctx


def identity_from(stored: Mapping[str, Any]) -> Caller:
    """Return the caller that was stored with a call. Its token is verified again when the call runs."""
    tools = stored["tools"]
    return Caller(
        stored["name"],
        frozenset(stored["scopes"]),
        None if tools is None else tuple(tools),
        stored["owner"],
        stored["client"],
        stored["digest"],
    )


def identity_as_json(identity: Caller) -> dict[str, Any]:
    """Return a caller to be stored with a call."""
    return {
        "name": identity.name,
        "scopes": sorted(identity.scopes),
        "tools": None if identity.tools is None else list(identity.tools),
        "owner": identity.owner,
        "client": identity.client,
        "digest": identity.digest,
    }


def record(calls: DurableCalls, claim: ClaimedCall, ctx: Context, result: Result) -> bool:
    """Record what follows an attempt; False if the worker no longer has the call."""
    error = result.error
    if result.status == "pending":
        return calls.wait_for_approval(claim, str((result.details or {}).get("approval")))
    if error is None:
        return calls.finish(claim, to_json_text(result.as_dict()))
    if isinstance(error, RateLimited):
        wait_s = float(error.details.get("retry_after_s") or 1.0)
        return calls.decide(claim, SnoozeFor(wait_s, error.message))
    if isinstance(error, StateUnavailable) and error.retryable and ctx.follows is None:
        return calls.decide(claim, SnoozeFor(1.0, error.message))
    if isinstance(ctx.follows, Fail) or ctx.follows is None:
        kind = Fail if ctx.follows is None else type(ctx.follows)
        return calls.decide(claim, kind(error))
    return calls.decide(claim, ctx.follows)


class _Handlers(Mapping[str, Take]):
    """The entries of a worker, as its tools come and go."""

    def __init__(self, tools: Callable[[], Collection[str]], take: Take, others: Mapping[str, Take]) -> None:
        self._tools = tools
        self._take = take
        self._others = others

    def __getitem__(self, entry: str) -> Take:
        return self._others.get(entry, self._take)

    def __iter__(self) -> Iterator[str]:
        yield from self._others
        yield from map(entry_of, self._tools())

    def __len__(self) -> int:
        return len(self._others) + len(self._tools())
