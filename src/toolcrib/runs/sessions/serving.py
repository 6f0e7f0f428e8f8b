"""The steps of runs that a dispatcher delivers to this process: kept under a lease, given back at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from toolcrib.errors import StateUnavailable
from toolcrib.runs.serving import Work, note_lost
from toolcrib.runs.sessions.records import ClaimedRun
from toolcrib.runs.sessions.transitions import RunTransitions
from toolcrib.state import Transaction


class StepLost(Exception):
    """The process that made a step has died."""


class RunSteps:
    """Takes runs, and has each go one step further.

    `advance` makes one step and records it. It may raise `StateUnavailable`, and the step is made again, or
    `StepLost`. Where `begins` returns False, a step that is taken does not begin at once, and `advance` calls
    `RunTransitions.begin`.
    """

    def __init__(
        self,
        runs: RunTransitions,
        worker: str,
        advance: Callable[[ClaimedRun], Awaitable[None]],
        begins: Callable[[], bool],
    ) -> None:
        self._runs, self._worker = runs, worker
        self._advance, self._begins = advance, begins
        self._running: dict[str, tuple[ClaimedRun, asyncio.Task[None]]] = {}

    def take(self, tx: Transaction, run_id: str) -> Work | None:
        """Take a run in the transaction that delivers it; None if it is not ready."""
        claim = self._runs.claim(tx, run_id, self._worker, begins=self._begins())
        return None if claim is None else partial(self._work, claim)

    def beat(self) -> None:
        """Keep the runs of this worker, give up what it no longer has, take over from silent workers.

        Called in a thread.
        """
        running = list(self._running.values())
        if running:
            kept = {claim.run.id for claim in self._runs.renew([claim for claim, _ in running])}
            for claim, task in running:
                if claim.run.id not in kept:
                    # This is another thread, and a task may only be cancelled in that of its event loop.
                    task.get_loop().call_soon_threadsafe(task.cancel)
        # After the renewal, so that this worker does not take its own runs for lost.
        self._runs.rescue()

    async def _work(self, claim: ClaimedRun) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running[claim.run.id] = claim, task
        try:
            await self._advance(claim)
        except asyncio.CancelledError:  # The worker ends, or no longer has the run: then this is refused.
            with suppress(StateUnavailable):
                self._runs.again(claim, 0.0, None, 0.0)
        except StepLost as error:
            with suppress(StateUnavailable):  # Its lease ends.
                self._runs.lose(claim, str(error))
        except StateUnavailable as error:  # Nothing was recorded, so the step is rescued.
            note_lost(self._runs.store.database, error)
        finally:
            if self._running.get(claim.run.id) == (claim, task):  # Else it is taken again already.
                del self._running[claim.run.id]
