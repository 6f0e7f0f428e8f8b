"""Small files that only their user reads and writes, each replaced as a whole."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.errors import StateUnavailable

_MAX_BYTES = 64 * 1024 * 1024


def read_private(path: Path) -> Any:
    """Return the value in a JSON file; None if it is missing, damaged or a symbolic link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def write_private(path: Path, value: Any) -> None:
    """Write a value as JSON, as `put_private` does."""
    put_private(path, json.dumps(value).encode())


def put_private(path: Path, data: bytes, *, first: bool = False) -> None:
    """Write a file with mode 0600, atomically; with `first`, only if there is none yet.

    Raises `StateUnavailable` if it cannot be written.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if first:
                with suppress(FileExistsError):
                    os.link(new, path)
            else:
                new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise StateUnavailable(
            f"{path} cannot be written: {error.strerror}",
            hint="Give this user the right to write the file, and free some disk space if the disk is full.",
            details={"path": str(path)},
        ) from None
