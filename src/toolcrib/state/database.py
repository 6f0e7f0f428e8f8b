"""The database that approvals, rates, recorded calls and runs are written against, whatever stores it.

Statements are in the SQL that SQLite and Postgres share (`toolcrib.state.drivers.dialect`), with `?` for
values. Times are seconds since the epoch. What this SQL cannot express is a method here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
_TOGETHER = 100
"""Rows that one statement adds."""


class Transaction(ABC):
    """Statements that take effect together, or not at all."""

    __slots__ = ("_execute", "after_commit", "after_end", "coming", "owned")

    def __init__(self, execute: Callable[[str, Sequence[Any]], Any], *, owned: bool = True) -> None:
        self._execute = execute
        self.owned = owned
        """False in a transaction of somebody else, whose end is not known here."""
        self.after_commit: list[Callable[[], None]] = []
        """Called in the thread of the transaction once it is committed; they must neither wait nor raise."""
        self.after_end: list[Callable[[bool], None]] = []
        """Called before these, and also where it is not committed: then with False."""
        self.coming: dict[str, dict[str, Any]] = {}
        """Rows that are about to be added, by id: what would be changed in them next is changed here."""

    def run(self, sql: str, *values: Any) -> int:
        """Run one statement and return the number of rows it changed."""
        return int(self._execute(sql, values).rowcount)

    def each(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Run one statement with each of these values and return the numbers of rows that it changed."""
        return [self.run(sql, *values) for values in rows]

    def later(self, sql: str, *values: Any) -> None:
        """Run one statement whose result nobody needs; it may be sent with the next one."""
        self._execute(sql, values)

    def add(self, table: str, *rows: Mapping[str, Any], conflict: str = "") -> None:
        """Add rows with the same columns, as `later` does; `conflict` is what to do where a key is taken."""
        for start in range(0, len(rows), _TOGETHER):
            some = rows[start : start + _TOGETHER]
            places = f", ({', '.join('?' * len(some[0]))})" * (len(some) - 1)
            values = [value for row in some for value in row.values()]
            self.later(f"{_insert(table, some[0])}{places} {conflict}", *values)

    def insert(self, table: str, values: Mapping[str, Any]) -> bool:
        """Add one row; False if there is one with this key. `table` and the columns are names of our own."""
        return bool(self.run(f"{_insert(table, values)} ON CONFLICT DO NOTHING", *values.values()))

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row, or None if there is none."""
        row: tuple[Any, ...] | None = self._execute(sql, values).fetchone()
        return row

    def all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return every row."""
        rows: list[tuple[Any, ...]] = self._execute(sql, values).fetchall()
        return rows

    def end(self, *, committed: bool) -> None:
        """Call what waits for the end of this transaction."""
        for listener in self.after_end:
            listener(committed)
        if committed:
            for notify in self.after_commit:
                notify()

    @abstractmethod
    def notify(self) -> None:
        """Wake those in other processes who wait for what this transaction writes, once it is committed."""

    @abstractmethod
    def clock(self) -> tuple[str, float]:
        """Return seconds on a clock that is never set and that all users of the database share.

        The text names the clock. Times of another one, such as before a restart, say nothing.
        """

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since the epoch by the clock of the machine where the tables are."""

    @abstractmethod
    def since(self) -> float:
        """Return when the database began to answer, by `now`: before that nobody could renew anything."""

    def has_just_begun(self, lease_s: float) -> bool:
        """Return True while those who hold leases of this length may not have had the time to renew them."""
        return self.now() < self.since() + lease_s

    @abstractmethod
    def is_held(self, holder: str) -> bool:
        """Return True while the process that got this name from `Database.holder` runs."""


def storable(values: Sequence[Any]) -> list[Any]:
    """Return values whose texts every database can store.

    NUL is replaced, which Postgres refuses, and so are halves of surrogate pairs, which are not UTF-8.
    """
    return [
        value.encode(errors="replace").decode().replace("\0", "\ufffd") if isinstance(value, str) else value
        for value in values
    ]


def _insert(table: str, values: Mapping[str, Any]) -> str:
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"


class Database(Protocol):
    """Tables that threads and processes share. It is opened on first use, and again after a fork or failure.

    Every method raises `StateUnavailable` if the database cannot be used; `retryable` if it may be soon. A
    committed transaction survives a power cut.
    """

    waits: bool
    """True if an answer comes over a network: an event loop uses `ask`, so that it never waits for one."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that sees one state of the tables and changes nothing."""

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one `SELECT`. This is quicker than a transaction of its own."""

    def write(self, scope: str | None = None) -> AbstractContextManager[Transaction]:
        """Open a transaction that no other one runs beside. It must not be nested.

        With `scope`, those of other scopes may run beside it; so it must not rely on what they write. SQLite
        has one writer at a time in any case.
        """

    @property
    def version(self) -> int:
        """A number that changes soon after another connection has committed a transaction with `notify`."""

    def listening(self, heard: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `heard` in any thread soon after another connection has committed a transaction with `notify`.

        Now and then it is called without reason, and a notice may be lost: look slowly by yourself too.
        """

    def holder(self) -> str:
        """Return a name for this process, for `Transaction.is_held`."""

    def shrink(self) -> None:
        """Give some of the space of deleted rows back to the machine, where rows to come do not need it."""

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""


async def ask(database: Database, question: Callable[[], _T]) -> _T:
    """Return the answer to a question that reads; in a thread if it may have to be waited for."""
    import asyncio

    return await asyncio.to_thread(question) if database.waits else question()


async def take(database: Database, acquire: Callable[[], _T], give_back: Callable[[_T], object]) -> _T:
    """Return what `acquire` returns, as `ask` does. It is given back if this was cancelled meanwhile."""
    import asyncio

    if not database.waits:
        return acquire()
    coming = asyncio.ensure_future(asyncio.to_thread(acquire))

    def undo(done: asyncio.Future[_T]) -> None:
        if not done.cancelled() and done.exception() is None:
            _ = done.get_loop().run_in_executor(None, give_back, done.result())

    try:
        return await asyncio.shield(coming)
    except asyncio.CancelledError:
        coming.add_done_callback(undo)
        raise


def newest(
    database: Database,
    table: str,
    columns: str,
    filters: Mapping[str, Any],
    limit: int,
    *,
    before: str | None = None,
) -> list[tuple[Any, ...]]:
    """Return rows that match all filters (`matching`), the greatest id first; at most 500.

    `before` is the last id of another page.
    """
    where, values = matching({**filters, "id < ?": before})
    query = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY id DESC LIMIT ?"
    return database.rows(query, *values, max(0, min(limit, 500)))


def matching(filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the condition of rows that match all filters, and its values.

    A filter is a column with a value or a list of them, or a condition with the value of its `?`, or with
    True where it has none. None is not a filter.
    """
    clauses, values = ["1 = 1"], list[Any]()
    for column, value in filters.items():
        if isinstance(value, list):
            clauses.append(f"{column} IN ({', '.join('?' * len(value))})" if value else "1 = 0")
            values += value
        elif value is True:
            clauses.append(column)
        elif value is not None:
            clauses.append(column if "?" in column else f"{column} = ?")
            values.append(value)
    return " AND ".join(clauses), values


def ids(database: Database, table: str, beginning: str, caller: str | None = None) -> list[str]:
    """Return two ids at most that begin so, of this caller or of all; none for an empty text.

    Ids are hexadecimal, so `g` sorts after each digit, in any collation.
    """
    mine, values = ("", []) if caller is None else (" AND caller = ?", [caller])
    query = f"SELECT id FROM {table} WHERE id >= ? AND id < ?{mine} ORDER BY id LIMIT 2"
    return [id for (id,) in database.rows(query, beginning, f"{beginning}g", *values)] if beginning else []
