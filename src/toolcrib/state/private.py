"""Folders and small files of one user, each file replaced as a whole; and the check that they are."""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from toolcrib.errors import ConflictError, StateUnavailable, UsageError

_MAX_BYTES = 64 * 1024 * 1024


def make_private(path: Path) -> None:
    """Make a folder and those missing above it, each with mode 0700. Raises OSError.

    `mkdir` with `parents` makes those above by the umask: with 002, a group could write there.
    """
    if path.is_dir():
        return
    make_private(path.parent)
    # Another process may make it at the same moment.
    path.mkdir(mode=0o700, exist_ok=True)
    # Else a crash could lose the new folder with the synced files in it.
    sync_folder(path.parent)


def is_shared(found: os.stat_result) -> bool:
    """Return True if users other than this one and root can write a file, or add files to a folder."""
    by_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    return bool(by_group or found.st_mode & stat.S_IWOTH) or found.st_uid not in (os.geteuid(), 0)


def _is_own_group(gid: int) -> bool:
    """Return True for the group that `useradd` makes for each user: of the same name, and without others."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and not {*group.gr_mem} - {user.pw_name}


def read_private(path: Path) -> Any:
    """Return the value in a JSON file; None if it is missing, damaged or a symbolic link."""
    try:
        with open_plain(path) as file:
            return json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def open_plain(path: Path | str) -> BinaryIO:
    """Open a file to be read. Raises OSError, also for a link."""
    return open(path, "rb", opener=_opened)


def _opened(path: str, flags: int) -> int:
    # O_NONBLOCK: to open a FIFO that somebody has put there would wait for a writer.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def write_private(path: Path, value: Any) -> None:
    """Write a value as JSON, as `put_private` does."""
    put_private(path, json.dumps(value).encode())


def put_private(path: Path, data: bytes, *, first: bool = False) -> None:
    """Write a file with mode 0600, atomically; with `first`, only if there is none yet.

    Raises `StateUnavailable` if it cannot be written.
    """
    with written(path):
        make_private(path.parent)
        put_file(path, data, first=first)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Raise StateUnavailable if a file cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise StateUnavailable(
            f"{path} cannot be written: {error.strerror}",
            hint="Free disk space if the disk is full, or give this user the right to write there.",
            details={"path": str(path)},
        ) from None


def put_file(path: Path, data: bytes, *, mode: int = 0o600, first: bool = False) -> bool:
    """Write a whole file in place of the one that is there, or with `first` only if there is none.

    Return False if there was a file. Readers see a complete file or none: link(2) and rename(2) give a
    synced one its name, so of many processes with `first` exactly one succeeds. Raises OSError.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        write_synced(new, data, mode)
        (os.link if first else os.replace)(new, path)
    except FileExistsError:
        return False
    finally:
        # `replace` has taken the name away; `link` has left it.
        with suppress(FileNotFoundError):
            new.unlink()
    return True


def write_synced(path: Path, data: bytes, mode: int) -> None:
    """Write a new file that is on disk when this returns. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make names in a folder last through a crash (fsync(2) on the folder)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # A shared folder of a virtual machine may have no such call.
            raise
    finally:
        os.close(descriptor)


def read_inside(path: Path, root: Path) -> str | None:
    """Return the text of a file that is to be changed, None without one.

    Raises UsageError if it cannot be read as text, and for a link out of the project: a clone could let a
    command change any file of its user.
    """
    if path.is_relative_to(root) and not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{path} leads out of the project by a symbolic link", hint="Remove the link.")
    try:
        return path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Repair it, or move it away.") from None


def diff_of(path: Path, before: str | None, after: str) -> str:
    """Return the change of a file as a unified diff; nothing if no line changes."""
    import difflib

    old, new = (before or "").splitlines(), after.splitlines()
    lines = difflib.unified_diff(old, new, str(path), str(path), n=2, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def replace_file(path: Path, before: str | None, text: str) -> str:
    """Replace a file as a whole, or make it (None before). Return the text with the file's own line ends.

    Raises ConflictError if it is not what it was.
    """
    now = None
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open(encoding="utf-8") as file:
                now = file.read()
            if file.newlines == "\r\n":
                text = text.replace("\n", "\r\n")
        # A person may have looked at the change for minutes, and an editor may have saved meanwhile.
        if now != before:
            raise ConflictError(f"{path} has just changed", hint="Run the command again.")
        put_file(path, text.encode(), mode=0o600 if before is None else path.stat().st_mode & 0o777)
    return text
