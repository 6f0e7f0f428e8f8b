"""Files that are kept for the next start. Whatever is wrong with one, it is as if it were not there.

Each has a line that says what it is and for what it counts, the digest and the length of a head, the head as
JSON, then bytes that the head tells of.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["kept_key", "read_kept", "write_kept"]

_BUFFER = 1 << 20
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def kept_key(form: str, *parts: str) -> bytes:
    """The first line of a file: its form, and a digest of all that must be the same for it to count."""
    digest = hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()
    return f"{form} {digest}\n".encode()


def read_kept(path: Path, key: bytes) -> tuple[Any, int, Any] | None:
    """The content, where the bytes behind the head begin, and the head.

    None where there is no such file, it is not whole, or this user alone has not written it.
    """
    import orjson

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & _OTHERS:
            return None
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    at = len(key) + 32
    start = at + 8
    begin = start + int.from_bytes(content[at:start], "big")
    head = content[start:begin]
    if content[: len(key)] != key or content[len(key) : at] != hashlib.sha256(head).digest():
        return None
    return content, begin, orjson.loads(head)


def write_kept(path: Path, key: bytes, head: Any, parts: Iterable[bytes] = ()) -> None:
    """Put the file in the place of the one before. That it cannot be written is no harm."""
    import orjson

    told = orjson.dumps(head)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", _BUFFER) as file:
            file.write(key + hashlib.sha256(told).digest() + len(told).to_bytes(8, "big") + told)
            file.writelines(parts)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
