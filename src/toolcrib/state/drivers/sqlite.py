"""A database in one SQLite file, shared by threads and by the processes of one machine."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from toolcrib.errors import StateUnavailable
from toolcrib.state.database import Transaction, storable
from toolcrib.state.drivers.dialect import statements
from toolcrib.state.drivers.notices import listening, notify
from toolcrib.state.private import make_private
from toolcrib.state.process import boot_id, is_alive, this_process, uptime

_FREED_PAGES = 1_000
_WAIT_S = 15.0
"""Seconds a transaction waits for one of another process, which may be slow, or frozen for a while."""
_TURN_S = 0.1
"""Seconds until a transaction that was left open for the next one is committed, if none comes."""
_JUMP_S = 1.0
"""Seconds by which a clock that is only adjusted never moves at once."""
_MOST_TOGETHER = 64
"""Transactions of threads that wait for the disk together."""
_INHERITED: list[sqlite3.Connection] = []
"""Connections of a parent process: never used, never closed (sqlite.org/howtocorrupt, 2.6)."""


class _SqliteTransaction(Transaction):
    __slots__ = ("_since", "notifies")

    def __init__(self, connection: sqlite3.Connection, since: Callable[[], float]) -> None:
        super().__init__(partial(_execute, connection))
        self._since = since
        self.notifies = False

    def notify(self) -> None:
        self.notifies = True

    def clock(self) -> tuple[str, float]:
        return boot_id(), uptime()

    def now(self) -> float:
        return time.time()

    def since(self) -> float:
        return self._since()

    def is_held(self, holder: str) -> bool:
        since, _, process = holder.partition(" ")
        return bool(process) and is_alive(process, float(since))


class _Link:
    """A connection that threads use in turns. It is opened on first use, and again after a fork."""

    def __init__(self, open_one: Callable[[], sqlite3.Connection]) -> None:
        self.lock = threading.RLock()
        self._open = open_one
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    def connection(self) -> sqlite3.Connection:
        """Return it to the thread that has the lock."""
        if self._connection is None or self._pid != os.getpid():
            self.close()
            self._connection, self._pid = self._open(), os.getpid()
        return self._connection

    @property
    def is_inherited(self) -> bool:
        return self._pid not in (0, os.getpid())

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()
        elif connection is not None:
            _INHERITED.append(connection)


class _Group:
    """Transactions of several threads that one write to the disk commits."""

    def __init__(self) -> None:
        self.size = 0
        self.ended = threading.Event()
        self.error: sqlite3.Error | None = None


class SqliteDatabase:
    """The `Database` in a file.

    `migrations` are scripts of DDL, one for each version. A newer program updates an older file; an older
    program refuses a newer file. With `origin`, a file with another origin is refused: it was not created by
    this user for this project. A committed transaction survives a power cut; with `durable` false the last
    ones may not, which saves waiting for the disk.

    A thread that ends a transaction while others wait to write leaves it open for the next one, and the last
    one commits for all: they wait for the disk once. Who reads uses another connection and waits for nobody.
    """

    waits = False

    def __init__(
        self, path: Path, migrations: Sequence[str], *, origin: str | None = None, durable: bool = True
    ) -> None:
        self.path = path
        self._durable = durable
        self._migrations = tuple(migrations)
        self._origin = origin
        self._writer = _Link(self._open)
        self._reader = _Link(self._open_reader)
        self._group: _Group | None = None
        self._waiting = deque[None]()
        self._version = 0
        self._clock_set = 0.0, _ahead()
        """The time when the clock was seen to have been set, and its lead over one that nobody sets."""

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one state of the file and changes nothing."""
        with self._reader.lock, self._reporting():
            connection = self._reader.connection()
            # Deferred: it waits for no writer, and sees the tables as they are at its first SELECT.
            connection.execute("BEGIN")
            try:
                yield _SqliteTransaction(connection, self._clock_since)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one `SELECT`."""
        with self._reader.lock, self._reporting():
            return _execute(self._reader.connection(), sql, values).fetchall()

    @contextmanager
    def write(self, scope: str | None = None) -> Iterator[Transaction]:  # noqa: ARG002 - there is one write lock
        """Open a transaction that has the write lock from its start. It must not be nested."""
        transaction: Transaction | None = None
        committed = False
        try:
            with self._reporting():
                with self._turn() as (connection, group):
                    transaction = _SqliteTransaction(connection, self._clock_since)
                    yield transaction
                while not group.ended.wait(_TURN_S):  # Whoever waited to be next has given up.
                    with self._writer.lock:
                        self._commit(group)
                if group.error is not None:
                    raise group.error
                committed = True
                if transaction.notifies:
                    notify(self.path)
        finally:
            if transaction is not None:
                transaction.end(committed=committed)

    @contextmanager
    def _turn(self) -> Iterator[tuple[sqlite3.Connection, _Group]]:
        """Lend the connection for one transaction of a group; commit the group if nobody waits for it."""
        # Whoever ends a transaction sees by this if another thread is next. Both changes of it are atomic.
        self._waiting.append(None)
        try:
            self._writer.lock.acquire()
        finally:
            self._waiting.pop()
        try:
            # After a fork the open group is that of the parent, which commits it itself.
            if self._writer.is_inherited:
                self._group = None
            connection = self._writer.connection()
            group = self._group
            if group is None:
                connection.execute("BEGIN IMMEDIATE")
                group = self._group = _Group()
            try:
                # So that it can fail alone: the group is one transaction for SQLite.
                connection.execute("SAVEPOINT one")
                yield connection, group
                connection.execute("RELEASE one")
                group.size += 1
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK TO one")
                elif isinstance(error, sqlite3.Error):  # SQLite has undone the transactions before it too.
                    group.error = error
                raise
            finally:
                if not self._waiting or group.size >= _MOST_TOGETHER or not connection.in_transaction:
                    self._commit(group)
        finally:
            self._writer.lock.release()

    def _commit(self, group: _Group) -> None:
        """Commit the transactions of a group; it must not have ended before."""
        if self._group is not group:
            return
        self._group = None
        connection = self._writer.connection()
        try:
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            group.error = error
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        finally:
            group.ended.set()

    @property
    def version(self) -> int:
        """A number that changes soon after another connection has committed; cheap to read."""
        self._version = self._newest_version() or self._version
        return self._version

    def _newest_version(self) -> int:
        """Return the number as it is now; 0 while this process writes."""
        if not self._writer.lock.acquire(blocking=False):
            return 0
        try:
            row = self._writer.connection().execute("PRAGMA data_version").fetchone()
            return int(row[0])
        except sqlite3.Error as error:
            raise _unavailable(self.path, error) from error
        finally:
            self._writer.lock.release()

    @contextmanager
    def listening(self, heard: Callable[[], None]) -> Iterator[None]:
        """Call `heard` in a thread when another connection has committed a transaction with `notify`."""
        seen = -1

        def noticed() -> None:
            nonlocal seen
            version = 0
            with suppress(StateUnavailable):  # Who looks is told.
                version = self._newest_version()
            if version != seen:  # Else it was this connection.
                seen = version or seen
                heard()

        with suppress(StateUnavailable):
            seen = self._newest_version()  # Makes the file, too.
        with listening(self.path, noticed):
            yield

    def _clock_since(self) -> float:
        """Return when the clock was last set, or the machine woke up: nobody could renew anything before."""
        if abs(_ahead() - self._clock_set[1]) > _JUMP_S:
            self._clock_set = time.time(), _ahead()
        return self._clock_set[0]

    def holder(self) -> str:
        """Return this process's name and the time."""
        return f"{uptime()} {this_process()}"

    def shrink(self) -> None:
        """Cut free pages off the end of the file: a few at a time, as writers wait for it."""
        with self.write() as tx:
            (free,) = tx.one("PRAGMA freelist_count") or (0,)
            for _ in range(min(free, _FREED_PAGES)):
                # One each time: Python takes one step of a statement without columns.
                tx.run("PRAGMA incremental_vacuum(1)")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._reader.lock:
            self._reader.close()
        with self._writer.lock:
            if self._group is not None and not self._writer.is_inherited:
                self._commit(self._group)
            self._writer.close()

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report failures of the file with a hint."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise _unavailable(self.path, error) from error

    def _open_reader(self) -> sqlite3.Connection:
        with self._writer.lock:
            self._writer.connection()  # Makes and checks the tables first.
        connection = self._connect()
        connection.execute("PRAGMA query_only=ON")
        return connection

    def _connect(self) -> sqlite3.Connection:
        _require_plain(self.path)
        connection = sqlite3.connect(
            self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        # In WAL, NORMAL does not wait for the disk at a commit. A power cut may lose the last ones, never the
        # file.
        connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        # The file may have come with a project: no function that its views or triggers name is run.
        connection.execute("PRAGMA trusted_schema=OFF")
        return connection

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            # For `shrink`: before anything is written, because in a file that is not new it is a write.
            if connection.execute("PRAGMA page_count").fetchone() == (0,):
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            _set_journal(connection)
            connection.execute("PRAGMA foreign_keys=ON")
            # The write lock comes first: of processes that open a new file at once, one makes the tables.
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(self._migrations):
            raise _refused(
                self.path,
                f"was made by a newer version of Toolcrib (format {version})",
                "Use that version, or move the file away to start with an empty one.",
            )
        if self._origin is not None:
            self._check_origin(connection, self._origin, new=version == 0)
        if version == len(self._migrations):
            return
        for script in self._migrations[version:]:
            for statement in statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={len(self._migrations)}")

    def _check_origin(self, connection: sqlite3.Connection, origin: str, *, new: bool) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS origin (name TEXT NOT NULL)")
        row = connection.execute("SELECT name FROM origin").fetchone()
        # Only an empty file gets the name, so one that was brought along cannot.
        if row is None and new:
            connection.execute("INSERT INTO origin VALUES (?)", (origin,))
        elif row is None or row[0] != origin:
            raise _refused(
                self.path,
                "was not made here, so its content is not trusted",
                "It came with the project, or the project was moved. Move it away; a new one is created.",
            )


def _execute(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
    try:
        return connection.execute(sql, values)
    except UnicodeEncodeError:  # A text of a tool or a client; nothing was done.
        return connection.execute(sql, storable(values))


def _ahead() -> float:
    # The second one stands still while the machine sleeps.
    return time.time() - time.monotonic()


def _set_journal(connection: sqlite3.Connection) -> None:
    """Let readers run beside one writer. SQLite itself does not wait where two processes set this at once."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            full = error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR"))
            if full or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _require_plain(path: Path) -> None:
    """Create the file, or check that it is a plain one: a link could lead anywhere.

    An existing file is not opened: closing it would drop the locks of other connections in this process
    (sqlite.org/howtocorrupt, 2.2).
    """
    try:
        make_private(path.parent)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        except FileExistsError:
            pass
        found = path.lstat()
    except OSError as error:
        hint = "It must be a file that this user may write."
        raise _refused(path, f"cannot be opened: {error.strerror}", hint) from None
    # SQLite opens these by their names too, and would follow a link.
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or any(file.is_symlink() for file in beside):
        raise _refused(path, "is a link or not a regular file, which a database must not be", "Move it away.")


def _refused(path: Path, why: str, hint: str) -> StateUnavailable:
    return StateUnavailable(f"{path} {why}", hint=hint, details={"path": str(path)})


def _unavailable(path: Path, error: sqlite3.Error) -> StateUnavailable:
    name = getattr(error, "sqlite_errorname", "")
    damaged = "End what uses the file, then move it away to start with an empty one; its content is lost."
    return StateUnavailable(
        f"{path} cannot be used: {error}",
        hint=next((hint for start, hint in _HINTS.items() if name.startswith(start)), damaged),
        details={"path": str(path), "error": name},
        retryable=name.startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_LOCKED")),
    )


_HINTS = {
    "SQLITE_BUSY": "Another process has locked it for too long; look for one that is stopped.",
    "SQLITE_CANTOPEN": "Give this user the right to write the file and its folder.",
    "SQLITE_FULL": "Free some disk space.",
    "SQLITE_IOERR": "Check the disk: it is full or failing.",
    "SQLITE_LOCKED": "Another connection has locked it for too long.",
    "SQLITE_READONLY": "Give this user the right to write the file and its folder.",
}
