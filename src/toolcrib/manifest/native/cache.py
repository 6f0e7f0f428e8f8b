"""What manifests said, kept so that the next start need not parse them. It never changes what is loaded.

One file (see `kept`): an index, then for each tool the bytes of its manifest and its data as JSON. An entry
counts only while the manifest's state on disk is what it was, and its digest is right. Whatever is wrong with
the file, the manifests are read instead.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.manifest.cache_file import kept_key, read_kept, write_kept
from toolcrib.manifest.native import reader as native
from toolcrib.manifest.native import schema as shape
from toolcrib.manifest.native.reader import (
    FILE_NAME,
    folders,
    read_document,
    read_folder,
    secrets_of,
    tool_of,
    uncollected,
)
from toolcrib.manifest.yaml import source
from toolcrib.manifest.yaml.diagnostics import Diagnostic, failure, make
from toolcrib.manifest.yaml.source import Document, Unplaced
from toolcrib.spec import Tool

__all__ = ["Late", "LateTool", "Mark", "load_late", "mark_of", "new_mark_of"]

_FORM = "toolcrib manifests 2"
_FEWEST = 200
"""So many manifests are worth a file."""
_STALE_PART = 20
"""The file is written anew once one part in so many of it does not count."""
_SETTLED_NS = 100_000_000
"""A file changed less than this before it was looked at may change again with its times as they are."""

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
    """Where it begins behind the index."""
    raw: int
    """Bytes of the manifest; its data follows."""
    size: int


class _Kept(NamedTuple):
    """The file."""

    content: Any
    begin: int
    """Where the entries begin."""
    entries: dict[str, list[Any]]
    """The parts of an `_Entry` by name: to make ten thousand of them takes long."""


class _Fresh(NamedTuple):
    """A manifest that was read now."""

    mark: Mark
    secrets: list[str]
    raw: bytes
    json: bytes


_NOTHING = _Kept(b"", 0, {})


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
        read = None if cache is None else read_kept(cache, _key(base))
        kept = _NOTHING if read is None else _Kept(*read)
        settled = time.time_ns() - _SETTLED_NS
        for name in names:
            folder = f"{base}/{name}"
            entry = kept.entries.get(name)
            if entry is not None and entry[0] == mark_of(f"{folder}/{FILE_NAME}"):
                tools.append(LateTool(name, entry[1], entry[0], partial(_from_file, kept, folder, name)))
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
            _write(cache, base, [tool.name for tool in tools], fresh, kept)
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
    """For this folder, and the modules that read manifests."""
    return kept_key(_FORM, base, *(repr(mark_of(one.__file__ or "")) for one in (native, shape, source)))


def _from_file(kept: _Kept, folder: str, name: str) -> tuple[Tool, Document]:
    """The tool that an entry holds; where the entry is broken, the one on disk."""
    entry = _Entry(*kept.entries[name])
    whole = _bytes(kept, entry)
    if hashlib.sha256(whole).hexdigest() == entry.digest:
        return _from_json(whole[: entry.raw], whole[entry.raw :], f"{folder}/{FILE_NAME}")
    found: list[Diagnostic] = []
    read_one = read_folder(folder, name, found)
    if read_one is None and found:
        raise failure(found)
    if read_one is None or entry.mark != mark_of(read_one[1].path):
        # It may have passed its checks as it was.
        told = "the manifest has changed since the project was opened"
        raise failure([make(f"{folder}/{FILE_NAME}", (1, 1), "unreadable", told, hint="open it again")])
    return read_one


def _bytes(kept: _Kept, entry: _Entry) -> bytes:
    start = kept.begin + entry.start
    return bytes(kept.content[start : start + entry.size])


def _write(cache: Path, base: str, names: list[str], fresh: dict[str, _Fresh], kept: _Kept) -> None:
    parts: list[bytes] = []
    index: dict[str, _Entry] = {}
    at = 0
    for name in names:
        if name in fresh:
            mark, secrets, raw, json = fresh[name]
            digest = hashlib.sha256(raw)
            digest.update(json)
            entry = _Entry(mark, secrets, digest.hexdigest(), at, len(raw), len(raw) + len(json))
            parts += (raw, json)
        elif name in kept.entries:
            entry = _Entry(*kept.entries[name])
            parts.append(_bytes(kept, entry))
            entry = entry._replace(start=at)
        else:
            continue
        index[name] = entry
        at += entry.size
    write_kept(cache, _key(base), {name: list(entry) for name, entry in index.items()}, parts)
