"""The register of workers: who serves which tools, and when it was last heard of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from toolcrib.spec.record import json_form, record
from toolcrib.state import Database

WorkerKind = Literal["worker", "embedded"]
"""`worker`: a process that serves for all. `embedded`: one that has opened the project for something else."""
_BEAT = (
    "INSERT INTO workers (id, name, kind, tools, running, began_at, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET tools = excluded.tools, running = excluded.running,"
    " seen_at = excluded.seen_at"
)
_LIVE = "SELECT name, kind, tools, running, began_at, seen_at FROM workers"
_FORGET_S = 3_600.0


@record
class LiveWorker:
    """A worker that was heard of lately."""

    name: str
    kind: WorkerKind
    tools: frozenset[str]
    running: int
    began_at: float
    seen_at: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**json_form(self), "tools": sorted(self.tools)}


class Register:
    """The table `workers`. One that was not heard of for `lease_s` seconds is taken for dead."""

    def __init__(self, database: Database, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s

    def beat(self, id: str, name: str, kind: WorkerKind, tools: Sequence[str], running: int) -> None:
        """Write that this worker is there."""
        with self._database.write(f"worker {id}") as tx:
            now = tx.now()
            tx.run(_BEAT, id, name, kind, json.dumps(tools), running, now, now)
            tx.run("DELETE FROM workers WHERE seen_at < ?", now - _FORGET_S)

    def remove(self, id: str) -> None:
        """Write that this worker has ended."""
        with self._database.write(f"worker {id}") as tx:
            tx.run("DELETE FROM workers WHERE id = ?", id)

    def live(self) -> list[LiveWorker]:
        """Return the workers that were heard of lately, the oldest first."""
        with self._database.read() as tx:
            rows = tx.all(f"{_LIVE} WHERE seen_at > ? ORDER BY id", tx.now() - self._lease_s)
        return [
            LiveWorker(name, kind, frozenset(json.loads(tools)), *rest) for name, kind, tools, *rest in rows
        ]
