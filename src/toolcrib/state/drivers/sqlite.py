"""A database in one SQLite file, shared by threads and by the processes of one machine."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from toolcrib.errors import StateUnavailable
from toolcrib.state.database import Transaction
from toolcrib.state.drivers.dialect import statements
from toolcrib.state.process import boot_id, is_alive, this_process, uptime

__all__ = ["SqliteDatabase"]

_WAIT_S = 5.0
"""Seconds a transaction waits for one of another process."""
_INHERITED: list[sqlite3.Connection] = []
"""Connections of a parent process: never used, never closed (sqlite.org/howtocorrupt, 2.6)."""


class _SqliteTransaction(Transaction):
    __slots__ = ()

    def notify(self) -> None:
        """Do nothing: other processes see each commit in `version`."""

    def clock(self) -> tuple[str, float]:
        return boot_id(), uptime()

    def now(self) -> float:
        return time.time()

    def since(self) -> float:
        return 0.0

    def is_held(self, holder: str) -> bool:
        since, _, process = holder.partition(" ")
        return bool(process) and is_alive(process, float(since))


class SqliteDatabase:
    """The `Database` in a file.

    `migrations` are scripts of DDL, one for each version. A newer program updates an older file; an older
    program refuses a newer file. With `origin`, a file with another origin is refused: it was not created by
    this user for this project. A committed transaction survives a power cut; with `durable` false the last
    ones may not, which saves waiting for the disk.
    """

    def __init__(
        self, path: Path, migrations: Sequence[str], *, origin: str | None = None, durable: bool = True
    ) -> None:
        self.path = path
        self._durable = durable
        self._migrations = tuple(migrations)
        self._origin = origin
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one state of the file and changes nothing."""
        with self._locked() as connection, _transaction(connection, "BEGIN"):
            yield _SqliteTransaction(connection.execute)

    @contextmanager
    def write(self, scope: str | None = None) -> Iterator[Transaction]:  # noqa: ARG002 - there is one write lock
        """Open a transaction that has the write lock from its start. It must not be nested."""
        with self._locked() as connection, _transaction(connection, "BEGIN IMMEDIATE"):
            transaction = _SqliteTransaction(connection.execute)
            yield transaction
        for notify in transaction.after_commit:
            notify()

    @property
    def version(self) -> int:
        """A number that changes when another connection has committed; cheap to read."""
        with self._locked() as connection:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

    def on_change(self, wake: Callable[[], None]) -> None:
        """Do nothing: `version` must be looked at."""

    def holder(self) -> str:
        """Return this process's name and the time."""
        return f"{uptime()} {this_process()}"

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()
            elif connection is not None:
                _INHERITED.append(connection)

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        """Lend the open connection to one thread, and report failures of the file with a hint."""
        with self._lock:
            try:
                if self._connection is None or self._pid != os.getpid():
                    self.close()
                    self._connection, self._pid = self._open(), os.getpid()
                yield self._connection
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise _unavailable(self.path, error) from error

    def _open(self) -> sqlite3.Connection:
        _require_plain(self.path)
        connection = sqlite3.connect(
            self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            _set_journal(connection)
            connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA trusted_schema=OFF")
            with _transaction(connection, "BEGIN IMMEDIATE"):
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
        if row is None and new:
            connection.execute("INSERT INTO origin VALUES (?)", (origin,))
        elif row is None or row[0] != origin:
            raise _refused(
                self.path,
                "was not made here, so its content is not trusted",
                "It came with the project, or the project was moved. Move it away; a new one is created.",
            )


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _set_journal(connection: sqlite3.Connection) -> None:
    """Let readers run beside one writer. SQLite itself does not wait where two processes set this at once."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        except FileExistsError:
            pass
        found = path.lstat()
    except OSError as error:
        hint = "It must be a file that this user may write."
        raise _refused(path, f"cannot be opened: {error.strerror}", hint) from None
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or any(file.is_symlink() for file in beside):
        raise _refused(path, "is a link or no regular file, which a database must not be", "Move it away.")


def _refused(path: Path, why: str, hint: str) -> StateUnavailable:
    return StateUnavailable(f"{path} {why}", hint=hint, details={"path": str(path)})


def _unavailable(path: Path, error: sqlite3.Error) -> StateUnavailable:
    name = getattr(error, "sqlite_errorname", "")
    damaged = "Move the file away to start with an empty one; what it contained is lost."
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
