"""A worker of PgQueuer in one event loop; imported where calls are served, for PgQueuer's import is slow."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import timedelta
from typing import Any

import psycopg
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.core.executors import EntrypointExecutor, EntrypointExecutorParameters
from pgqueuer.db import PsycopgDriver
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import Channel, QueueEntrypoint
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from toolcrib.errors import StateUnavailable
from toolcrib.runs.serving import BATCH, Serving, Take, Together, Work
from toolcrib.state.drivers.postgres import PostgresDatabase, PostgresServer

_LOOK_S = 2.0
"""Seconds until the next look for messages when no notification comes."""


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
        self, database: PostgresDatabase, handlers: Mapping[str, Take], stop: asyncio.Event, concurrency: int
    ) -> None:
        super().__init__(handlers, stop, concurrency)
        self._database = database
        self._delivered = Together(self._take_all, BATCH)

    async def deliver(self, entry: str, key: str) -> asyncio.Future[None] | None:
        """Take the row of a message and begin the work on it; None if there is nothing to do."""
        return await self._delivered.add((entry, key))

    async def _take_all(self, rows: list[tuple[str, str]]) -> list[asyncio.Future[None] | None]:
        works = await asyncio.to_thread(self._take_rows, rows)
        return [None if work is None else self.begin(work) for work in works]

    def _take_rows(self, rows: list[tuple[str, str]]) -> list[Work | None]:
        works: dict[tuple[str, str], Work | None] = {}
        with self._database.write(f"take {os.getpid()} {id(self)}") as tx:
            for entry, key in sorted(set(rows), key=lambda row: row[1]):  # One order: no deadlock.
                handler = self.handlers.get(entry)
                works[entry, key] = None if handler is None else handler(tx, key)
        # A message that came twice is worked on once.
        return [works.pop(row, None) for row in rows]

    async def _settle(self) -> None:
        await self._delivered.settled()
        await super()._settle()


async def serve_once(
    server: PostgresServer, works: Works, silent_s: float, limits: Callable[[str], int]
) -> None:
    """Serve until the works must stop, or a connection breaks: then raise StateUnavailable."""
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        async with await server.connect_async() as statements, await server.connect_async() as notices:
            link = _NotifiedLink(statements, notices, lost)
            manager = _Manager.of(link, server.schema)
            manager.works, manager.limits, manager.lost = works, limits, lost
            await Queries(link, qbe=QueryBuilderEnvironment(settings(server.schema))).apply_upgrade()
            run = asyncio.create_task(
                manager.run(
                    timedelta(seconds=_LOOK_S),
                    batch_size=max(1, min(BATCH, works.concurrency)),
                    heartbeat_timeout=timedelta(seconds=silent_s),
                    log_aggregation_interval=timedelta(0),
                )
            )
            stopping = asyncio.create_task(works.stop.wait())
            ends: set[asyncio.Future[Any]] = {run, stopping, lost}
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                manager.shutdown.set()
                # Ends the wait in `_deliver`: what runs continues here, whatever becomes of its message.
                if not stopping.done() and not lost.done():
                    lost.set_result(None)
                stopping.cancel()
                await asyncio.wait({run})
            run.result()
    except psycopg.Error as error:
        raise server.unavailable(error) from error


class _NotifiedLink(PsycopgDriver):
    """Statements on one connection, notifications on another: on a single one they would wait for each other.

    `lost` is done when one of them is broken.
    """

    def __init__(
        self,
        statements: psycopg.AsyncConnection[Any],
        notices: psycopg.AsyncConnection[Any],
        lost: asyncio.Future[None],
    ) -> None:
        super().__init__(statements)
        self._lost = lost
        self._notices = _Notices(notices)
        self._notices.lost = self._lose

    def _lose(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        try:
            return await super().fetch(query, *args)
        except psycopg.OperationalError:
            self._lose()
            raise

    async def execute(self, query: str, *args: object) -> str:
        try:
            return await super().execute(query, *args)
        except psycopg.OperationalError:
            self._lose()
            raise

    async def add_listener(self, channel: str, callback: Callable[[str | bytes | bytearray], None]) -> None:
        await self._notices.add_listener(channel, callback)

    async def __aenter__(self) -> _NotifiedLink:
        await self._notices.__aenter__()
        return await super().__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        await self._notices.__aexit__(*exc_info)
        await super().__aexit__(*exc_info)


class _Notices(PsycopgDriver):
    """Takes notifications as they come. psycopg's own wait for them wakes up ten times a second."""

    lost: Callable[[], None]

    async def watch_notifies(self) -> None:
        loop, socket = asyncio.get_running_loop(), self._connection.fileno()
        loop.add_reader(socket, self._read)
        try:
            await self.shutdown.wait()
        finally:
            loop.remove_reader(socket)

    def _read(self) -> None:
        link = self._connection.pgconn
        try:
            link.consume_input()
        except psycopg.OperationalError:
            self.shutdown.set()
            self.lost()
        while (notice := link.notifies()) is not None:
            for callback in self._listeners.get(notice.relname.decode(), ()):
                callback(notice.extra.decode())


class _Manager(QueueManager):
    """Picks messages of the entries that are served now, as many as there is room for."""

    works: Works
    _begun = 0
    """Works that run and whose messages this manager has."""
    limits: Callable[[str], int]
    lost: asyncio.Future[None]

    @classmethod
    def of(cls, link: _NotifiedLink, schema: str) -> _Manager:
        names = settings(schema)
        queries = Queries(
            link,
            qbe=QueryBuilderEnvironment(names),
            qbq=QueryQueueBuilder(names),
            qbs=QuerySchedulerBuilder(names),
        )
        return cls(queries, channel=names.channel)

    def entrypoints_below_capacity_limits(self) -> set[QueueEntrypoint]:
        """Return the entries that are served now."""
        wanted = {QueueEntrypoint(entry) for entry in self.works.handlers}
        for entry in wanted:
            known, limit = self.entrypoint_registry.get(entry), self.limits(entry)
            if known is None or known.parameters.concurrency_limit != limit:
                parameters = EntrypointExecutorParameters(limit, self._deliver)
                self.entrypoint_registry[entry] = EntrypointExecutor(parameters)
        return wanted

    async def fetch_jobs(
        self,
        batch_size: int,
        global_concurrency_limit: int | None,  # noqa: ARG002 - as the base class has it
        heartbeat_timeout: timedelta,
    ) -> AsyncGenerator[Job, None]:
        """Yield the next messages."""
        # PgQueuer itself counts the works whose messages this manager has.
        room = max(0, self.works.room + self._begun)
        async for job in super().fetch_jobs(batch_size, room, heartbeat_timeout):
            yield job
        self.works.keeps_up = self.works.room > 0  # Else it ended for want of room.

    async def _deliver(self, job: Job) -> None:
        """Take the row of a message and keep the message until the work on it has ended."""
        if self.works.stop.is_set() or self.lost.done():
            raise RetryRequested
        try:
            work = await self.works.deliver(job.entrypoint, (job.payload or b"").decode())
        except StateUnavailable:
            raise RetryRequested(timedelta(seconds=1)) from None
        if work is not None:
            self._begun += 1
            await asyncio.wait({work, self.lost}, return_when=asyncio.FIRST_COMPLETED)
            self._begun -= 1
