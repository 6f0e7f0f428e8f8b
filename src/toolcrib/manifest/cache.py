"""What manifests said, kept so that the next start need not parse them. It never changes what is loaded.

One file: a line that names its form, the length of an index, the index, then for each tool the bytes of its
manifest and its data as JSON. An entry counts only while the manifest's state on disk is what it was, and its
digest is right. Whatever is wrong with the file, the manifests are read instead.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.manifest import native, shape, source
from toolcrib.manifest.diagnostics import Diagnostic, failure
from toolcrib.manifest.native import FILE_NAME, folders, read_folder, tool_of, uncollected
from toolcrib.spec import Tool

__all__ = ["LateTool", "load_late", "mark_of"]

_FORM = b"toolcrib manifests 1 "
_FEWEST = 200
"""So many manifests are worth a file."""
_STALE_PART = 20
"""The file is written anew once one part in so many of it does not count."""
_SETTLED_NS = 100_000_000
"""A file changed less than this before it was looked at may change again with its times as they are."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class _Entry(NamedTuple):
    """One tool in the file."""

    state: list[int]
    digest: str
    """SHA-256 of the whole entry."""
    start: int
    raw: int
    """Bytes of the manifest; its data follows."""
    size: int
    secrets: list[str]


@dataclass(frozen=True, slots=True)
class LateTool:
    """A tool that is made when it is needed."""

    name: str
    secrets: tuple[str, ...]
    mark: str
    """Another one whenever the manifest was touched; begins with the time of its change. Empty: not known."""
    make: Callable[[], Tool]
    """Raises ManifestError where the cache turns out to be broken and the manifest is no longer good."""


def load_late(tools_dir: Path, cache: Path | None) -> tuple[list[LateTool], list[Diagnostic]]:
    """As `load_tools`, with the help of the file `cache`, which is written where it is worth it."""
    base = os.fspath(tools_dir)
    tools: list[LateTool] = []
    found: list[Diagnostic] = []
    with uncollected():
        names = folders(base, found)
        if cache is None or len(names) < _FEWEST:
            cache = None
        content, index = (b"", {}) if cache is None else _open(cache, base)
        fresh: dict[str, tuple[bytes, Any, list[int]]] = {}
        for name in names:
            path = f"{base}/{name}/{FILE_NAME}"
            entry, state = index.get(name), _state(path)
            if entry is not None and entry.state == state:
                make = partial(_kept, content, entry, path, name)
                tools.append(LateTool(name, tuple(entry.secrets), _mark(state), make))
                continue
            read_one = read_folder(f"{base}/{name}", name, found)
            if read_one is None:
                continue
            tool, document = read_one
            secrets = tuple(secret.name for secret in tool.permissions.secrets)
            tools.append(LateTool(name, secrets, _mark(state), partial(_itself, tool)))
            if document.path == path and state is not None and state == _state(path) and _settled(state):
                fresh[name] = document.raw, document.data, state
    if cache is not None and len(fresh) * _STALE_PART > len(names):
        _write(cache, base, content, {name: index[name] for name in names if name in index}, fresh, tools)
    return tools, found


def _itself(tool: Tool) -> Tool:
    return tool


def mark_of(path: str) -> str:
    """The mark of a manifest as it is now."""
    return _mark(_state(path))


def _mark(state: list[int] | None) -> str:
    return "" if state is None else ":".join(map(str, state))


def _state(path: str) -> list[int] | None:
    """What the kernel tells of a file; the change time is set by no program."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the cost, for every tool
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev]


def _settled(state: list[int]) -> bool:
    return max(state[0], state[1]) < time.time_ns() - _SETTLED_NS


def _key(base: str) -> bytes:
    """What must be the same for the file to count: the folder, and the modules that read manifests."""
    parts = [base, *(repr(_state(module.__file__ or "")) for module in (native, shape, source))]
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
    if content[: len(key)] != key:
        return b"", {}
    try:
        start = len(key) + 8
        length = int.from_bytes(content[len(key) : start], "big")
        read = orjson.loads(content[start : start + length])
        begin = start + length
        return content, {
            name: _Entry(state, digest, begin + at, raw, size, secrets)
            for name, (state, digest, at, raw, size, secrets) in read.items()
        }
    except (ValueError, TypeError, AttributeError):
        return b"", {}


def _kept(content: Any, entry: _Entry, path: str, name: str) -> Tool:
    """The tool that an entry holds; where the entry is broken, the one on disk."""
    import orjson

    whole = bytes(content[entry.start : entry.start + entry.size])
    if hashlib.sha256(whole).hexdigest() == entry.digest:
        return tool_of(orjson.loads(whole[entry.raw :]), path, whole[: entry.raw])
    found: list[Diagnostic] = []
    read_one = read_folder(os.path.dirname(path), name, found)  # noqa: PTH120 - text is what is kept
    if read_one is None:
        raise failure(found) if found else ManifestError(f"the manifest of {name} is gone")
    return read_one[0]


def _write(
    cache: Path,
    base: str,
    content: Any,
    kept: dict[str, _Entry],
    fresh: dict[str, tuple[bytes, Any, list[int]]],
    tools: list[LateTool],
) -> None:
    """Put the file in the place of the one before. That it cannot be written is no harm."""
    import orjson

    key, secrets = _key(base), {tool.name: list(tool.secrets) for tool in tools}
    parts: list[bytes] = []
    index: dict[str, _Entry] = {}
    at = 0
    for name, needed in secrets.items():
        if name in fresh:
            raw, data, state = fresh[name]
            whole = raw + orjson.dumps(data)
            digest = hashlib.sha256(whole).hexdigest()
            index[name] = _Entry(state, digest, at, len(raw), len(whole), needed)
        elif name in kept:
            entry = kept[name]
            whole = bytes(content[entry.start : entry.start + entry.size])
            index[name] = entry._replace(start=at)
        else:
            continue
        parts.append(whole)
        at += len(whole)
    head = orjson.dumps({name: list(entry) for name, entry in index.items()})
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(key + len(head).to_bytes(8, "big") + head)
            file.writelines(parts)
        temporary.replace(cache)
    except OSError:
        temporary.unlink(missing_ok=True)
