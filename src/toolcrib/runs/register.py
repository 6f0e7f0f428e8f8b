"""The register of workers: who serves which tools, why not the others, and when it was last heard of."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from toolcrib.runs.dispatch import Dispatcher
from toolcrib.spec.identifier import new_id
from toolcrib.spec.record import json_form, record
from toolcrib.state import LEASE_S, Database, has_ended, this_process

WorkerKind = Literal["worker", "embedded"]
"""`worker`: a process that serves for all. `embedded`: one that has opened the project for something else."""
_BEAT = "UPDATE workers SET running = ?, seen_at = ? WHERE id = ?"
_LIVE = "SELECT id, process, name, kind, tools, refused, running, began_at, seen_at FROM workers"
# A worker that ends with its program serves what nobody else does, which may be long: it is not read.
_OTHERS = (
    "SELECT id, process, CASE kind WHEN 'worker' THEN tools END FROM workers WHERE id <> ? AND seen_at > ?"
)
_FORGET_S = 3_600.0


class Offer(NamedTuple):
    """The calls and runs that a process takes."""

    tools: Mapping[str, int | None]
    """The number of calls of each tool that run at a time in all workers; None: any number."""
    refused: Mapping[str, str] = {}
    """The tools that it has and does not run, with the reasons."""
    providers: tuple[str, ...] = ()
    """The providers of the models whose runs it advances."""
    manifests: Mapping[str, str] = {}
    """SHA-256 of the manifests of those that are offered as these say."""


def reasons_of(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the tools by their reason."""
    found: dict[str, list[str]] = {}
    for tool, reason in sorted(refused.items()):
        found.setdefault(reason, []).append(tool)
    return found


@record
class LiveWorker:
    """A worker that was heard of lately."""

    name: str
    kind: WorkerKind
    tools: frozenset[str]
    refused: Mapping[str, list[str]]
    """The tools that it does not run, by reason."""
    running: int
    began_at: float
    seen_at: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**json_form(self), "tools": sorted(self.tools)}


class Register:
    """The entry of one worker in the table `workers`."""

    def __init__(self, database: Database, name: str, kind: WorkerKind) -> None:
        self._database = database
        self.id = new_id()
        self._row = {"id": self.id, "name": name, "kind": kind, "process": this_process()}
        self._written: tuple[object, object] | None = None
        """What it serves and refuses, as it was written last."""
        self._stay: tuple[list[str], frozenset[str]] = [], frozenset()
        """What the workers of the kind `worker` serve: as it is written, and read."""
        self._began_at: float | None = None

    def beat(
        self, tools: Collection[str], refused: Mapping[str, str], running: int, lease_s: float = LEASE_S
    ) -> tuple[frozenset[str], list[str]]:
        """Write that this worker is there, and what it serves where these are other objects than before.

        Return of the workers that were heard of in the last `lease_s` seconds the tools that others of the
        kind `worker` serve, and the ids of those whose process has ended on this machine.
        """
        is_same = self._written is not None and self._written[0] is tools and self._written[1] is refused
        with self._database.write(f"worker {self.id}") as tx:
            now = tx.now()
            self._began_at = self._began_at or now
            if not is_same or not tx.run(_BEAT, running, now, self.id):
                tx.run("DELETE FROM workers WHERE id = ? OR seen_at < ?", self.id, now - _FORGET_S)
                serves = json.dumps(sorted(one for one in tools if one not in refused))
                row = {**self._row, "tools": serves, "refused": json.dumps(reasons_of(refused))}
                tx.add("workers", {**row, "running": running, "began_at": self._began_at, "seen_at": now})
            rows = tx.all(_OTHERS, self.id, now - lease_s)
        self._written = tools, refused
        dead = [id for id, process, _ in rows if has_ended(process)]
        stay = [served for id, _, served in rows if served is not None and id not in dead]
        if stay != self._stay[0]:
            self._stay = stay, frozenset[str]().union(*map(json.loads, stay))
        return self._stay[1], dead

    def remove(self, dispatcher: Dispatcher, *workers: str) -> None:
        """Remove these workers, which have ended, or without any this one; let others have their messages."""
        ids = sorted(workers) or [self.id]
        with self._database.write(f"worker {ids[0]}") as tx:
            for id in ids:
                tx.run("DELETE FROM workers WHERE id = ?", id)
            dispatcher.forget(tx, ids)


def live_workers(database: Database, lease_s: float) -> list[LiveWorker]:
    """Return the workers whose process is not dead and was heard of in the last `lease_s` seconds."""
    with database.read() as tx:
        # The oldest first: ids begin with their time.
        rows = tx.all(f"{_LIVE} WHERE seen_at > ? ORDER BY id", tx.now() - lease_s)
    return [
        LiveWorker(name, kind, frozenset(json.loads(tools)), json.loads(refused), *rest)
        for _, process, name, kind, tools, refused, *rest in rows
        if not has_ended(process)
    ]
