"""A database on a Postgres server, shared by the processes of many machines.

Its tables are in the schema `toolcrib`, or in the first of the `search_path` that the address names.
"""

from __future__ import annotations

import hashlib
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from toolcrib.errors import StateUnavailable
from toolcrib.state.database import Transaction, storable
from toolcrib.state.drivers.dialect import POSTGRES_NOW, postgres_statement, statements
from toolcrib.state.drivers.listener import Listener
from toolcrib.state.installation import install_hint
from toolcrib.state.process import LEASE_S

if TYPE_CHECKING:
    import psycopg

_WAIT_S = 5
"""Seconds until a connection, or until a lock that another transaction has."""
_MOST = 8
"""Connections of one process."""
_SETTINGS = {
    "search_path": "toolcrib",
    "lock_timeout": f"{_WAIT_S}s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "10s",
}
_LINK: dict[str, Any] = {
    "connect_timeout": _WAIT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "toolcrib",
}
"""A server that no longer answers is noticed within seconds."""
_OWN_TABLES = """
CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS holders (id TEXT PRIMARY KEY, seen_at REAL NOT NULL);
"""
_HELD = (
    "SELECT 1 FROM holders WHERE id = ?"
    f" AND GREATEST(seen_at, EXTRACT(EPOCH FROM pg_postmaster_start_time()), ?) > {POSTGRES_NOW} - ?"
)
"""While the server was away no holder could show that it was there."""
_SINCE = "SELECT GREATEST(CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS DOUBLE PRECISION), ?)"
"""A server that recovers from a crash answers some time after its start: `PostgresServer.answers_since`."""
_INHERITED: list[psycopg.Connection[Any]] = []
"""Connections of a parent process: never used, never closed."""


class PostgresTransaction(Transaction):
    """Statements on one connection; `execute` sends one and returns its cursor, which `sync` fills.

    `now` is the time on the server when the transaction began.
    """

    __slots__ = ("_answers_since", "_later", "_lease_s", "_now", "_sync", "notifies")

    def __init__(
        self,
        execute: Callable[[str, Sequence[Any] | None], Any],
        lease_s: float,
        sync: Callable[[], None] | None = None,
        now: float | None = None,
        answers_since: float = 0.0,
    ) -> None:
        def answered(sql: str, values: Sequence[Any]) -> Any:
            cursor = _send(execute, postgres_statement(sql), values)
            if sync is not None:
                sync()
            return cursor

        super().__init__(answered, owned=sync is not None)
        self._later = execute
        self._sync = sync
        self._lease_s = lease_s
        self._now = now
        self._answers_since = answers_since
        self.notifies = False

    def each(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        answers = [_send(self._later, postgres_statement(sql), values) for values in rows]
        if self._sync is not None:
            self._sync()
        return [int(answer.rowcount) for answer in answers]

    def later(self, sql: str, *values: Any) -> None:
        _send(self._later, postgres_statement(sql), values)

    def notify(self) -> None:
        self.notifies = True

    def clock(self) -> tuple[str, float]:
        return "postgres", self.now()

    def now(self) -> float:
        if self._now is None:
            self._now = float((self.one(f"SELECT {POSTGRES_NOW}") or (0.0,))[0])
        return self._now

    def since(self) -> float:
        return float((self.one(_SINCE, self._answers_since) or (0.0,))[0])

    def is_held(self, holder: str) -> bool:
        return self.one(_HELD, holder, self._answers_since, self._lease_s) is not None


class PostgresServer:
    """One server: the connections of this process, shared by all databases on it.

    `url` is a connection string of libpq. A process that was not heard of for `lease_s` seconds no longer
    holds anything. Raises `StateUnavailable` if the extra `postgres` is not installed, or `url` is malformed.
    """

    def __init__(self, url: str, *, lease_s: float = LEASE_S) -> None:
        self.lease_s = lease_s
        self._conninfo, self.name = _conninfo(url)
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST)
        self._idle: list[psycopg.Connection[Any]] = []
        self._pid = os.getpid()
        self.schema = ""
        self.answers_since: float | None = 0.0
        """The time when it answered again, by its own clock; None while it does not, 0 if it always has."""
        self.joined: WeakSet[Any] = WeakSet()
        """Connections of others that were found to lead to this database."""
        self.migrated: set[str] = set()
        """Names of the databases whose tables are up to date."""
        self.listener = self._listener()

    def _listener(self) -> Listener:
        return Listener(self._connect, self.unavailable, lambda: self.schema, self.lease_s)

    @property
    def quoted_schema(self) -> str:
        """The schema of the tables, as SQL; known once a connection was made."""
        return '"{}"'.format(self.schema.replace('"', '""'))

    @contextmanager
    def transaction(self, begin: str, *locks: str) -> Iterator[PostgresTransaction]:
        """Open a transaction with the statements `begin`, which takes these locks.

        Statements whose results nobody needs are sent with the next one: each way to the server takes time.
        """
        connection, transaction, commits, committed = None, None, False, False
        try:
            # Evaluated from left to right, so the time is that after the wait for the locks.
            first = ", ".join((*locks, POSTGRES_NOW))
            with self._lend(f"{begin}; SELECT {first}") as (connection, cursor):
                # Of several statements the answer to the last one counts.
                while cursor.nextset():
                    pass
                now = float((cursor.fetchone() or (0.0,))[-1])
                if self.answers_since is None:
                    self.answers_since = now
                with connection.pipeline() as pipeline:
                    transaction = PostgresTransaction(
                        partial(_execute, connection), self.lease_s, pipeline.sync, now, self.answers_since
                    )
                    yield transaction
                    commits = True
                    connection.execute("COMMIT")
                    # In the transaction, all that notify would wait for the disk in turn.
                    if transaction.notifies:
                        connection.execute(self.listener.notify_sql())
            committed = True
        except StateUnavailable as error:
            if commits and connection is not None and connection.broken:
                error.retryable = False
                error.hint = "Nobody knows if the last change was stored: look before you repeat it."
            raise
        finally:
            if transaction is not None:
                transaction.end(committed=committed)

    def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, a transaction of its own, in one way to the server and back."""
        with self._lend(sql, values) as (_, cursor):
            return cursor.fetchall()

    @contextmanager
    def _lend(
        self, sql: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Cursor[Any]]]:
        """Lend a connection, with the answer to its first statement. One that broke before is replaced."""
        import psycopg

        self._after_fork()
        if not self._places.acquire(timeout=_WAIT_S):
            raise StateUnavailable(
                f"all {_MOST} connections to {self.name} are in use", hint="Try again.", retryable=True
            )
        connection = None
        try:
            connection, cursor = self._first(sql, values)
            yield connection, cursor
        except psycopg.IntegrityError:
            raise
        except psycopg.Error as error:
            if connection is None:
                # Nobody could renew what they hold while it was away: `is_held` counts from its return.
                self.answers_since = None
            raise self.unavailable(error) from error
        finally:
            self._give_back(connection)
            self._places.release()

    def _first(self, sql: str, values: Sequence[Any]) -> tuple[psycopg.Connection[Any], psycopg.Cursor[Any]]:
        import psycopg

        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            connection = kept or self._connect()
            try:
                return connection, _send(connection.execute, sql.encode(), values)
            except psycopg.Error:
                self._give_back(connection)
                if kept is None or not connection.broken:
                    raise

    def _give_back(self, connection: psycopg.Connection[Any] | None) -> None:
        """Keep a connection for the next transaction, after the end of this one."""
        import psycopg
        from psycopg.pq import TransactionStatus

        if connection is None or connection.closed:
            return
        try:
            # Left open, it would keep its locks.
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        # Ours have `$1`: to look for marks like `%s` takes longer than to send a statement with many rows.
        connection = psycopg.connect(self._conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)
        if not self.schema:
            path = connection.execute("SHOW search_path").fetchone()
            assert path is not None
            self.schema = str(path[0]).split(",")[0].strip().strip('"')
        return connection

    async def connect_async(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection for an event loop, which its caller closes. Each statement is a transaction."""
        import psycopg

        return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        self._after_fork()
        self.listener.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        if hasattr(self, "listener"):
            self.close()

    def _after_fork(self) -> None:
        if self._pid == os.getpid():
            return
        # Closing them here would end the sessions of the parent. Its locks may be held by threads that this
        # process does not have.
        _INHERITED.extend(self._idle)
        self._pid, self._idle = os.getpid(), []
        self._lock, self._places = threading.Lock(), threading.BoundedSemaphore(_MOST)
        self.listener = self._listener()

    def unavailable(self, error: psycopg.Error) -> StateUnavailable:
        """Return the error for one of the driver, with a hint."""
        from psycopg import OperationalError

        code = error.sqlstate or ""
        if code in _NO_TABLES:
            self.migrated.clear()
        hints = (hint for start, hint in _HINTS.items() if code.startswith(start))
        reason = " ".join(str(error).split())
        return StateUnavailable(
            f"the database {self.name} cannot be used: {reason}",
            hint=next(hints, "Check that the server runs and that its address and password are right."),
            details={"database": self.name, "error": code},
            retryable=code in _NO_TABLES or (isinstance(error, OperationalError) and code[:2] in _PASSING),
        )


class PostgresDatabase:
    """The `Database` in one schema of a server; each `name` of migrations has a version of its own."""

    waits = True

    def __init__(
        self, server: PostgresServer, name: str, migrations: Sequence[str], *, durable: bool = True
    ) -> None:
        self.server = server
        self._name = name
        self._migrations = tuple(migrations)
        self._durable = durable
        self._further: list[Callable[[], None]] = []

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one state of the tables and changes nothing."""
        self.migrate()
        with self.server.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as transaction:
            yield transaction

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one `SELECT`."""
        self.migrate()
        return self.server.rows(postgres_statement(sql), values)

    @contextmanager
    def write(self, scope: str | None = None) -> Iterator[Transaction]:
        """Open a transaction that no other one of this scope runs beside. It must not be nested."""
        self.migrate()
        whole = self._key("")
        # Those with a scope share the lock of all; so one without a scope runs beside none of them.
        locks = [f"pg_advisory_xact_lock({whole})"]
        if scope is not None:
            own = self._key(f"scope {scope}")
            locks = [f"pg_advisory_xact_lock_shared({whole})", f"pg_advisory_xact_lock({own})"]
        quick = "" if self._durable else "; SET LOCAL synchronous_commit = off"
        with self.server.transaction(f"BEGIN{quick}", *locks) as transaction:
            yield transaction

    @property
    def version(self) -> int:
        """A number that changes soon after another process has committed a transaction with `notify`."""
        self.migrate()
        return self.server.listener.version

    def listening(self, heard: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `heard` in a thread when another process has committed a transaction with `notify`."""
        return self.server.listener.listening(heard)

    def holder(self) -> str:
        """Return a name for this process, which it keeps up by itself until it ends."""
        self.migrate()
        return self.server.listener.holder()

    def shrink(self) -> None:
        """Do nothing: the server uses the space again (autovacuum)."""

    def close(self) -> None:
        """Close the connections of all databases on this server."""
        self.server.migrated.discard(self._name)
        self.server.close()

    def _key(self, scope: str) -> int:
        return _lock(f"{self.server.schema}/{self._name}/{scope}")

    def migrate_also(self, further: Callable[[], None]) -> None:
        """Call this too before the next transaction here, with none open; it uses `server` directly."""
        self._further.append(further)
        self.server.migrated.discard(self._name)

    def migrate(self) -> None:
        """Bring the tables up to date; of several processes one does it, and the others wait."""
        if self._name in self.server.migrated:
            return
        with self.server.transaction("BEGIN") as tx:
            schema = self.server.schema
            # One lock for all databases of the schema, whose own tables they have in common.
            tx.one(f"SELECT pg_advisory_xact_lock({_lock(f'{schema}/migrations')})")
            if tx.one("SELECT 1 FROM pg_namespace WHERE nspname = ?", schema) is None:
                tx.run(f"CREATE SCHEMA {self.server.quoted_schema}")
            if (
                tx.one("SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'holders'", schema)
                is None
            ):
                for statement in statements(_OWN_TABLES):
                    tx.run(statement)
            (version,) = tx.one("SELECT version FROM migrations WHERE name = ?", self._name) or (0,)
            if version > len(self._migrations):
                raise StateUnavailable(
                    f"{self.server.name} was made by a newer version of Toolcrib (format {version})",
                    hint="Use that version, or name another database or search_path.",
                )
            for script in self._migrations[version:]:
                for statement in statements(script):
                    tx.run(statement)
            # Last, so that a failure before leaves the old number; DDL is part of the transaction.
            if version < len(self._migrations):
                tx.run("DELETE FROM migrations WHERE name = ?", self._name)
                tx.insert("migrations", {"name": self._name, "version": len(self._migrations)})
        for further in self._further:
            further()
        self.server.migrated.add(self._name)


def _execute(connection: psycopg.Connection[Any], sql: str, values: Sequence[Any] | None) -> Any:
    """Send a statement in a pipeline, to its end.

    What does not fit into the socket psycopg sends with the next statement. Before an answer there is none:
    it would wait for a server that waits for the rest.
    """
    cursor = connection.execute(sql.encode(), values)
    if connection.pgconn.flush():
        socket = select.poll()
        socket.register(connection.fileno(), select.POLLIN | select.POLLOUT)
        while connection.pgconn.flush():
            if socket.poll()[0][1] & select.POLLIN:
                connection.pgconn.consume_input()  # Else a server that cannot write would not read either.
    return cursor


def _send(execute: Callable[..., Any], sql: str | bytes, values: Sequence[Any]) -> Any:
    try:
        return execute(sql, values or None)
    except Exception as error:
        from psycopg import DataError

        # Without a code it is not the server's: a text of a tool or a client was not sent.
        refused = isinstance(error, DataError) and error.sqlstate is None
        if not refused and not isinstance(error, UnicodeEncodeError):
            raise
        return execute(sql, storable(values))


def _lock(name: str) -> int:
    """Return the number of an advisory lock, which has 64 bits."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)


def _conninfo(url: str) -> tuple[str, str]:
    """Return the address with our settings, which its own override, and a name that shows no password."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ImportError:
        raise StateUnavailable(
            "a database on Postgres needs the extra `postgres`", hint=install_hint("postgres")
        ) from None
    try:
        given = conninfo_to_dict(url)
    except ProgrammingError:
        raise StateUnavailable(
            "the address of the database is malformed", hint="postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    options = f"{settings} {given.pop('options', None) or ''}".strip()
    name = f"{given.get('host') or 'localhost'}/{given.get('dbname') or given.get('user') or ''}"
    return make_conninfo(**{**_LINK, **given, "options": options}), name


_PASSING = ("", "08", "40", "53", "55", "57")
"""Classes of errors that may be over soon (PostgreSQL, appendix A)."""
_NO_TABLES = ("42P01", "3F000")
"""Another server may have come in place of this one: the next use makes the tables again."""
_HINTS = {
    "28": "Check the user and the password in the address of the database.",
    "3D": "Create the database on the server first: createdb NAME",
    **dict.fromkeys(_NO_TABLES, "The tables are gone, as on a new server. Try again: they are made again."),
    "42501": "Give this user the right to create a schema in the database, and to use its tables.",
    "40": "Try again.",
    "53": "The server has no room or no connections left.",
    "55": "Another process has locked it for too long; look for one that is stopped.",
    "57": "The server stops or restarts; try again.",
}
