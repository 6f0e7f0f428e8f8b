"""What manifests said, kept so that the next start need not parse them. It never changes what is loaded.

One file: a line that names its form, the digest and the length of an index, the index, then for each tool the
bytes of its manifest and its data as JSON. An entry counts only while the manifest's state on disk is what it
was, and its digest is right. Whatever is wrong with the file, the manifests are read instead.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.manifest import native, shape, source
from toolcrib.manifest.diagnostics import Diagnostic, failure
from toolcrib.manifest.native import (
    FILE_NAME,
    folders,
    read_document,
    read_folder,
    secrets_of,
    tool_of,
    uncollected,
)
from toolcrib.manifest.source import Document, Unplaced
from toolcrib.spec import Tool

__all__ = ["Late", "LateTool", "Mark", "load_late", "mark_of", "new_mark_of"]

_FORM = b"toolcrib manifests 2 "
_FEWEST = 200
"""So many manifests are worth a file."""
_STALE_PART = 20
"""The file is written anew once one part in so many of it does not count."""
_SETTLED_NS = 100_000_000
"""A file changed less than this before it was looked at may change again with its times as they are."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH

Mark = list[int]
"""Of a file: when it was written and changed in nanoseconds, size, inode, device. Empty: not known.

Where the file is so new that these may not tell the next change: when it was written, and a random number.
"""


class _Entry(NamedTuple):
    """One tool in the file."""

    mark: Mark
    secrets: list[str]
    digest: str
    """SHA-256 of the whole entry."""
    start: int
    raw: int
    """Bytes of the manifest; its data follows."""
    size: int


class _Fresh(NamedTuple):
    """A manifest that was read now."""

    mark: Mark
    secrets: list[str]
    raw: bytes
    json: bytes


class LateTool(NamedTuple):
    """A tool that is made when it is needed: what takes long is to make ten thousand of them."""

    name: str
    secrets: list[str]
    mark: Mark
    """Another one whenever the manifest was touched. Empty: not known."""
    make: Callable[[], tuple[Tool, Document]]
    """With its document, whose places may not be known.

    Raises ManifestError where the cache turns out to be broken and the manifest is no longer good.
    """


class Late(NamedTuple):
    """What a folder of tools holds."""

    tools: list[LateTool]
    found: list[Diagnostic]
    rest: list[str]
    """Folders without a manifest that can be used."""


def load_late(tools_dir: Path, cache: Path | None) -> Late:
    """As `load_tools`, with the help of the file `cache`, which is written where it is worth it."""
    base = os.fspath(tools_dir)
    tools: list[LateTool] = []
    found: list[Diagnostic] = []
    rest: list[str] = []
    fresh: dict[str, _Fresh] = {}
    with uncollected():
        names = folders(base, found)
        if len(names) < _FEWEST:
            cache = None
        content, index = (b"", {}) if cache is None else _open(cache, base)
        settled = time.time_ns() - _SETTLED_NS
        for name in names:
            folder = f"{base}/{name}"
            entry = index.get(name)
            if entry is not None and entry.mark == mark_of(f"{folder}/{FILE_NAME}"):
                make = partial(_kept, content, entry, folder, name)
                tools.append(LateTool(name, entry.secrets, entry.mark, make))
                continue
            read_one = read_document(folder, name, found)
            if read_one is None:
                rest.append(name)
                continue
            document, facts = read_one
            raw, json, path, mark = document.raw, document.json, document.path, _mark(facts)
            needed = secrets_of(document.data)
            if mark and max(mark[:2]) < settled:
                fresh[name] = _Fresh(mark, needed, raw, json)
            else:
                mark = _once(mark)
            tools.append(LateTool(name, needed, mark, partial(_from_json, raw, json, path)))
        if cache is not None and len(fresh) * _STALE_PART > len(names):
            kept = {tool.name: index[tool.name] for tool in tools if tool.name in index}
            _write(cache, base, content, kept | fresh)
    return Late(tools, found, rest)


def mark_of(path: str) -> Mark:
    """The mark of a manifest as it is now."""
    try:
        return _mark(os.stat(path))  # noqa: PTH116 - a third of the cost, for every tool
    except OSError:
        return []


def new_mark_of(path: str) -> Mark:
    """A mark for a manifest that was read just now."""
    return _once(mark_of(path))


def _once(mark: Mark) -> Mark:
    """A mark that no other reading has: what has just been written may be written again at the same time."""
    return [mark[0], secrets.randbits(62)] if mark else []


def _mark(facts: os.stat_result | None) -> Mark:
    """The change time is set by no program."""
    if facts is None:
        return []
    return [facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev]


def _from_json(raw: bytes, json: bytes, path: str) -> tuple[Tool, Document]:
    import orjson

    document = Unplaced(path, raw, orjson.loads(json))
    return tool_of(document.data, path, raw), document


def _key(base: str) -> bytes:
    """What must be the same for the file to count: the folder, and the modules that read manifests."""
    parts = [base, *(repr(mark_of(module.__file__ or "")) for module in (native, shape, source))]
    digest = hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()
    return _FORM + digest.encode() + b"\n"


def _open(cache: Path, base: str) -> tuple[Any, dict[str, _Entry]]:
    """The file and its index; nothing where there is none, or none that this user alone has written."""
    import orjson

    try:
        descriptor = os.open(cache, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b"", {}
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & _OTHERS:
            return b"", {}
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return b"", {}
    finally:
        os.close(descriptor)
    key = _key(base)
    at = len(key) + 32
    start = at + 8
    begin = start + int.from_bytes(content[at:start], "big")
    head = content[start:begin]
    if content[: len(key)] != key or content[len(key) : at] != hashlib.sha256(head).digest():
        return b"", {}
    return content, {
        name: _Entry(mark, secrets, digest, begin + at, raw, size)
        for name, (mark, secrets, digest, at, raw, size) in orjson.loads(head).items()
    }


def _kept(content: Any, entry: _Entry, folder: str, name: str) -> tuple[Tool, Document]:
    """The tool that an entry holds; where the entry is broken, the one on disk."""
    whole = bytes(content[entry.start : entry.start + entry.size])
    if hashlib.sha256(whole).hexdigest() == entry.digest:
        return _from_json(whole[: entry.raw], whole[entry.raw :], f"{folder}/{FILE_NAME}")
    found: list[Diagnostic] = []
    read_one = read_folder(folder, name, found)
    if read_one is None:
        raise failure(found) if found else ManifestError(f"the manifest of {name} is gone")
    return read_one


def _write(cache: Path, base: str, content: Any, entries: dict[str, _Entry | _Fresh]) -> None:
    """Put the file in the place of the one before. That it cannot be written is no harm."""
    import orjson

    parts: list[bytes] = []
    index: dict[str, _Entry] = {}
    at = 0
    for name, entry in entries.items():
        if isinstance(entry, _Fresh):
            whole = entry.raw + entry.json
            digest = hashlib.sha256(whole).hexdigest()
            index[name] = _Entry(entry.mark, entry.secrets, digest, at, len(entry.raw), len(whole))
        else:
            whole = content[entry.start : entry.start + entry.size]
            index[name] = entry._replace(start=at)
        parts.append(whole)
        at += len(whole)
    head = orjson.dumps({name: list(entry) for name, entry in index.items()})
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(_key(base) + hashlib.sha256(head).digest() + len(head).to_bytes(8, "big") + head)
            file.writelines(parts)
        temporary.replace(cache)
    except OSError:
        temporary.unlink(missing_ok=True)
