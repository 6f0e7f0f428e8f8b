"""The thread that hears from other processes on a Postgres server, and renews the name of this process."""

from __future__ import annotations

import os
import select
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from toolcrib.errors import StateUnavailable
from toolcrib.state.drivers.dialect import POSTGRES_NOW

if TYPE_CHECKING:
    import psycopg

_BEAT = (
    f"INSERT INTO holders VALUES ($1, {POSTGRES_NOW})"
    " ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at"
)
_FORGET = f"DELETE FROM holders WHERE seen_at < {POSTGRES_NOW} - 86400"
_RETRY_S = 0.5


class Listener:
    """The listener of this process on one server. Its thread starts when it is first needed.

    `connect` opens a connection of its own; `schema` returns that of the tables, once there was one.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        unavailable: Callable[[psycopg.Error], StateUnavailable],
        schema: Callable[[], str],
        lease_s: float,
    ) -> None:
        self._unavailable = unavailable
        self._schema = schema
        self._connect = connect
        self._lease_s = lease_s
        self._name = uuid.uuid4().hex
        self._holds = False
        self._version = 0
        self._heard: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = -1

    @property
    def version(self) -> int:
        """A number that grows when another process has notified, or may have."""
        self._start()
        return self._version

    @contextmanager
    def listening(self, heard: Callable[[], None]) -> Iterator[None]:
        """Call `heard` in the thread when `version` has grown."""
        self._heard.append(heard)
        self._start()
        try:
            yield
        finally:
            self._heard.remove(heard)

    def notify_sql(self) -> str:
        """Return the statement that notifies the listeners of all other processes."""
        return f"NOTIFY toolcrib, '{_payload(self._schema(), self._name)}'"

    def holder(self) -> str:
        """Return the name under which this process holds things. It is renewed until `close`."""
        if not self._holds:
            with self._own() as connection:
                connection.execute(_BEAT, (self._name,))
            self._holds = True
            self._start()
        return self._name

    def close(self) -> None:
        """End the thread; what this process holds is given up."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                os.eventfd_write(self._stop, 1)
        # The last reference to the server may go in the thread itself, which cannot wait for its own end.
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._holds:
            self._holds = False
            with suppress(StateUnavailable), self._own() as connection:
                connection.execute("DELETE FROM holders WHERE id = %s", (self._name,))
                connection.execute(_FORGET)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._stop = os.eventfd(0, os.EFD_CLOEXEC)
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="toolcrib-postgres", daemon=True
                )
                self._thread.start()

    @contextmanager
    def _own(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection for one purpose."""
        import psycopg

        try:
            with self._connect() as connection:
                yield connection
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    def _run(self, stop: int) -> None:
        try:
            while not _readable(0, stop):
                try:
                    with self._own() as connection:
                        self._listen(connection, stop)
                except StateUnavailable:
                    _readable(_RETRY_S, stop)
        finally:
            os.close(stop)

    def _listen(self, connection: psycopg.Connection[Any], stop: int) -> None:
        texts: list[str] = []
        # Notices that come with an answer go to this handler; those that come between are read below.
        connection.add_notify_handler(lambda notice: texts.append(notice.payload))
        connection.execute("LISTEN toolcrib")
        ours = _payload(self._schema(), "")
        self._changed()  # While nobody listened there may have been changes.
        while True:
            if self._holds:
                connection.execute(_BEAT, (self._name,))
            connection.pgconn.consume_input()
            while (notice := connection.pgconn.notifies()) is not None:
                texts.append(notice.extra.decode())
            # A process knows its own writes, and is not woken by them.
            if any(text.startswith(ours) and not text.endswith(self._name) for text in texts):
                self._changed()
            texts.clear()
            # Four beats in a lease: one may be late without anything being given up.
            if stop in _readable(self._lease_s / 4, connection.fileno(), stop):
                return

    def _changed(self) -> None:
        self._version += 1
        for heard in list(self._heard):
            heard()


def _payload(schema: str, name: str) -> str:
    return f"{schema.encode().hex()}/{name}"


def _readable(seconds: float, *descriptors: int) -> list[int]:
    """Wait until one can be read, by poll(2): select(2) takes none above 1,023."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in waiting.poll(seconds * 1000)]
