"""Bundles that are put in place in one step: made whole in a hidden folder, then renamed.

A bundle that is there already is exchanged for the new one (renameat2(2)), so readers meet the old one
or the new one, and after a crash it is one of them too.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

from toolcrib.bundles.files import StoreLock, encoded, make_folder
from toolcrib.errors import StateUnavailable
from toolcrib.state.private import sync_folder, unwritable, write_synced

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
        # Between `mkdir` and its lock a new folder looks like one that a killed process has left: the lock of
        # the store prevents that another process removes it then.
        with lock.alone():
            remove_left(bundles)
            new.mkdir(mode=0o700)
            held.append(_locked(new))
        (new / "tools").mkdir(mode=0o700)
        for name, value in files.items():
            write_synced(new / name, encoded(value), 0o600)
        yield new
    except OSError as error:
        raise unwritable(new, error) from None
    finally:
        # After an exchange this is the old bundle.
        shutil.rmtree(new, ignore_errors=True)
        for descriptor in held:
            os.close(descriptor)


def put_in_place(new: Path, place: Path) -> None:
    """Make a staged folder the bundle at a place, with the tools that the old one has and the new one lacks.

    The caller has the lock alone. Raises StateUnavailable where the file system cannot exchange folders.
    """
    try:
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
    except OSError as error:
        raise unwritable(place, error) from None


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
