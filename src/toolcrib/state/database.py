"""One SQLite file, shared by threads and processes: connection, migrations, transactions.

Statements keep to what SQLite and Postgres both know, with `?` for values. Times are seconds since the epoch.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolcrib.errors import StateUnavailable, ToolcribError

__all__ = ["Database", "Transaction"]

_WAIT_S = 5.0
"""How long a transaction waits for another process's."""
_FORKED: list[Any] = []
"""Connections inherited by a fork: never used, never closed (sqlite.org/howtocorrupt, 2.6)."""


class Transaction:
    """Statements that take effect together, or not at all."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, *values: Any) -> int:
        """Run one statement; how many rows it changed."""
        return self._connection.execute(sql, values).rowcount

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row, if there is one."""
        row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        return row

    def all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Every row."""
        return self._connection.execute(sql, values).fetchall()


class Database:
    """A database file, opened on first use. Safe for threads, for other processes, and across a fork.

    `migrations` are scripts of DDL, one for each version; a newer program brings an older file up to date, an
    older program refuses a newer file. With `origin`, a file that bears another one is refused: it was not
    made by this user for this project. What is committed outlives a power cut; without `durable` the last
    of it may not, which saves the wait for the disk.
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
        self._depth = 0

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that sees one state of the file and changes nothing."""
        with self._within("BEGIN") as transaction:
            yield transaction

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that holds the write lock from its start. Not to be nested."""
        with self._within("BEGIN IMMEDIATE") as transaction:
            yield transaction

    @property
    def version(self) -> int:
        """Changes when another connection has committed: cheap to ask again and again."""
        with self._lock, self._told():
            row = self._open().execute("PRAGMA data_version").fetchone()
            return int(row[0])

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()
            elif connection is not None:
                _FORKED.append(connection)

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def _within(self, begin: str) -> Iterator[Transaction]:
        with self._lock, self._told():
            connection = self._open()
            connection.execute(begin)
            try:
                yield Transaction(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Failures of the file as an error that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            if isinstance(error, sqlite3.IntegrityError):
                raise
            raise _unavailable(self.path, error) from error

    def _open(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            self.close()
        if self._connection is None:
            _require_plain(self.path)
            connection = sqlite3.connect(
                self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        _set_journal(connection)
        connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA trusted_schema=OFF")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version < len(self._migrations) or self._origin is not None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._migrate(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        elif version > len(self._migrations):
            raise self._newer(version)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(self._migrations):
            raise self._newer(version)
        if self._origin is not None:
            connection.execute("CREATE TABLE IF NOT EXISTS origin (name TEXT NOT NULL)")
            row = connection.execute("SELECT name FROM origin").fetchone()
            if row is None and version == 0:
                connection.execute("INSERT INTO origin VALUES (?)", (self._origin,))
            elif row is None or row[0] != self._origin:
                raise StateUnavailable(
                    f"{self.path} was not made here, so what it says is not believed",
                    hint="It came with the project, or the project moved. Move it away; a new one is made.",
                    details={"path": str(self.path)},
                )
        for script in self._migrations[version:]:
            for statement in script.split(";\n"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version={len(self._migrations)}")

    def _newer(self, version: int) -> ToolcribError:
        return StateUnavailable(
            f"{self.path} was made by a newer version of Toolcrib (its format is {version})",
            hint="Use that version, or move the file away.",
            details={"path": str(self.path)},
        )


def _set_journal(connection: sqlite3.Connection) -> None:
    """Readers beside one writer. Two processes that change a new file at once do not wait by themselves."""
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
    """Make the file, or see that what is there is one: a link could lead anywhere.

    A file that is there is not opened: closing it would drop the locks of other connections in this process
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
        raise StateUnavailable(
            f"{path} cannot be opened: {error.strerror}",
            hint="It must be a file that this user may write.",
            details={"path": str(path)},
        ) from None
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or any(file.is_symlink() for file in beside):
        raise StateUnavailable(
            f"{path} is not a plain file of its own", hint="Move it away.", details={"path": str(path)}
        )


def _unavailable(path: Path, error: sqlite3.Error) -> StateUnavailable:
    name = getattr(error, "sqlite_errorname", "")
    anew = "Move the file away to begin anew; what it held is lost."
    hint = next((hint for start, hint in _HINTS.items() if name.startswith(start)), anew)
    return StateUnavailable(
        f"{path} cannot be used: {error}",
        hint=hint,
        details={"path": str(path), "error": name},
        retryable=name.startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_LOCKED")),
    )


_HINTS = {
    "SQLITE_BUSY": "Another process has held it too long; look for one that is stopped.",
    "SQLITE_CANTOPEN": "Give this user the right to write the file and its folder.",
    "SQLITE_FULL": "Free some disk space.",
    "SQLITE_IOERR": "Look at the disk: it is full or failing.",
    "SQLITE_LOCKED": "Another connection has held it too long.",
    "SQLITE_READONLY": "Give this user the right to write the file and its folder.",
}
