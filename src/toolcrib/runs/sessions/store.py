"""The rows of sessions and runs: made here, and read for every interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Unpack, cast, get_args

from toolcrib.core.context import new_trace
from toolcrib.errors import ConflictError, InvalidInput, NotFoundError
from toolcrib.runs.calls import DurableCalls
from toolcrib.runs.dispatch import Delivery, run_entry
from toolcrib.runs.filters import Conditions, Filters, batches, conditions, count
from toolcrib.runs.history import states_of
from toolcrib.runs.sessions.events import RunEvents, RunNotes
from toolcrib.runs.sessions.records import (
    ENDED,
    ITERATION_COLUMNS,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    USE_COLUMNS,
    Iteration,
    Run,
    RunState,
    Session,
    StoredMessage,
    ToolUse,
)
from toolcrib.spec.identifier import new_id
from toolcrib.spec.record import record
from toolcrib.state import DatabaseWatch, Transaction, ask
from toolcrib.state.database import ids, newest

_MAX_TEXT = 1_000_000
_MAX_VARIABLES = 256_000
TAKE_SESSION = "UPDATE sessions SET active_run = COALESCE(active_run, ?) WHERE id = ? RETURNING active_run"
"""It locks the session even if another run has it: so the end of that run sees the one that waits."""
_MESSAGES = "SELECT run_id, number, iteration, kind, content FROM run_messages"


@record
class RunDraft:
    """A run to be stored."""

    agent: str
    definition: str
    """The agent as JSON."""
    provider: str
    """The provider of its model; workers that can use it take the run."""
    prompt: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    caller: str = "local"
    identity: str | None = None
    streams: bool = False
    trace: str | None = None
    """The `traceparent` that the run is below; without it the run begins a trace."""


class RunStore:
    """The sessions and runs beside these calls. Safe for threads, processes and, on a server, machines."""

    def __init__(self, calls: DurableCalls) -> None:
        self.calls = calls
        self.database = calls.database
        self.events = RunEvents(self.database)
        self._ends: DatabaseWatch[RunState] = DatabaseWatch(self._ended, self.database)

    def send(self, tx: Transaction, run_id: str, delay_s: float) -> None:
        """Ask, within the transaction, that a worker advances a run in this many seconds."""
        (provider,) = tx.one("SELECT provider FROM runs WHERE id = ?", run_id) or ("",)
        self.calls.dispatcher.send(tx, Delivery(run_entry(provider), run_id, delay_s))

    @contextmanager
    def change(self, scope: str) -> Iterator[RunNotes]:
        """Open a transaction whose events are stored at its end."""
        with self.database.write(scope) as tx:
            notes = RunNotes(tx, tx.now())
            yield notes
            notes.write()
        # After the commit: who is woken must see what was written.
        self.events.wake()
        if notes.has_end:
            self._ends.notify()

    async def wait(self, id: str, timeout_s: float | None = None) -> Run:
        """Return a run once it has ended, or as it is when the time is up; `NotFoundError`."""
        await ask(self.database, lambda: self.find(id))
        await self._ends.wait(id, timeout_s)
        return await ask(self.database, lambda: self.find(id))

    def _ended(self, ids: Sequence[str]) -> Mapping[str, RunState]:
        return {id: state for id, state in states_of(self.database, "runs", ids) if state in ENDED}

    # -- new ones --------------------------------------------------------------------------------

    def create_session(self, caller: str = "local", metadata: Mapping[str, Any] | None = None) -> str:
        """Store a session and return its id. `metadata` is a JSON object for its owner."""
        with self.database.write("session") as tx:
            return self._insert_session(tx, tx.now(), caller, _json_object("metadata", metadata or {}))

    def _insert_session(self, tx: Transaction, now: float, caller: str, metadata: str) -> str:
        id = new_id(now)
        row = {"id": id, "caller": caller, "metadata": metadata, "created_at": now}
        tx.add("sessions", row)
        return id

    def create_run(
        self,
        session_id: str | None,
        new: RunDraft,
        note: Callable[[Transaction, str], None] | None = None,
    ) -> str:
        """Store a run of a session, or of a new one, and return its id.

        It waits while an earlier run of the session has not ended. Raises `NotFoundError` for the session,
        and `InvalidInput` for variables that are not JSON.
        """
        variables = _json_object("variables", new.variables)
        require_length(new.prompt)
        with self.change(f"session {session_id or new_id()}") as notes:
            run = self.insert_root(notes, session_id, new, variables)
            if note is not None:
                note(notes.tx, run)
            return run

    def insert_root(
        self,
        notes: RunNotes,
        session_id: str | None,
        new: RunDraft,
        variables: str,
        messages: Sequence[tuple[str, bytes]] | None = None,
        forked_from: str | None = None,
    ) -> str:
        """Add a run that no agent calls, and return its id. `messages` (kind, content) replace its prompt."""
        tx, now = notes.tx, notes.now
        if session_id is None:
            session_id = self._insert_session(tx, now, new.caller, "{}")
        id = new_id(now)
        active = tx.one(TAKE_SESSION, id, session_id)
        if active is None:
            raise NotFoundError(f"there is no session {session_id[:100]!r}")
        # Otherwise the end of the run before starts it (`end_run`).
        first = active[0] == id
        row = run_row(id, session_id, new, variables, now)
        row |= {
            "root_id": id,
            "depth": 0,
            "state": "ready" if first else "queued",
            "forked_from": forked_from,
        }
        self.insert_run(notes, row, messages)
        if first:
            self.send(tx, id, 0.0)
        return id

    @staticmethod
    def insert_run(
        notes: RunNotes, row: Mapping[str, Any], messages: Sequence[tuple[str, bytes]] | None = None
    ) -> None:
        """Add a run with its messages, by default its prompt."""
        if messages is None:
            messages = [("prompt", row["prompt"].encode())]
        notes.tx.add("runs", {**row, "messages": len(messages)})
        for number, (kind, content) in enumerate(messages, 1):
            add_message(notes.tx, (row["id"], number, 0, kind, content), notes.now)
        about = {"agent": row["agent"], "parent_id": row.get("parent_id"), "session_id": row["session_id"]}
        if row.get("forked_from") is not None:
            about["forked_from_id"] = row["forked_from"]
        notes.add((row["id"], row["root_id"]), "created", **about)

    # -- reading ---------------------------------------------------------------------------------

    def session(self, id: str, caller: str | None = None) -> Session:
        """Return a session, if it is one of this caller; `NotFoundError`."""
        rows = self.database.rows(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", id)
        found = Session(*cast("Any", rows[0])) if rows else None
        if found is None or caller not in (None, found.caller):
            raise NotFoundError(f"there is no session {id[:100]!r}")
        return found

    def sessions(
        self, limit: int = 100, *, before: str | None = None, caller: str | None = None
    ) -> Sequence[Session]:
        """Return sessions, the newest first, at most 500; `before` is the last id of the page before."""
        rows = newest(self.database, "sessions", SESSION_COLUMNS, {"caller": caller}, limit, before=before)
        return [Session(*cast("Any", row)) for row in rows]

    def find(self, id: str, caller: str | None = None) -> Run:
        """Return a run as it is now, if it is one of this caller; `NotFoundError`."""
        rows = self.database.rows(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", id)
        found = Run(*cast("Any", rows[0])) if rows else None
        if found is None or caller not in (None, found.caller):
            raise NotFoundError(f"there is no run {id[:100]!r}", hint="To see all: toolcrib runs list")
        return found

    def resolve(self, beginning: str, table: str = "runs") -> str:
        """Return the id that begins like this; `NotFoundError`, or `ConflictError` if there are several."""
        kind = table.removesuffix("s")
        found = ids(self.database, table, beginning.lower())
        if not found:
            listed = "runs list" if kind == "run" else "runs sessions list"
            raise NotFoundError(
                f"there is no {kind} {beginning[:100]!r}", hint=f"To see all: toolcrib {listed}"
            )
        if len(found) > 1:
            raise ConflictError(
                f"several ids begin with {beginning[:100]!r}", hint=f"Give more of the {kind}'s id."
            )
        return found[0]

    def page(
        self,
        state: str | Sequence[str] | None = None,
        limit: int = 100,
        *,
        before: str | None = None,
        top: bool = False,
        **filters: Unpack[Conditions],
    ) -> Sequence[Run]:
        """Return runs, the newest first, at most 500; `before` is the last id of the page before.

        `top`: only those that no agent called.
        """
        wanted = _columns(Filters(**filters, state=state), top=top)
        rows = newest(self.database, "runs", RUN_COLUMNS, wanted, limit, before=before)
        return [Run(*cast("Any", row)) for row in rows]

    def count(self, *, top: bool = True, **filters: Unpack[Filters]) -> int:
        """Return how many runs match."""
        return count(self.database, "runs", _columns(filters, top=top))

    def batches(self, filters: Filters) -> Iterator[list[str]]:
        """Yield the ids of the matching runs that no agent called, a few hundred at a time."""
        return batches(self.database, "runs", _columns(filters, top=True))

    def counts(self, caller: str | None = None) -> dict[str, int]:
        """Return how many runs there are, of this caller or of all, by state."""
        return {state: self.count(state=state, caller=caller) for state in get_args(RunState)}

    def tree(self, id: str) -> Sequence[Run]:
        """Return a run and those below it, each after the one that called it; `NotFoundError`."""
        top = self.find(id)
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE root_id = ? ORDER BY id"
        found = {top.id: top}
        # Ids begin with their time, so the run that called another one comes before it.
        for run in (Run(*cast("Any", row)) for row in self.database.rows(query, top.root_id)):
            if run.parent_id in found:
                found[run.id] = run
        return list(found.values())

    def iterations(self, id: str) -> Sequence[Iteration]:
        """Return the iterations of a run, the first one first."""
        query = f"SELECT {ITERATION_COLUMNS} FROM run_iterations WHERE run_id = ? ORDER BY number"
        return [Iteration(*cast("Any", row)) for row in self.database.rows(query, id)]

    def uses(self, id: str) -> Sequence[ToolUse]:
        """Return the calls that the model of a run asked for."""
        query = f"SELECT {USE_COLUMNS} FROM run_uses WHERE run_id = ? ORDER BY iteration, position"
        return [ToolUse(*cast("Any", row)) for row in self.database.rows(query, id)]

    def messages(self, id: str, *, every: bool = False) -> Sequence[StoredMessage]:
        """Return the messages of a run alone; with `every` also those that a retry replaced."""
        live = "" if every else " AND live = 1"
        rows = self.database.rows(f"{_MESSAGES} WHERE run_id = ?{live} ORDER BY number", id)
        return [StoredMessage(*cast("Any", row)) for row in rows]

    def conversation(self, run: Run) -> Sequence[StoredMessage]:
        """Return what a run's model sees: for a run at the top, after those of the session before it.

        It begins with the newest summary, if there is one.
        """
        if run.parent_id is not None:
            query, values = f"{_MESSAGES} WHERE run_id = ? AND live = 1 ORDER BY number", [run.id]
        else:
            # Ids begin with their time, so `id <= ?` are the runs before it.
            query = (
                f"{_MESSAGES} WHERE live = 1 AND run_id IN (SELECT id FROM runs WHERE session_id = ?"
                " AND parent_id IS NULL AND id <= ?) ORDER BY run_id, number"
            )
            values = [run.session_id, run.id]
        found = [StoredMessage(*cast("Any", row)) for row in self.database.rows(query, *values)]
        summaries = [at for at, message in enumerate(found) if message.kind == "summary"]
        return found[summaries[-1] :] if summaries else found


def require_length(prompt: str) -> None:
    """Raise InvalidInput for a prompt that is too long."""
    if len(prompt) > _MAX_TEXT:
        raise InvalidInput(f"the prompt has more than {_MAX_TEXT:,} characters")


def _columns(filters: Filters, *, top: bool) -> dict[str, Any]:
    return {**conditions("runs", filters), "parent_id IS NULL": True if top else None}


def run_row(id: str, session_id: str, new: RunDraft, variables: str, now: float) -> dict[str, Any]:
    """Return the row of a run that has not begun; the place in its tree and the state are not in it."""
    counts = ("epoch", "iteration", "open_calls", "failures", "rescues", "input_tokens", "output_tokens")
    return {
        "id": id,
        "session_id": session_id,
        "agent": new.agent,
        "definition": new.definition,
        "provider": new.provider,
        "caller": new.caller,
        "identity": new.identity,
        "variables": variables,
        "prompt": new.prompt,
        "streams": int(new.streams),
        "trace": new.trace or new_trace(),
        "ready_at": now,
        "created_at": now,
        **dict.fromkeys(counts, 0),
        **dict.fromkeys(("cost_usd", "active_s"), 0.0),
    }


def add_message(tx: Transaction, message: tuple[str, int, int, str, bytes], now: float) -> None:
    """Add a message: run, number, iteration, kind, content."""
    run_id, number, iteration, kind, content = message
    row = {"run_id": run_id, "number": number, "iteration": iteration, "kind": kind, "content": content}
    tx.add("run_messages", {**row, "live": 1, "at": now})


def _json_object(what: str, value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the {what} are not JSON: {error}", hint="Use texts, numbers, booleans, null, lists, objects."
        ) from None
    if len(text) > _MAX_VARIABLES:
        raise InvalidInput(f"the {what} have more than {_MAX_VARIABLES:,} characters")
    return text
