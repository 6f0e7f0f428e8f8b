"""Actions on runs: cancel a tree, continue a run, and start another one from an earlier point of it."""

from __future__ import annotations

from toolcrib.errors import ConflictError, InvalidInput, NotFoundError
from toolcrib.runs.sessions.events import RunNotes
from toolcrib.runs.sessions.records import ENDED, Run
from toolcrib.runs.sessions.store import TAKE_SESSION, RunDraft, RunStore, require_length
from toolcrib.runs.sessions.transitions import end_run
from toolcrib.spec.identifier import new_id

_OPEN_CALLS = (
    "SELECT call_id FROM run_uses JOIN runs ON runs.id = run_uses.run_id WHERE call_id IS NOT NULL"
    " AND run_uses.ended_at IS NULL AND runs.id = ? AND runs.epoch = ? AND runs.state = ?"
)
_AGAIN = (
    "UPDATE runs SET state = ?, epoch = epoch + 1, ready_at = ?, ended_at = NULL, error = NULL,"
    " answer = NULL, failures = 0, rescues = 0 WHERE id = ? AND state = ? AND epoch = ?"
)
_LATER_RUN = "SELECT id FROM runs WHERE session_id = ? AND parent_id IS NULL AND id > ? LIMIT 1"


class RunTree:
    """The changes that people make."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def cancel(self, id: str) -> list[str]:
        """End a run and all below it; return their ids. What their workers record later is refused.

        A run and its open calls end together, or not at all.

        Raises `ConflictError` if it has ended, `NotFoundError`.
        """
        top = self._store.find(id)
        cancelled: list[str] = []
        # Again until none is left: a run may have begun another one just before its end.
        while left := [run for run in self._store.tree(id) if run.state not in ENDED]:
            # The lowest first, as they end by themselves: so two transactions never wait for each other.
            for run in sorted(left, key=lambda run: run.id, reverse=True):
                key = (run.id, run.epoch, run.state)
                with self._store.change(f"run {run.id}") as notes:
                    calls = [str(row[0]) for row in notes.tx.all(_OPEN_CALLS, *key)]
                    with self._store.calls.cancelling(notes.tx, calls):
                        if end_run(self._store, notes, key, "cancelled"):
                            cancelled.append(run.id)
        if not cancelled:
            raise ConflictError(f"run {id} has ended: it is {top.state}")
        return cancelled

    def retry(self, id: str, iteration: int | None = None, agent: tuple[str, str] | None = None) -> None:
        """Continue a failed or cancelled run after its last complete iteration, or after an earlier one.

        `agent`, a definition and a provider, replaces the agent by one with, for example, another budget.

        Raises `ConflictError` for a run of another state, of a sub-agent, or with later runs in its session.
        """
        run = self._store.find(id)
        if run.state not in ("failed", "cancelled"):
            raise ConflictError(
                f"run {id} is {run.state}; only a failed or cancelled run can be retried",
                hint="To try another way from one of its iterations: toolcrib runs fork.",
            )
        if run.parent_id is not None:
            raise ConflictError(f"run {id} was made by an agent", hint=f"Retry its root, {run.root_id}.")
        with self._store.change(f"session {run.session_id}") as notes:
            tx, now = notes.tx, notes.now
            # New runs of the session are written in the same scope, so none begins between this and the
            # change.
            later = tx.one(_LATER_RUN, run.session_id, id)
            if later is not None:
                raise ConflictError(
                    f"the session has continued after run {id}", hint="Fork it: toolcrib runs fork."
                )
            keep = _cut(notes, run, iteration)
            # One that was cancelled in its queue still waits for the run before it.
            (active,) = tx.one(TAKE_SESSION, id, run.session_id) or (None,)
            first = active == id
            if not tx.run(_AGAIN, "ready" if first else "queued", now, id, run.state, run.epoch):
                raise ConflictError(f"run {id} has changed meanwhile")
            if agent is not None:
                tx.run("UPDATE runs SET definition = ?, provider = ? WHERE id = ?", *agent, id)
            notes.add((run.id, run.root_id), "retried", keep)
            if first:
                self._store.send(tx, id, 0.0)

    def fork(
        self,
        id: str,
        iteration: int | None = None,
        prompt: str | None = None,
        agent: tuple[str, str] | None = None,
        *,
        caller: str = "local",
        identity: str | None = None,
    ) -> str:
        """Begin a run of this caller, in a new session, that continues after an iteration; return its id.

        It sees what the model saw then. Without `iteration` that is the last complete one; 0 is the prompt
        alone. With `prompt`, the model gets this next. `agent` is as in `retry`. Raises `NotFoundError` for
        an iteration.
        """
        run = self._store.find(id)
        require_length(prompt or "")
        seen = self._store.conversation(run)
        complete = {one.number for one in self._store.iterations(id) if one.live and one.ended_at is not None}
        last = max(complete, default=0) if iteration is None else iteration
        if last and last not in complete:
            raise NotFoundError(f"run {id} has no complete iteration {last}")
        kept = [one for one in seen if one.run_id != id or one.iteration <= last]
        is_answer = run.state == "done" and last == run.iteration
        if prompt is None and kept and kept[-1].kind == "response" and is_answer:
            raise InvalidInput(
                "that iteration is the run's answer", hint="Give a prompt to continue from it."
            )
        messages = [(one.kind, one.content) for one in kept]
        if prompt is not None:
            messages.append(("prompt", prompt.encode()))
        asked = run.prompt if prompt is None else prompt
        with self._store.change(f"session {new_id()}") as notes:
            found = notes.tx.one("SELECT definition, provider, streams FROM runs WHERE id = ?", id)
            assert found is not None
            *defined, streams = found
            definition, provider = agent or defined
            new = RunDraft(run.agent, definition, provider, asked, {}, caller, identity, bool(streams))
            return self._store.insert_root(notes, None, new, run.variables, messages, forked_from=id)


def _cut(notes: RunNotes, run: Run, iteration: int | None) -> int:
    """Take everything after an iteration out of the conversation; return the iteration."""
    tx = notes.tx
    query = "SELECT number FROM run_iterations WHERE run_id = ? AND live = 1 AND ended_at IS NOT NULL"
    complete = [int(number) for (number,) in tx.all(query, run.id)]
    keep = max(complete, default=0) if iteration is None else iteration
    if keep and keep not in complete:
        raise NotFoundError(f"run {run.id} has no complete iteration {keep}")
    tx.run("UPDATE run_messages SET live = 0 WHERE run_id = ? AND iteration > ?", run.id, keep)
    tx.run("UPDATE run_iterations SET live = 0 WHERE run_id = ? AND number > ?", run.id, keep)
    return keep
