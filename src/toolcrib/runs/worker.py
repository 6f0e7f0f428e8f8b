"""A worker: takes the calls of tools that it has, runs one attempt of each, and records what follows."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from toolcrib.core.context import FOR_GOOD
from toolcrib.errors import StateUnavailable
from toolcrib.runs.calls import ClaimedCall, DurableCalls
from toolcrib.runs.dispatch import entry_of, run_entry
from toolcrib.runs.ending import Done, Ending, HandedBack, Lost, NotHere, record_ending
from toolcrib.runs.leases import BEAT_S
from toolcrib.runs.register import Offer, Register, WorkerKind
from toolcrib.runs.serving import BATCH, Handlers, Take, Together, Work, note_found, note_lost, whole
from toolcrib.state import Transaction

_log = logging.getLogger("toolcrib.runs")
_CALL, _RUN = entry_of(""), run_entry("")
_AGAIN_S = 0.5
"""Seconds until the end of an attempt is recorded again, while the database is away."""
Attempt = Callable[[ClaimedCall], Awaitable[Ending]]
"""Runs one attempt of a claimed call. Cancelling it ends the attempt."""


def worker_name() -> str:
    """Return a name for the worker of this process, to show to people."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Worker:
    """Serves calls in this event loop: those of `offer`, which is read again for each look.

    A tool whose attempt is not for this machine is left to others until the offer is another one. `runs`
    takes runs; `on_beat` is called about once a second, in a thread. An `embedded` worker leaves to others
    what they can serve. Where `begins` returns False, `attempt` calls `DurableCalls.begin` itself.
    """

    def __init__(
        self,
        calls: DurableCalls,
        attempt: Attempt,
        offer: Callable[[], Offer],
        *,
        runs: Take | None = None,
        on_beat: Sequence[Callable[[], object]] = (),
        begins: Callable[[], bool] = lambda: True,
        kind: WorkerKind = "embedded",
        name: str | None = None,
        concurrency: int = 100,
    ) -> None:
        self.name = name or worker_name()
        self._calls = calls
        self._attempt = attempt
        self._offer = offer
        self._register = Register(calls.database, self.name, kind)
        self._kind = kind
        self._handlers = _Handlers(self, self._take, runs or self._take)
        self._on_beat = on_beat
        self._begins = begins
        self._beating = ThreadPoolExecutor(1, "toolcrib-beat")
        """A thread of its own: those of the event loop may all wait for the database."""
        self._concurrency = concurrency
        self._elsewhere: frozenset[str] = frozenset()
        self._refused: Mapping[str, str] = {}
        """The tools that do not run here, with the reasons: those of an offer, and those whose attempts were
        not for this machine."""
        self._refused_of: Offer | None = None
        self._approved: Set[str] = frozenset()
        """The tools with a ready call that a person has approved: it may run, whatever keeps others back."""
        self._running: dict[str, tuple[ClaimedCall, asyncio.Task[None]]] = {}
        self._finished = Together(self._finish, BATCH)
        self._gives_up = False
        """True once the time to end is over: what the database does not take now is left to others."""

    async def run(
        self,
        stop: asyncio.Event,
        grace_s: float | None = None,
        serving: Callable[[], None] | None = None,
    ) -> None:
        """Serve until `stop` is set and what was taken has ended; after `grace_s` seconds it is given back.

        `serving` is called after the first beat, so others see the worker. Cancelling this gives
        everything back at once.
        """
        await asyncio.to_thread(self._calls.dispatcher.prepare)
        # Whole: a beat that is cut off would continue in its thread and register a worker that has ended.
        await whole(self._beat_in_thread())
        if serving is not None:
            serving()
        beat = asyncio.create_task(self._beat())
        full = asyncio.Event()
        """Set when nothing more may be taken."""
        serve = asyncio.create_task(
            self._calls.dispatcher.serve(
                self._handlers, stop=full, concurrency=self._concurrency, worker=self._register.id
            )
        )
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serve, stopped}, return_when=asyncio.FIRST_COMPLETED)
            full.set()
            await asyncio.wait({serve}, timeout=grace_s)
        finally:
            full.set()
            self._gives_up = True
            stopped.cancel()
            # First the works, so that each records how it ended; then the loops around them.
            running = [task for _, task in self._running.values()]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
            serve.cancel()
            beat.cancel()
            await asyncio.gather(serve, beat, return_exceptions=True)
            with suppress(StateUnavailable):
                self._register.remove(self._calls.dispatcher)
            self._beating.shutdown(wait=False)
        if not serve.cancelled():
            serve.result()  # Raises what has ended it, if that was not `stop`.

    def adopt(self, claim: ClaimedCall, task: asyncio.Task[None]) -> None:
        """Keep the lease of a call that this process runs already in a task; cancel it if that is lost."""
        self._running[claim.id] = claim, task
        task.add_done_callback(partial(self._forget, claim))

    def drop(self, id: str) -> None:
        """Cancel the attempt of a call that was cancelled in this process, from any thread."""
        running = self._running.get(id)
        if running is not None:
            running[1].get_loop().call_soon_threadsafe(running[1].cancel, FOR_GOOD)

    def _take(self, tx: Transaction, key: str) -> Work | None:
        claim = self._calls.take(tx, key, self.name, begins=self._begins())
        return None if claim is None else partial(self._work, claim)

    async def _work(self, claim: ClaimedCall) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running[claim.id] = claim, task
        try:
            ending = await self._attempt(claim)
        except asyncio.CancelledError:  # The worker ends, or no longer has the call: then this is refused.
            ending = HandedBack()
        except Exception as error:  # An attempt promises not to raise: the call is rescued.
            _log.exception("call %s could not be run", claim.id)
            ending = Lost(f"{type(error).__name__}: {error}")
        if isinstance(ending, NotHere):
            self._refused = {**self._refused, claim.tool: ending.reason}
        try:
            await self.settle(claim, ending)
        finally:
            self._forget(claim, task)

    def _forget(self, claim: ClaimedCall, task: asyncio.Task[None]) -> None:
        if self._running.get(claim.id) == (claim, task):  # Else it is taken again already.
            del self._running[claim.id]

    async def settle(self, claim: ClaimedCall, ending: Ending) -> None:
        """Record the end of an attempt; while the database is away, try again until this worker ends.

        A cancellation takes effect after it.
        """
        await whole(self._recorded(claim, ending))

    async def _finish(self, results: list[tuple[ClaimedCall, bytes]]) -> list[None]:
        await asyncio.to_thread(self._calls.finish_all, results)
        return [None] * len(results)

    async def _recorded(self, claim: ClaimedCall, ending: Ending) -> None:
        # The end of a call of a run locks the run, so it has a transaction of its own.
        if isinstance(ending, Done) and claim.run_id is None:
            try:
                await self._finished.add((claim, ending.result))
            except Exception as error:  # Each by itself: one that cannot be recorded stops no other.
                _log.debug("results could not be recorded together: %s", error)
            else:
                return
        while True:
            try:
                await asyncio.to_thread(record_ending, self._calls, claim, ending)
                return
            except StateUnavailable as error:
                note_lost(self._calls.database, error)
                if self._gives_up:
                    return
            except Exception:  # Its lease ends, and it is rescued.
                _log.exception("the end of call %s could not be recorded", claim.id)
                return
            await asyncio.sleep(_AGAIN_S)

    def is_unlimited(self, tool: str) -> bool:
        """Return True if a call of this tool may be taken whatever other workers run."""
        offer = self._current()
        return offer.tools.get(tool, 0) is None and self._may_take(tool)

    def serves(self, tool: str) -> bool:
        """Return True if calls of this tool may be taken now."""
        return tool in self._current().tools and self._may_take(tool)

    def served(self) -> list[str]:
        """Return the tools whose calls may be taken now."""
        return [name for name in self._current().tools if self._may_take(name)]

    def room(self, tx: Transaction, tool: str) -> int | None:
        """Return how many further calls of a tool may run now, in all workers; None: any number."""
        most = self._current().tools.get(tool, 0)
        if most == 0 or not self._may_take(tool):
            return 0
        return None if most is None else max(0, most - self._calls.running(tx, tool))

    def providers(self) -> tuple[str, ...]:
        """Return the providers of the models whose runs may be taken."""
        return self._offer().providers

    def _may_take(self, tool: str) -> bool:
        return (tool not in self._refused or tool in self._approved) and tool not in self._elsewhere

    def _current(self) -> Offer:
        """Return the offer as it is now, and let another one end what was refused beside it."""
        offer = self._offer()
        if offer is not self._refused_of:
            self._refused, self._refused_of = offer.refused, offer
        return offer

    async def _beat(self) -> None:
        while True:
            # A short lease, as in a test, is renewed more often.
            await asyncio.sleep(min(BEAT_S, self._calls.lease_s / 5))
            await whole(self._beat_in_thread())

    async def _beat_in_thread(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._beating, self._beat_once)

    def _beat_once(self) -> None:
        """Keep what this worker runs, give up what it no longer has, take over from silent workers.

        In a thread: what is taken over here begins in the event loop while the next one is looked at. Each
        by itself: where one fails, the leases that another keeps would end, and what runs here be lost.
        """
        calls = self._calls
        for part in (self._renew, *self._on_beat, self._show, calls.rescue, calls.resend, calls.wake_decided):
            try:
                part()
            except StateUnavailable as error:
                note_lost(calls.database, error)
                return
            except Exception:
                _log.exception("a worker could not do all that it does each second")
        note_found(calls.database)

    def _renew(self) -> None:
        running = list(self._running.values())
        if running:
            kept = {claim.id for claim in self._calls.renew([claim for claim, _ in running])}
            for claim, task in running:
                if claim.id not in kept:
                    task.get_loop().call_soon_threadsafe(task.cancel, FOR_GOOD)

    def _show(self) -> None:
        offer, refused = self._current(), self._refused
        self._approved = self._calls.approved(refused)
        elsewhere, dead = self._register.beat(offer.tools, refused, len(self._running), self._calls.lease_s)
        if dead:
            self._register.remove(self._calls.dispatcher, *dead)
        # An embedded worker may end with its program at any time, so workers that stay come first.
        if self._kind == "embedded":
            self._elsewhere = elsewhere


class _Handlers(Handlers):
    """The entries of a worker, as its tools come and go."""

    def __init__(self, worker: Worker, calls: Take, runs: Take) -> None:
        self._worker = worker
        self._calls, self._runs = calls, runs

    # A dispatcher asks for single entries inside of a transaction: this must not query the database, as
    # `room` does to count what other workers run.
    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, str):
            return False
        if entry.startswith(_RUN):
            return entry.removeprefix(_RUN) in self._worker.providers()
        return self._worker.is_unlimited(entry.removeprefix(_CALL))

    def __getitem__(self, entry: str) -> Take:
        return self._runs if entry.startswith(_RUN) else self._calls

    def serves(self, entry: str) -> bool:
        """Return True if rows of an entry may be taken here, with a limit or without one."""
        return entry in self if entry.startswith(_RUN) else self._worker.serves(entry.removeprefix(_CALL))

    def room(self, tx: Transaction, entry: str) -> int | None:
        """Return how many further works of an entry may run now."""
        if entry.startswith(_RUN):
            return None if entry in self else 0
        return self._worker.room(tx, entry.removeprefix(_CALL))

    def __iter__(self) -> Iterator[str]:
        yield from map(run_entry, self._worker.providers())
        yield from map(entry_of, self._worker.served())

    def __len__(self) -> int:
        return len(self._worker.providers()) + len(self._worker.served())
