"""Signals by which a process stops to serve, and the children that a tool forks there."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

_taken: set[int] = set()
"""The signals for which this process has handlers of ours."""
_fork = threading.local()
"""The signals that the thread that forks had blocked before."""


@contextmanager
def stopping(stop: Callable[[], object], numbers: Iterable[int]) -> Iterator[None]:
    """Meanwhile call `stop` in the running event loop at one of these signals.

    Outside the main thread the program's own handlers stay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = tuple(numbers)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        with defaults_in_forks(numbers):
            yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextmanager
def defaults_in_forks(numbers: Iterable[int]) -> Iterator[None]:
    """Meanwhile a child that a tool forks has the usual handlers of these signals again.

    With those of this process it would not end: `multiprocessing.Pool` ends its processes by SIGTERM. What a
    handler writes for the event loop would even reach the loop here, and stop this process.
    """
    new = set(numbers) - _taken
    _taken.update(new)
    try:
        yield
    finally:
        _taken.difference_update(new)


def _before() -> None:
    # A signal may come before the child has its own handlers; it waits until then.
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _taken)


def _after() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _in_child() -> None:
    if _taken:
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)
    for number in _taken:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)
    _after()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
