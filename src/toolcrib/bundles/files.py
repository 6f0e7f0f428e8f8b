"""Record files: created once, replaced as a whole, never half written, readable by their owner only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_SH
from pathlib import Path
from typing import Any

import msgspec

from toolcrib.errors import StateUnavailable
from toolcrib.state.private import make_private, put_file, sync_folder, unwritable

_WAIT_S = 30.0
"""Seconds until a process that holds the lock is taken for stopped; a large import takes some of them."""


class StoreLock:
    """The lock of a store, for all its processes and threads.

    Who only creates a file shares it. Who changes or removes something has it alone: so no tool can get into
    a bundle while that bundle is deleted. Everybody waits in one line (`turn`), else a stream of creations
    could keep a change waiting for ever, as flock(2) is not fair. After `wait_s` seconds StateUnavailable.
    """

    def __init__(self, folder: Path, wait_s: float = _WAIT_S) -> None:
        self._lock, self._turn = folder / "lock", folder / "turn"
        self._wait_s = wait_s

    def shared(self) -> AbstractContextManager[None]:
        """Hold the lock together with others that create files."""
        return self._held(LOCK_SH)

    def alone(self) -> AbstractContextManager[None]:
        """Hold the lock without anybody else."""
        return self._held(LOCK_EX)

    @contextmanager
    def _held(self, how: int) -> Iterator[None]:
        # Opened anew each time: flock(2) belongs to the open file, so threads of one process exclude each
        # other too. `turn` is held while waiting only, so one at most waits for `lock`, and nobody overtakes.
        with _opened(self._lock) as lock:
            with _opened(self._turn) as turn:
                self._acquire(turn, LOCK_EX)
                self._acquire(lock, how)
            yield

    def _acquire(self, descriptor: int, how: int) -> None:
        from toolcrib.guard.audit.files import lock_file

        try:
            lock_file(descriptor, how, self._wait_s)
        except BlockingIOError:
            raise StateUnavailable(
                f"another process has had {self._lock} locked for {self._wait_s:g} s",
                hint="Look for a process of Toolcrib that is stopped; let it continue, or end it.",
                details={"path": str(self._lock)},
                retryable=True,
            ) from None
        except OSError as error:  # Such as ENOLCK of NFS.
            raise unwritable(self._lock, error) from None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    make_folder(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # Lists are read under the lock too, also by those who may only read, and flock(2) needs no more.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            raise unwritable(path, error) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder as `make_private` does. Raises StateUnavailable."""
    try:
        make_private(path)
    except OSError as error:
        raise unwritable(path, error) from None


def create_file(path: Path, value: Any) -> bool:
    """Write a new JSON file; return False if there is one already, which stays as it is.

    When this returns, the file is on disk. Of many processes exactly one succeeds.
    """
    return _put(path, value, first=True)


def replace_file(path: Path, value: Any) -> None:
    """Write a JSON file in place of the one that is there. Readers see the old one or the new one."""
    _put(path, value, first=False)


def _put(path: Path, value: Any, *, first: bool) -> bool:
    try:
        made = put_file(path, encoded(value), first=first)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    return made


def remove_file(path: Path) -> None:
    """Remove a file for good."""
    try:
        path.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None


def encoded(value: Any) -> bytes:
    """Return a value as the text of a JSON file."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def write_derived(path: Path, data: bytes) -> None:
    """Write a file that can be made again: in one step, without waiting for the disk, and never an error."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        try:
            new.write_bytes(data)
            new.chmod(0o600)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
