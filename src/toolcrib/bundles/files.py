"""Record files: created once, replaced as a whole, never half written, readable by their owner only.

A whole bundle is put in place in one step: it is made in a hidden folder, then renamed. One that is there
already is exchanged for the new one (renameat2(2)), so readers meet the old one or the new one, and after a
crash it is one of them too.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import Any

import msgspec

from toolcrib.errors import StateUnavailable
from toolcrib.state.private import make_private, put_file, sync_folder, write_synced, written

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

        with written(self._lock):  # Such as ENOLCK of NFS.
            try:
                lock_file(descriptor, how, self._wait_s)
            except BlockingIOError:
                raise StateUnavailable(
                    f"another process has had {self._lock} locked for {self._wait_s:g} s",
                    hint="Look for a process of Toolcrib that is stopped; let it continue, or end it.",
                    details={"path": str(self._lock)},
                    retryable=True,
                ) from None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    make_folder(path.parent)
    with written(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            # Lists are read under the lock too, also by those who may only read, and flock(2) needs no more.
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                raise error from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder as `make_private` does. Raises StateUnavailable."""
    with written(path):
        make_private(path)


def create_file(path: Path, value: Any) -> bool:
    """Write a new JSON file; return False if there is one already, which stays as it is.

    When this returns, the file is on disk. Of many processes exactly one succeeds.
    """
    return _put(path, value, first=True)


def replace_file(path: Path, value: Any) -> None:
    """Write a JSON file in place of the one that is there. Readers see the old one or the new one."""
    _put(path, value, first=False)


def _put(path: Path, value: Any, *, first: bool) -> bool:
    with written(path):
        made = put_file(path, encoded(value), first=first)
        sync_folder(path.parent)
        return made


def remove_file(path: Path) -> None:
    """Remove a file for good."""
    with written(path):
        path.unlink()
        sync_folder(path.parent)


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


_PREFIX = ".import-"
"""Lists leave out names that begin with a dot."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def staged(bundles: Path, lock: StoreLock, files: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a new hidden folder with these synced JSON files; it is removed at the end if it is still there.

    It is locked while its process lives, so that others know which ones nobody will use any more.
    """
    new = bundles / (_PREFIX + secrets.token_hex(8))
    held: list[int] = []
    make_folder(bundles)
    try:
        with written(new):
            # Between `mkdir` and its lock a new folder looks like one that a killed process has left: the
            # lock of the store prevents that another process removes it then.
            with lock.alone():
                remove_left(bundles)
                new.mkdir(mode=0o700)
                held.append(_locked(new))
            (new / "tools").mkdir(mode=0o700)
            for name, value in files.items():
                write_synced(new / name, encoded(value), 0o600)
            yield new
    finally:
        # After an exchange this is the old bundle.
        shutil.rmtree(new, ignore_errors=True)
        for descriptor in held:
            os.close(descriptor)


def put_in_place(new: Path, place: Path) -> None:
    """Make a staged folder the bundle at a place, with the tools that the old one has and the new one lacks.

    The caller has the lock alone. Raises StateUnavailable where the file system cannot exchange folders.
    """
    with written(place):
        there = place.is_dir()
        if there:
            _link_others(place, new)
        # On disk before the rename: else a crash after it could leave a bundle without its tools.
        sync_folder(new / "tools")
        sync_folder(new)
        if there:
            _exchange(new, place)
        else:
            new.rename(place)
        sync_folder(place.parent)


def remove_left(bundles: Path) -> None:
    """Remove the folders of processes that were killed. The caller has the lock alone."""
    for left in bundles.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # Its process lives.
            descriptor = _locked(left)
            try:
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


def _locked(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _link_others(old: Path, new: Path) -> None:
    """Give the new folder the files of the old one that it lacks. Records are never changed in place."""
    for entry in os.scandir(old):
        target = new / entry.name
        if entry.is_dir(follow_symlinks=False):
            target.mkdir(mode=0o700, exist_ok=True)
            _link_others(Path(entry.path), target)
        elif not entry.name.startswith("."):
            with suppress(FileExistsError):
                os.link(entry.path, target, follow_symlinks=False)
    sync_folder(new)


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    arguments = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if rename is None or rename(*arguments):
        reason = "not in this C library" if rename is None else os.strerror(ctypes.get_errno())
        raise StateUnavailable(
            f"{other} cannot be exchanged for its new version in one step: {reason}",
            hint="Import it as a new bundle, or keep the store on ext4, xfs, btrfs or tmpfs.",
            details={"path": str(other)},
        )
