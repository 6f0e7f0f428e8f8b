"""Delivery of what is ready to the workers of many machines, by PgQueuer in the same Postgres database.

PgQueuer's queue says who looks at what: workers hear of messages by LISTEN/NOTIFY, a message whose worker is
silent is delivered again, and a limit of concurrent calls counts over all workers. It is only a copy. So its
tables are unlogged, and what a crash of the server takes from them is sent again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from toolcrib.errors import StateUnavailable
from toolcrib.runs.dispatch import Delivery, Dispatcher, EmbeddedDispatcher, not_taken, within_delay
from toolcrib.runs.serving import Serving, Take, note_lost
from toolcrib.spec.identifier import new_id
from toolcrib.state import LEASE_S, POSTGRES_NOW, Database, Transaction
from toolcrib.state.drivers.postgres import PostgresDatabase

_LEAST, _MOST = -(2**31), 2**31 - 1
"""PgQueuer's priorities."""
# A message counts while it is queued or its worker was heard of; that of a dead worker does not.
_LIVE = (
    "SELECT 1 FROM pgqueuer WHERE pgqueuer.entrypoint = ready.entry"
    " AND pgqueuer.payload = convert_to(ready.key, 'UTF8')"
    " AND (status = 'queued' OR heartbeat > NOW() - CAST(? AS DOUBLE PRECISION) * INTERVAL '1 second')"
)
_UNSENT = f"FROM ({{}}) AS ready WHERE ready_at <= {POSTGRES_NOW} AND NOT EXISTS ({_LIVE})"
_RESEND = (
    "INSERT INTO pgqueuer (entrypoint, payload, priority, execute_after, status)"
    f" SELECT entry, convert_to(key, 'UTF8'), LEAST({_MOST}, GREATEST({_LEAST}, priority)), NOW(), 'queued'"
    f" {_UNSENT} LIMIT 1000"
)
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtext(current_schema() || ?))"
_THERE = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'pgqueuer'"
"""`to_regclass` could answer from before the lock was waited for."""
_RETRY_S = 0.5
_PAUSE_S = 1.0
_LOG_S = 600.0
"""Seconds between two times that PgQueuer's log is emptied, which nobody reads."""


class PgQueuerDispatcher:
    """A `Dispatcher` for many machines.

    A message is delivered again if its worker was silent for `silent_s` seconds.
    """

    def __init__(self, database: PostgresDatabase, *, silent_s: float = LEASE_S) -> None:
        self._database = database
        self._silent_s = silent_s
        self.limits: Callable[[str], int] = lambda _entry: 0
        """Returns how many works of an entry may run at a time on all workers together; 0: any number."""
        self._resent_until = 0.0
        self._emptied = time.monotonic()
        self._serving: list[Serving] = []
        database.migrate_also(self._install)

    def send(self, tx: Transaction, *deliveries: Delivery) -> None:
        """Have keys delivered; one that is sent twice is delivered twice."""
        now = tx.now()
        # As PgQueuer's own statement does, without its import and its log.
        tx.add(
            "pgqueuer",
            *(
                {
                    "entrypoint": one.entry,
                    "payload": one.key.encode(),
                    "priority": max(_LEAST, min(_MOST, one.priority)),
                    "execute_after": datetime.fromtimestamp(now + within_delay(one.delay_s), UTC),
                    "status": "queued",
                }
                for one in not_taken(self._serving, tx, deliveries)
            ),
        )

    def resend(self, ready: str) -> int:
        """Send the rows that have no message, and return their number: at most 1,000, at most once a second.

        Of all processes one does it at a time.
        """
        began = time.monotonic()
        if began < self._resent_until:
            return 0
        empties, sent = began > self._emptied + _LOG_S, 0
        # Looked at first: an insertion of no rows would notify every worker, too.
        unsent = self._database.rows(f"SELECT 1 {_UNSENT.format(ready)} LIMIT 1", self._silent_s)
        if unsent or empties:
            with self._database.write(f"resend {os.getpid()} {id(self)}") as tx:
                if tx.one(_ALONE, ready) != (True,):
                    return 0
                sent = tx.run(_RESEND.format(ready), self._silent_s)
                if empties:
                    tx.run("TRUNCATE pgqueuer_log")
                    self._emptied = began
        ended = time.monotonic()
        self._resent_until = ended + max(_PAUSE_S, 20 * (ended - began))  # Where many wait, it takes longer.
        return sent

    def forget(self, tx: Transaction, workers: Sequence[str]) -> None:
        """Let others have what these workers had picked: without a message it is sent again."""
        tx.run("DELETE FROM pgqueuer WHERE queue_manager_id = ANY(CAST(? AS UUID[]))", list(workers))

    def prepare(self) -> None:
        """Import PgQueuer: half a second in which nothing could be served."""
        import toolcrib.runs.serve_postgres  # noqa: F401 - only for its time

    def _install(self) -> None:
        """Make PgQueuer's tables in our schema, unless they are there."""
        server = self._database.server
        # Most starts find the tables, and must not wait for the lock.
        with server.transaction("BEGIN READ ONLY") as tx:
            if tx.one(_THERE) is not None:
                return
        from toolcrib.runs.serve_postgres import install_script

        script = install_script(server.schema)
        with server.transaction("BEGIN") as tx:
            tx.one("SELECT pg_advisory_xact_lock(hashtext(current_schema() || '/pgqueuer'))")
            # Asked again under the lock: another process may have made them while this one waited.
            if tx.one(_THERE) is None:
                tx.run(f"DO $toolcrib$ BEGIN EXECUTE $script${script}$script$; END $toolcrib$")

    async def serve(
        self, handlers: Mapping[str, Take], *, stop: asyncio.Event, concurrency: int = 100, worker: str = ""
    ) -> None:
        """Take what is sent to these entries and do the work, until `stop` is set and all work has ended.

        A connection that breaks is made again; what runs continues meanwhile.
        """
        from toolcrib.runs.serve_postgres import Works, serve_once

        works = Works(self._database, handlers, stop, concurrency, worker or new_id())
        self._serving.append(works)
        try:
            while not stop.is_set():
                try:
                    await asyncio.to_thread(self._database.migrate)
                    await serve_once(self._database.server, works, self._silent_s, self.limits)
                except StateUnavailable as error:
                    note_lost(self._database, error)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_RETRY_S):
                            await stop.wait()
            await works.end()
        finally:
            self._serving.remove(works)
            await works.cancel()


def dispatcher_for(database: Database, silent_s: float = LEASE_S) -> Dispatcher:
    """Return the dispatcher for a database: PgQueuer on Postgres, else the one that needs nothing."""
    if isinstance(database, PostgresDatabase):
        return PgQueuerDispatcher(database, silent_s=silent_s)
    return EmbeddedDispatcher(database)
