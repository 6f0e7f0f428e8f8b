"""Every change of a run's state. Each is checked by its statement, so it happens once or not at all.

A run is a row that short jobs advance. A worker that takes a model step gets a new epoch, and what it records
counts only with this epoch. A step stores the answer, the iteration and its calls in one transaction. Each
end of a call lowers a counter in the run's row; the call that lowers it to zero makes the run ready and sends
the next job in the same transaction. So each iteration has exactly one continuation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from toolcrib.errors import ToolcribError, ToolFailed
from toolcrib.runs.leases import IS_LOST, lost_rows
from toolcrib.runs.sessions.events import RunNotes
from toolcrib.runs.sessions.records import RUN_COLUMNS, ClaimedRun, Run, RunState, Usage
from toolcrib.runs.sessions.results import results_message
from toolcrib.runs.sessions.store import RunDraft, RunStore, add_message, run_row
from toolcrib.spec.identifier import new_id
from toolcrib.spec.record import record
from toolcrib.state import Transaction, this_process

_MAX_RESCUES = 3
# As for calls (`toolcrib.runs.calls`): what a worker records after it has lost the run changes no row.
_OWN = "WHERE id = ? AND epoch = ? AND state = 'running'"
_TAKE = (
    "UPDATE runs SET state = 'running', epoch = epoch + 1, worker = ?, holder = ?, lease_ends_at = ?"
    " WHERE id = ? AND state = 'ready' AND ready_at <= ?"
    f" RETURNING {RUN_COLUMNS}, definition, identity, streams, trace, provider"
)
_SPEND = (
    "input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_usd = cost_usd + ?,"
    " active_s = active_s + ?"
)
_STEP = (
    "UPDATE runs SET state = ?, iteration = iteration + 1, open_calls = ?, messages = messages + 1,"
    f" failures = 0, rescues = 0, ready_at = ?, {_SPEND} {_OWN} RETURNING iteration, messages"
)
_AGAIN = (
    "UPDATE runs SET state = 'ready', ready_at = ?, failures = failures + ?, rescues = rescues * ?,"
    f" worker = NULL, lease_ends_at = NULL, active_s = active_s + ? {_OWN}"
)
_SUMMARY = f"UPDATE runs SET messages = messages + 1, {_SPEND} {_OWN} RETURNING messages"
_RESULTS = "UPDATE runs SET messages = messages + 1 WHERE id = ? RETURNING messages"
# The state is a condition, so of two ends one counts: a cancelled run is not ended by its worker too.
_END = (
    "UPDATE runs SET state = ?, answer = ?, error = ?, ended_at = ?, worker = NULL, lease_ends_at = NULL,"
    " open_calls = 0, epoch = epoch + 1 WHERE id = ? AND epoch = ? AND state = ?"
    " RETURNING id, root_id, parent_id, session_id, iteration, input_tokens, output_tokens, cost_usd"
)
# `ended_at IS NULL`: each end counts once, however often it is reported.
_CALL_ENDED = (
    "UPDATE run_uses SET ended_at = ? WHERE {} = ? AND ended_at IS NULL"
    " RETURNING run_id, iteration, position, name"
)
# The counter is in the run's row, so ends at the same time take turns, and exactly one of them gets 0.
_ONE_LESS = (
    "UPDATE runs SET open_calls = open_calls - 1, input_tokens = input_tokens + ?,"
    " output_tokens = output_tokens + ?, cost_usd = cost_usd + ? WHERE id = ? AND iteration = ?"
    " AND state = 'waiting' RETURNING open_calls, root_id"
)
_LONGEST_ATTEMPT = (
    "COALESCE((SELECT MAX(call_attempts.ended_at - call_attempts.began_at) FROM run_uses JOIN call_attempts"
    " ON call_attempts.call_id = run_uses.call_id WHERE run_uses.run_id = ? AND iteration = ?), 0.0)"
)
_LONGEST_CHILD = (
    "COALESCE((SELECT MAX(child.active_s) FROM run_uses JOIN runs AS child ON child.id = run_uses.child_id"
    " WHERE run_uses.run_id = ? AND run_uses.iteration = ?), 0.0)"
)
_READY = (
    "UPDATE runs SET state = 'ready', ready_at = ?, active_s = active_s"
    f" + {_LONGEST_ATTEMPT} + {_LONGEST_CHILD} WHERE id = ? AND state = 'waiting' AND open_calls = 0"
)
"""Calls run side by side, so the longest one counts. Time in which nothing runs does not."""
_QUEUED = "SELECT id FROM runs WHERE session_id = ? AND state = 'queued' ORDER BY id LIMIT 1"
_NEXT = "UPDATE runs SET state = 'ready', ready_at = ? WHERE id = ? AND state = 'queued'"
_FACTS = "SELECT id, epoch, rescues, worker FROM runs"
_RESCUE = (
    "UPDATE runs SET state = 'ready', rescues = rescues + ?, ready_at = ?, worker = NULL,"
    f" lease_ends_at = NULL {_OWN} RETURNING root_id"
)


@record
class NewUse:
    """A call that the model asked for, and what is made of it: a call, a run, or an answer at once."""

    use_id: str
    name: str
    arguments: str
    call: Mapping[str, Any] | None = None
    """The call of a tool, after all checks that need no person."""
    child: RunDraft | None = None
    """The run of a sub-agent."""
    answer: str | None = None
    """The text for the model, if it may not call this."""


@record
class ModelStep:
    """A finished model step."""

    response: bytes
    """The message, in the form of pydantic-ai."""
    model: str
    usage: Usage
    began_at: float
    seconds: float


class RunTransitions:
    """The changes that workers make."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.lease_s = store.calls.lease_s

    # -- a model step ----------------------------------------------------------------------------

    def claim(self, tx: Transaction, id: str, worker: str, *, begins: bool = True) -> ClaimedRun | None:
        """Take the next model step of a run in the transaction that delivers it; None if it is not ready.

        One that is delivered too early is sent again for its time. Without `begins` the step is made after
        `begin`: the death of the worker does not count before.
        """
        now = tx.now()
        row = tx.one(_TAKE, worker if begins else None, this_process(), now + self.lease_s, id, now)
        if row is None:
            later = tx.one("SELECT ready_at FROM runs WHERE id = ? AND state = 'ready'", id)
            if later is not None:
                self.store.send(tx, id, later[0] - now)
            return None
        *columns, definition, identity, streams, trace, provider = row
        run = Run(*cast("Any", columns))
        return ClaimedRun(run, definition, identity, bool(streams), now, trace, provider)

    def begin(self, claim: ClaimedRun, worker: str) -> None:
        """Record that a step which was only taken is made from now on."""
        with self.store.database.write(f"run {claim.run.id}") as tx:
            tx.run(f"UPDATE runs SET worker = ? {_OWN}", worker, claim.run.id, claim.epoch)

    def renew(self, claims: Collection[ClaimedRun]) -> list[ClaimedRun]:
        """Keep runs for another lease; return those that this worker still has."""
        kept = []
        for claim in claims:
            with self.store.database.write(f"run {claim.run.id}") as tx:
                end = tx.now() + self.lease_s
                if tx.run(f"UPDATE runs SET lease_ends_at = ? {_OWN}", end, claim.run.id, claim.epoch):
                    kept.append(claim)
        return kept

    def add_summary(self, claim: ClaimedRun, content: bytes, usage: Usage, seconds: float) -> bool:
        """Store a summary of everything before, which replaces it for the model; False as `step` does."""
        run = claim.run
        with self.store.change(f"run {run.id}") as notes:
            row = notes.tx.one(_SUMMARY, *usage, seconds, run.id, claim.epoch)
            if row is None:
                return False
            add_message(notes.tx, (run.id, row[0], run.iteration, "summary", content), notes.now)
            notes.add((run.id, run.root_id), "compacted", run.iteration)
        return True

    def step(self, claim: ClaimedRun, step: ModelStep, uses: Sequence[NewUse]) -> bool:
        """Store the model's message and the calls that it asks for; False if the worker lost the run."""
        run = claim.run
        pending = [use for use in uses if use.answer is None]
        with self.store.change(f"run {run.id}") as notes:
            number = self._record(notes, claim, step, "waiting" if pending else "ready", len(pending))
            if number is None:
                return False
            for position, use in enumerate(uses):
                self._use(notes, claim, (number, position), use)
            if not pending:
                add_results(notes, run.id, number)
                self.store.send(notes.tx, run.id, 0.0)
        return True

    def finish(self, claim: ClaimedRun, step: ModelStep, answer: str) -> bool:
        """Store the model's last message, which is the answer of the run; False as `step` does."""
        run = claim.run
        with self.store.change(f"run {run.id}") as notes:
            if self._record(notes, claim, step, "running", 0) is None:
                return False
            return end_run(self.store, notes, (run.id, claim.epoch, "running"), "done", answer=answer)

    def again(self, claim: ClaimedRun, delay_s: float, error: ToolcribError | None, seconds: float) -> bool:
        """Give a model step back: after `error` it is tried again in this many seconds.

        Without one the worker ends, and another may take it at once.
        """
        run = claim.run
        with self.store.change(f"run {run.id}") as notes:
            tx = notes.tx
            ready = notes.now + max(0.0, delay_s)
            counts = (int(error is not None), int(error is None))
            if not tx.run(_AGAIN, ready, *counts, seconds, run.id, claim.epoch):
                return False
            forget_parts(tx, run.id, run.iteration + 1)
            kind, detail = ("handed_back", {}) if error is None else ("model_failed", error.as_dict())
            notes.add((run.id, run.root_id), kind, run.iteration + 1, **detail)
            self.store.send(tx, run.id, delay_s)
        return True

    def fail(self, claim: ClaimedRun, error: ToolcribError) -> bool:
        """End a run with an error; False if the worker lost the run."""
        with self.store.change(f"run {claim.run.id}") as notes:
            key = (claim.run.id, claim.epoch, "running")
            return end_run(self.store, notes, key, "failed", error=error)

    def chunk(self, claim: ClaimedRun, text: str) -> None:
        """Publish a part of the answer. It is an event until the whole message is stored."""
        run = claim.run
        with self.store.change(f"run {run.id}") as notes:
            # A worker that has lost the run must not add to the answer of the next one.
            if notes.tx.one(f"SELECT 1 FROM runs {_OWN}", run.id, claim.epoch):
                notes.add((run.id, run.root_id), "text", run.iteration + 1, text=text)

    # -- calls -----------------------------------------------------------------------------------

    def call_ended(self, tx: Transaction, call_id: str, state: str) -> None:
        """Count the end of a call, within the transaction that stores it and as the last thing in it."""
        notes = RunNotes(tx, tx.now())
        use_ended(self.store, notes, ("call_id", call_id), state, Usage())
        notes.write()
        tx.after_commit.append(self.store.events.wake)

    def rescue(self) -> list[str]:
        """Take the runs of dead or silent workers, at most 100, and send them again; return their ids."""
        rescued = []
        # A transaction each: the end of a run locks its parent and the events of all runs.
        for id, holder in lost_rows(self.store.database, "runs", self.lease_s):
            with self.store.change(f"run {id}") as notes:
                row = notes.tx.one(f"{_FACTS} WHERE id = ? AND {IS_LOST}", id, notes.now, holder)
                # None if its worker, which was frozen, has renewed the lease since.
                if row is not None and self._lost(notes, row):
                    rescued.append(id)
        return rescued

    def lose(self, claim: ClaimedRun, reason: str) -> bool:
        """Record that the process of a step has died, as `rescue` does; False if the worker lost the run."""
        with self.store.change(f"run {claim.run.id}") as notes:
            row = notes.tx.one(f"{_FACTS} {_OWN}", claim.run.id, claim.epoch)
            return row is not None and self._lost(notes, row, reason)

    def _lost(self, notes: RunNotes, row: tuple[Any, ...], reason: str = "") -> bool:
        id, epoch, rescues, worker = row
        if worker is not None and rescues >= _MAX_RESCUES:
            why = f": the last one {reason}" if reason else ""
            error = ToolFailed(f"{rescues + 1} workers that made this model step have died{why}")
            return end_run(self.store, notes, (id, epoch, "running"), "failed", error=error)
        found = notes.tx.one(_RESCUE, int(worker is not None), notes.now, id, epoch)
        if found is None:
            return False
        notes.add((id, found[0]), "rescued" if worker else "handed_back")
        self.store.send(notes.tx, id, 0.0)
        return True

    # -- parts -----------------------------------------------------------------------------------

    def _record(
        self, notes: RunNotes, claim: ClaimedRun, step: ModelStep, state: RunState, open_calls: int
    ) -> int | None:
        """Store a model step and return the number of its iteration; None if the worker lost the run."""
        tx, now, run = notes.tx, notes.now, claim.run
        row = tx.one(_STEP, state, open_calls, now, *step.usage, step.seconds, run.id, claim.epoch)
        if row is None:
            return None
        number, message = row
        usage = {"input_tokens": step.usage.input_tokens, "output_tokens": step.usage.output_tokens}
        iteration = {"run_id": run.id, "number": number, "live": 1, "model": step.model, **usage}
        iteration |= {"cost_usd": step.usage.cost_usd, "began_at": step.began_at, "answered_at": now}
        tx.add("run_iterations", {**iteration, "ended_at": None if open_calls else now})
        add_message(tx, (run.id, message, number, "response", step.response), now)
        forget_parts(tx, run.id, number)
        notes.add((run.id, run.root_id), "answered", number, model=step.model, **usage)
        return int(number)

    def _use(self, notes: RunNotes, claim: ClaimedRun, at: tuple[int, int], use: NewUse) -> None:
        run, (number, position) = claim.run, at
        call_id = child_id = None
        about: dict[str, Any] = {"name": use.name, "use_id": use.use_id}
        if use.call is not None:
            about["call_id"] = call_id = self.store.calls.submit(**use.call, transaction=notes.tx)
        elif use.child is not None:
            about["child_id"] = child_id = self._child(notes, claim, use.child)
        row = {"run_id": run.id, "iteration": number, "position": position, "use_id": use.use_id}
        row |= {"name": use.name, "arguments": use.arguments, "call_id": call_id, "child_id": child_id}
        ended = notes.now if use.answer is not None else None
        notes.tx.add("run_uses", {**row, "answer": use.answer, "ended_at": ended})
        notes.add((run.id, run.root_id), "call" if use.answer is None else "refused", number, **about)

    def _child(self, notes: RunNotes, claim: ClaimedRun, new: RunDraft) -> str:
        run = claim.run
        id = new_id(notes.now)
        row = run_row(id, run.session_id, new, json.dumps(dict(new.variables)), notes.now)
        place = {"root_id": run.root_id, "parent_id": run.id, "depth": run.depth + 1, "state": "ready"}
        place["trace"] = claim.trace
        self.store.insert_run(notes, {**row, **place})
        self.store.send(notes.tx, id, 0.0)
        return id


def end_run(
    store: RunStore,
    notes: RunNotes,
    key: tuple[str, int, str],
    state: RunState,
    *,
    answer: str | None = None,
    error: ToolcribError | None = None,
) -> bool:
    """End the run with this id, epoch and state, and continue what waited for it: parent or session.

    Return False if it is no longer like that.
    """
    tx, now = notes.tx, notes.now
    text = None if error is None else json.dumps(error.as_dict())
    row = tx.one(_END, state, answer, text, now, *key)
    if row is None:
        return False
    id, root_id, parent_id, session_id, iteration, *spent = row
    if state != "done":  # A question without its answers can never be shown to a model again.
        hide = (
            "UPDATE run_messages SET live = 0 WHERE run_id = ? AND iteration = ? AND kind = 'response'"
            " AND EXISTS (SELECT 1 FROM run_iterations WHERE run_id = ? AND number = ? AND ended_at IS NULL)"
        )
        tx.run(hide, id, iteration, id, iteration)
    detail = {} if error is None else {"error": error.as_dict()}
    notes.add((id, root_id), state, iteration, **detail)
    if parent_id is not None:
        use_ended(store, notes, ("child_id", id), state, Usage(*spent))
        return True
    # It locks the session, as the creation of a run does: that one sees the session free, or is seen here.
    tx.run("UPDATE sessions SET active_run = NULL WHERE id = ? AND active_run = ?", session_id, id)
    if tx.one("SELECT 1 FROM sessions WHERE id = ? AND active_run IS NULL", session_id):
        following = tx.one(_QUEUED, session_id)
        while following and not tx.run(_NEXT, now, *following):  # That one was cancelled meanwhile.
            following = tx.one(_QUEUED, session_id)
        if following is not None:
            tx.run("UPDATE sessions SET active_run = ? WHERE id = ?", following[0], session_id)
            store.send(tx, following[0], 0.0)
    return True


def use_ended(store: RunStore, notes: RunNotes, key: tuple[str, str], state: str, spent: Usage) -> None:
    """Count the end of a call or of a child's run; the last one makes the run ready and sends it."""
    tx, now = notes.tx, notes.now
    column, value = key
    row = tx.one(_CALL_ENDED.format(column), now, value)
    if row is None:
        return
    run_id, iteration, position, name = row
    # None if the run was cancelled meanwhile: then nobody waits for this result.
    left = tx.one(_ONE_LESS, *spent, run_id, iteration)
    if left is None:
        return
    open_calls, root_id = left
    notes.add((run_id, root_id), "call_ended", iteration, name=name, position=position, state=state)
    if open_calls == 0 and tx.run(_READY, now, *(run_id, iteration) * 2, run_id):
        ended = "UPDATE run_iterations SET ended_at = ? WHERE run_id = ? AND number = ?"
        tx.later(ended, now, run_id, iteration)
        add_results(notes, run_id, iteration)
        store.send(tx, run_id, 0.0)


def forget_parts(tx: Transaction, run_id: str, iteration: int) -> None:
    """Delete the parts of an answer: the whole is stored, or it comes again from its beginning."""
    tx.later("DELETE FROM run_events WHERE run_id = ? AND kind = 'text' AND iteration = ?", run_id, iteration)


def add_results(notes: RunNotes, run_id: str, iteration: int) -> None:
    """Store the message with the results of a complete iteration."""
    (number,) = notes.tx.one(_RESULTS, run_id) or (0,)
    content = results_message(notes.tx, run_id, iteration)
    add_message(notes.tx, (run_id, number, iteration, "results", content), notes.now)
