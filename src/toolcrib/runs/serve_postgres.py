"""The messages of PgQueuer in one event loop; imported where calls are served, for PgQueuer's import is slow.

PgQueuer's tables and its statement that picks messages are used, and not its loop: that wakes ten times a
second, writes a log that nobody reads, and keeps each message until its work has ended. A row that is taken
needs no message any more, so it is used up in the same transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder
from pgqueuer.db import PsycopgDriver
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import Channel, QueueEntrypoint, QueueManagerId
from pgqueuer.queries import Queries
from psycopg.rows import dict_row

from toolcrib.runs.dispatch import then_wake
from toolcrib.runs.serving import BATCH, Handlers, Serving, Take, Work, whole
from toolcrib.state.drivers.postgres import PostgresDatabase, PostgresServer

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_LOOK_S, _LEAST_S = 2.0, 0.1
"""The most and the least seconds until the next look for messages when no notification comes."""
_USED = "DELETE FROM pgqueuer WHERE id = ANY({})"
_NOT_TAKEN = "DELETE FROM pgqueuer WHERE queue_manager_id = $1 AND id <> ALL($2)"
_HELD = "UPDATE pgqueuer SET heartbeat = NOW() WHERE id = ANY($1)"
# One step in the index for each entry that has messages: a worker may serve thousands that have none.
_ENTRIES = (
    "WITH RECURSIVE entries AS (SELECT MIN(entrypoint) AS entry FROM pgqueuer UNION ALL"
    " SELECT (SELECT MIN(entrypoint) FROM pgqueuer WHERE entrypoint > entry) FROM entries"
    " WHERE entry IS NOT NULL) SELECT entry FROM entries WHERE entry IS NOT NULL"
)
# From a second ago: a message may have become due since the look before.
_NEXT = (
    "SELECT EXTRACT(EPOCH FROM MIN(execute_after) - NOW())::float8 AS pause FROM pgqueuer"
    " WHERE status = 'queued' AND execute_after > NOW() - INTERVAL '1 second' AND entrypoint = ANY($1)"
)


class Message(NamedTuple):
    """A message that was picked."""

    id: int
    entry: str
    key: str
    is_limited: bool
    """It counts for the limit of its entry while it is there."""


def settings(schema: str) -> DBSettings:
    """Return the names of the tables and the channel for a schema."""
    channel = f"toolcrib_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"
    # Without the environment, which may name the tables of another program's queue.
    return DBSettings.model_construct(durability=Durability.volatile, channel=Channel(channel))


def install_script(schema: str) -> str:
    """Return the SQL that makes PgQueuer's tables."""
    return QueryBuilderEnvironment(settings(schema)).build_install_query(create_schema=False)


class Works(Serving):
    """The works that run here, whatever connection their messages came by."""

    def __init__(
        self,
        database: PostgresDatabase,
        handlers: Mapping[str, Take],
        stop: asyncio.Event,
        concurrency: int,
        worker: str,
    ) -> None:
        super().__init__(handlers, stop, concurrency)
        self._database = database
        self.worker = uuid.UUID(worker)
        """Whose messages these are: `Dispatcher.forget` takes them from a worker that has died."""
        self.held: dict[int, asyncio.Future[None]] = {}
        """Works by their messages: of entries with a limit, for as long as a message is there it counts."""

    async def take_all(self, messages: Sequence[Message]) -> None:
        """Take the rows of messages and begin the work on them. A message without a limit is used up."""
        works = await asyncio.to_thread(self._take_rows, messages)
        for message, work in zip(messages, works, strict=True):
            if work is not None:
                begun = self.begin(work, look_after=message.is_limited)
                if message.is_limited:
                    self.held[message.id] = begun

    def _take_rows(self, messages: Sequence[Message]) -> list[Work | None]:
        works: dict[Message, Work | None] = {}
        with self._database.write(f"take {os.getpid()} {id(self)}") as tx:
            for message in sorted(messages, key=lambda message: message.key):  # One order: no deadlock.
                handler = self.handlers.get(message.entry)
                works[message] = None if handler is None else handler(tx, message.key)
            used = [one.id for one, work in works.items() if work is None or not one.is_limited]
            if used:  # Else it would notify every worker all the same.
                tx.later(_USED.format("?"), used)
        return [works[message] for message in messages]


async def serve_once(
    server: PostgresServer, works: Works, silent_s: float, limits: Callable[[str], int]
) -> None:
    """Serve until the works must stop, or a connection breaks: then raise StateUnavailable."""
    try:
        async with await server.connect_async() as statements, await server.connect_async() as notices:
            names = settings(server.schema)
            await Queries(PsycopgDriver(statements), qbe=QueryBuilderEnvironment(names)).apply_upgrade()
            await notices.execute(f"LISTEN {names.channel}")
            loop, socket = asyncio.get_running_loop(), notices.fileno()
            queue = _Queue(statements, names, works, silent_s, limits)
            loop.add_reader(socket, queue.hear, notices.pgconn)
            stopping = asyncio.create_task(then_wake(works.stop, works.woken))
            try:
                await queue.serve()
            finally:
                stopping.cancel()
                loop.remove_reader(socket)
    except psycopg.Error as error:
        raise server.unavailable(error) from error


class _Queue:
    """Picks messages of the entries that are served now, as many as there is room for."""

    def __init__(
        self,
        link: psycopg.AsyncConnection[Any],
        names: DBSettings,
        works: Works,
        silent_s: float,
        limits: Callable[[str], int],
    ) -> None:
        self._cursor = psycopg.AsyncRawCursor(link, row_factory=dict_row)
        self._builder = QueryQueueBuilder(names)
        self._works, self._limits = works, limits
        self._silent_s = silent_s
        self._look_s = min(_LOOK_S, silent_s / 4)
        self._beats_at = 0.0
        self._entries: list[QueueEntrypoint] = []
        self._has_limits = False
        self._pid = link.info.backend_pid
        self._lost: psycopg.Error | None = None

    def hear(self, link: PGconn) -> None:
        """Take notices as they come; psycopg's own wait for them wakes up ten times a second."""
        try:
            link.consume_input()
        except psycopg.Error as error:
            self._lost = error
            self._works.wake()
        while (notice := link.notifies()) is not None:
            # A message that is gone makes room for another one only where there is a limit; `serve` looks
            # after what is removed here.
            is_new = b'"delete"' not in notice.extra
            if is_new or (self._has_limits and notice.be_pid != self._pid):
                self._works.woken.set()

    async def serve(self) -> None:
        """Take messages until the works must stop, and keep those with a limit until their works end."""
        works = self._works
        # Those of a connection that broke before their rows were taken.
        await self._run(_NOT_TAKEN, works.worker, list(works.held))
        while self._lost is None and not (works.stop.is_set() and not works.held):
            works.woken.clear()
            await self._keep()
            room = 0 if works.stop.is_set() else min(BATCH, works.room)
            messages = await self._pick(room) if room > 0 else []
            if messages:
                await whole(works.take_all(messages))
            works.keeps_up = len(messages) < room
            if room == 0 or works.keeps_up:
                with suppress(TimeoutError):
                    async with asyncio.timeout(await self._pause() if room else self._look_s):
                        await works.woken.wait()
        if self._lost is not None:
            raise self._lost

    async def _keep(self) -> None:
        """Remove the messages of works that have ended, and renew those of others."""
        held = self._works.held
        ended = [id for id, work in held.items() if work.done()]
        if ended:
            await self._run(_USED.format("$1"), ended)
            for id in ended:
                del held[id]
        if held and time.monotonic() >= self._beats_at:
            self._beats_at = time.monotonic() + self._silent_s / 4
            await self._run(_HELD, list(held))

    async def _pick(self, most: int) -> list[Message]:
        handlers = self._works.handlers
        serves = handlers.serves if isinstance(handlers, Handlers) else handlers.__contains__
        found = [row["entry"] for row in await self._run(_ENTRIES)]
        self._entries = entries = [QueueEntrypoint(entry) for entry in found if serves(entry)]
        limits = {entry: self._limits(entry) for entry in entries}
        self._has_limits = any(limits.values())
        if not entries:
            return []
        query = self._builder.build_dequeue_query(
            batch_size=most,
            entrypoints=entries,
            concurrency_limits=list(limits.values()),
            queue_manager_id=QueueManagerId(self._works.worker),
            global_concurrency_limit=None,
            heartbeat_timeout=timedelta(seconds=self._silent_s),
        )
        try:
            rows = await self._run(query.sql, *query.args)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            return []  # Another worker has taken the last place of a limit.
        return [
            Message(row["id"], row["entrypoint"], row["payload"].decode(), limits[row["entrypoint"]] > 0)
            for row in rows
            if row["id"] not in self._works.held  # One of ours whose renewal was late.
        ]

    async def _pause(self) -> float:
        """Return the seconds until the next message is due, or until the next look."""
        pause = (await self._run(_NEXT, self._entries))[0]["pause"]
        return self._look_s if pause is None else min(self._look_s, max(_LEAST_S, pause))

    async def _run(self, query: str, *arguments: object) -> list[Any]:
        await self._cursor.execute(query, arguments or None)
        return await self._cursor.fetchall() if self._cursor.description else []
