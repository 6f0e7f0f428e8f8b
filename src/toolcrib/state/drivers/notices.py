"""Notices between the processes of a machine that share a file: who has written for others wakes them.

A notice is a new time of the file (utime(2)), which inotify(7) reports to each process that listens. It comes
after the commit; the writes of SQLite itself come before another process can see what they are about.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolcrib.state.inotify import ATTRIBUTES, Inotify

_log = logging.getLogger(__name__)
_lock = threading.Lock()


def notify(path: Path) -> None:
    """Wake all processes that listen to a file."""
    with suppress(OSError):  # It was moved away: nobody can wait for it.
        os.utime(path)


@contextmanager
def listening(path: Path, heard: Callable[[], None]) -> Iterator[None]:
    """Call `heard`, in a thread, after each notice of a file that is there, also of this process's own."""
    try:
        with _lock:
            listener = _listener()
            watch = listener.add(path, heard)
    except OSError as error:
        _log.warning("changes by other processes are noticed up to a second late: %s", error)
        yield
        return
    try:
        yield
    finally:
        with _lock:
            listener.remove(watch, heard)


class _Listener:
    """The listener of this process: one thread and one instance of inotify, whose number is limited."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._inotify = Inotify()
        self._heard: dict[int, list[Callable[[], None]]] = {}
        threading.Thread(target=self._run, name="toolcrib-notices", daemon=True).start()

    def add(self, path: Path, heard: Callable[[], None]) -> int:
        watch = self._inotify.add(os.fspath(path), ATTRIBUTES)
        self._heard.setdefault(watch, []).append(heard)
        return watch

    def remove(self, watch: int, heard: Callable[[], None]) -> None:
        self._heard[watch].remove(heard)
        if not self._heard[watch]:
            del self._heard[watch]
            self._inotify.remove(watch)

    def _run(self) -> None:
        events = select.poll()
        events.register(self._inotify, select.POLLIN)
        while True:
            events.poll()
            watches = {news.watch for news in self._inotify.read()}
            with _lock:
                heard = [one for watch in watches for one in self._heard.get(watch, ())]
            for one in heard:
                one()


_listeners: list[_Listener] = []


def _listener() -> _Listener:
    # A thread does not outlive a fork.
    if not _listeners or _listeners[0].pid != os.getpid():
        _listeners[:] = [_Listener()]
    return _listeners[0]
