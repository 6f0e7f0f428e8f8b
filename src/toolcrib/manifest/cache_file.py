"""A cache file that only this user can have written. A file that is damaged counts as missing.

It holds a line that says what it is and what it is valid for, the digest and the length of the head, the head
as JSON, then the bytes that the head describes.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_BUFFER = 1 << 20
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_key(form: str, parts: Iterable[str]) -> bytes:
    """Return the first line of a file: its form, and a digest of all that must be unchanged."""
    digest = hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()
    return f"{form} {digest}\n".encode()


def read_cache(path: Path, key: bytes) -> tuple[Any, int, Any] | None:
    """Return the content, the offset of the bytes behind the head, and the head.

    None if the file is missing, damaged or for another key, or if another user could have written it.
    """
    import orjson

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            return None
        if facts.st_mode & _WRITABLE_BY_OTHERS:
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


def write_cache(path: Path, key: bytes, head: Any, parts: Iterable[bytes]) -> None:
    """Replace the file. An unwritable folder is no error: the next start is only slower."""
    import orjson

    encoded = orjson.dumps(head)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", _BUFFER) as file:
            file.write(key + hashlib.sha256(encoded).digest() + len(encoded).to_bytes(8, "big") + encoded)
            file.writelines(parts)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
