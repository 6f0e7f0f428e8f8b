"""The cache of a project's manifests: text and data of each, and the result of its checks.

It makes the next start faster and never changes what is loaded. An entry is valid while the state of the
manifest on disk is the one it was written for. If the digest of its content is wrong, the manifest is read.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.manifest.kinds import KINDS, Start
from toolcrib.manifest.native.reader import (
    FILE_NAME,
    folders,
    permissions_of,
    read_document,
    read_folder,
    tool_of,
    uncollected,
)
from toolcrib.manifest.touches import Touch, touched
from toolcrib.manifest.yaml.diagnostics import Diagnostic, failure, make
from toolcrib.manifest.yaml.files import ANY_FILE, SourceFiles
from toolcrib.manifest.yaml.source import Document, read_with_facts
from toolcrib.spec import Tool

_FORM = "toolcrib manifests 9"
_STALE_PART = 20
"""The file is written again once more than one entry in this many is missing or stale."""
CHECKED_PART = 2_000
"""At the end of a process one checked entry in this many is enough: to check it again takes as long."""
_SETTLED_NS = 100_000_000
"""A file that changed less than this ago may change again without another time on it."""
_PACKAGES = (
    "core", "egress", "executors", "manifest", "project/integrity", "sandbox/files", "schema", "spec",
    "template",
)  # fmt: skip
"""Packages whose code decides what a manifest means, which errors it has, and what lists say of it."""

Mark = list[int]
"""State of a file: written and changed at (ns), size, inode, device. Empty: not known.

Of a file too new for these to show its next change: written at, and a random number.
"""
_FULL_MARK = 5


class CheckResult(NamedTuple):
    """The result of the checks of a manifest without errors."""

    warned: bool
    """True if there were warnings."""
    reads: list[str] | None
    """Paths that it may read, where that is all that it may; else None."""
    wide: list[str]
    """Permissions that cover too much, so that calls need approval."""


class Facts(NamedTuple):
    """The facts that a project must know of each tool before any of them runs."""

    secrets: list[str]
    """Names of the secrets that it declares."""
    write: list[str]
    """Paths that it may write, as written."""
    code: list[str]
    """Places at or below which its code may lie, as returned by `places` of `ManifestCache`."""
    kind: str
    version: int | str
    tags: list[str]
    touches: list[Touch]
    """As of `touched`; empty for a kind of a plug-in, whose code is not loaded for this."""


class LazyTool(NamedTuple):
    """A tool that is built on first use, because building ten thousand takes long."""

    name: str
    facts: Facts
    mark: Mark
    make: Callable[[], tuple[Tool, Document]]
    """Return the tool and its document, which may lack positions.

    Raises ManifestError if the cache is damaged and the manifest can no longer be used.
    """


class LazyTools(NamedTuple):
    """The content of a folder of tools."""

    tools: list[LazyTool]
    found: list[Diagnostic]
    rest: list[str]
    """Folders without a usable manifest."""


class _Entry(NamedTuple):
    """One tool in the file."""

    mark: Mark
    facts: list[Any]
    """A `Facts`."""
    digest: str
    """SHA-256 of the content."""
    start: int
    """Offset of the content: the bytes of the manifest, then its data as JSON."""
    raw: int
    """Length of the manifest in bytes."""
    size: int
    checked: list[Any] | None
    """A `CheckResult`, or None while the manifest has not passed its checks."""
    manifest: str
    """SHA-256 of the bytes of the manifest."""
    listed: tuple[int, int] = (0, 0)
    """Begin and end of its entry in MCP's list of tools, behind the contents of all; equal without one."""


class _Stored(NamedTuple):
    """The file as it was read."""

    content: Any
    begin: int
    entries: dict[str, list[Any]]
    """Tool name to the fields of an `_Entry`; ten thousand named tuples would take long to make."""
    lists: tuple[int, int] = (0, 0)
    """Begin and CRC-32 of the entries in MCP's list: a digest would take longer than the rest of the list."""

    def bytes_of(self, entry: _Entry) -> bytes:
        start = self.begin + entry.start
        return bytes(self.content[start : start + entry.size])

    def listed(self) -> memoryview:
        """Return the entries in MCP's list; nothing if they are damaged."""
        listed = memoryview(self.content)[self.begin + self.lists[0] :]
        return listed if zlib.crc32(listed) == self.lists[1] else listed[:0]


_EMPTY = _Stored(b"", 0, {})


class ManifestCache:
    """The manifests of the folder `tools_dir`, with the help of the file `path`; None does without one.

    `places` returns the places at or below which the code of a tool may lie, by what it starts and the path
    of its manifest.
    """

    def __init__(
        self,
        tools_dir: Path,
        path: Path | None,
        files: SourceFiles = ANY_FILE,
        places: Callable[[Start, str], list[str]] = lambda *_: [],
    ) -> None:
        self._files, self._places = files, places
        self._base = os.fspath(tools_dir)
        self._path = path
        self._stored = _EMPTY
        self._fresh: dict[str, tuple[_Entry, bytes]] = {}
        """Manifests that were read in this process, with their content."""
        self._checked: dict[str, tuple[CheckResult, bytes]] = {}

    def load(self) -> LazyTools:
        """Return what the folder holds. Never raises for a bad manifest."""
        tools: list[LazyTool] = []
        found: list[Diagnostic] = []
        rest: list[str] = []
        with uncollected():
            names = folders(self._base, found)
            if not names:
                self._path = None
            self._stored = self._read_file()
            settled = time.time_ns() - _SETTLED_NS
            for name in names:
                tool = self._from_cache(name) or self._from_disk(name, found, settled)
                if tool is None:
                    rest.append(name)
                else:
                    tools.append(tool)
            self.save([tool.name for tool in tools])
        return LazyTools(tools, found, rest)

    def check_result(self, name: str, mark: Mark) -> CheckResult | None:
        """Return the result of earlier checks; None if the manifest must be checked."""
        entry = self._stored.entries.get(name)
        if entry is None or entry[0] != mark or entry[6] is None:
            return None
        return CheckResult(*entry[6])

    def listed(self, marks: Mapping[str, Mark]) -> dict[str, tuple[memoryview, str, list[str] | None]]:
        """Return by name what `add_check` was given for the tools that still have these marks.

        Each comes with the SHA-256 of its manifest in hex, and with `CheckResult.reads`.
        """
        listed, entries = self._stored.listed(), self._stored.entries
        with uncollected():
            return {
                name: (entry, kept[7], None if kept[6] is None else CheckResult(*kept[6]).reads)
                for name, mark in marks.items()
                if (kept := entries.get(name)) and kept[0] == mark and (entry := listed[slice(*kept[8])])
            }

    def add_check(self, name: str, mark: Mark, result: CheckResult, listed: bytes) -> None:
        """Remember that the manifest in this state has passed its checks, and its entry in MCP's list."""
        if self._path is None or len(mark) != _FULL_MARK:
            return
        entry = self._fresh[name][0] if name in self._fresh else self._stored.entries.get(name)
        if entry is not None and entry[0] == mark:
            self._checked[name] = result, listed

    def save(self, names: Collection[str], stale_part: int = _STALE_PART) -> None:
        """Write the file if one entry in so many has changed; `names` are the tools that exist."""
        changed = len(self._fresh.keys() | self._checked.keys())
        if self._path is None or changed * stale_part <= len(names):
            return
        index: dict[str, _Entry] = {}
        parts: list[bytes] = []
        lists: list[bytes] = []
        at = end = 0
        kept = self._stored.listed()
        for name, entry, content in self._entries(names):
            listed = self._checked[name][1] if name in self._checked else kept[slice(*entry.listed)]
            index[name] = entry._replace(start=at, listed=(end, end := end + len(listed)))
            parts.append(content)
            lists.append(bytes(listed))
            at += len(content)
        checksum = zlib.crc32(b"".join(lists))
        head = {"tools": {name: list(entry) for name, entry in index.items()}, "lists": (at, checksum)}
        write_cache(self._path, self._key, head, [*parts, *lists])
        self._fresh, self._checked = {}, {}
        self._stored = self._read_file()

    def _entries(self, names: Collection[str]) -> Iterator[tuple[str, _Entry, bytes]]:
        for name in names:
            if name in self._fresh:
                # What was read in this process is newer than what the file holds.
                entry, content = self._fresh[name]
            elif name in self._stored.entries:
                entry = _Entry(*self._stored.entries[name])
                content = self._stored.bytes_of(entry)
            else:
                continue
            if name in self._checked:
                entry = entry._replace(checked=list(self._checked[name][0]))
            yield name, entry, content

    def _read_file(self) -> _Stored:
        read = None if self._path is None else read_cache(self._path, self._key)
        if read is None:
            return _EMPTY
        content, begin, head = read
        return _Stored(content, begin, head["tools"], head["lists"])

    def _from_cache(self, name: str) -> LazyTool | None:
        entry = self._stored.entries.get(name)
        folder = f"{self._base}/{name}"
        if entry is None or entry[0] != mark_of(f"{folder}/{FILE_NAME}"):
            return None
        return LazyTool(
            name, Facts(*entry[1]), entry[0], partial(_from_file, self._stored, folder, name, self._files)
        )

    def _from_disk(self, name: str, found: list[Diagnostic], settled: int) -> LazyTool | None:
        read_one = read_document(f"{self._base}/{name}", name, found, self._files)
        if read_one is None:
            return None
        document, facts = read_one
        raw, json, mark, known = document.raw, document.json, _mark(facts), self._facts(document)
        # A clock ticks in steps: a file written just now may change once more and keep its times. Such an
        # entry is not kept, so the next start reads the file again.
        if not mark or max(mark[:2]) >= settled:
            mark = _once(mark)
        elif self._path is not None and KINDS.is_builtin(document.data["kind"]):
            content = raw + json
            digest, sha256 = (hashlib.sha256(one).hexdigest() for one in (content, raw))
            entry = _Entry(mark, list(known), digest, 0, len(raw), len(content), None, sha256)
            self._fresh[name] = entry, content
        return LazyTool(name, known, mark, partial(_from_json, raw, json, document.path))

    def _facts(self, document: Document) -> Facts:
        data, granted = document.data, permissions_of(document.data.get("permissions"))
        kind, code, touches = data["kind"], ["/"], list[Touch]()
        # The code of a plug-in is not loaded for this: its tools may have theirs anywhere.
        if KINDS.is_builtin(kind):
            config = KINDS[kind].configure(data["exec"][kind])
            code = self._places(KINDS[kind].starts(config), document.path)
            touches = sorted(touched(Tool(data["name"], "", kind, {}, config, permissions=granted)))
        secrets, tags = [one.name for one in granted.secrets], data.get("tags", [])
        return Facts(secrets, list(granted.write), code, kind, data["version"], tags, touches)

    @cached_property
    def _key(self) -> bytes:
        """Return the key for this folder, this version of the code, and the libraries beside orjson."""
        return cache_key(_FORM, [self._base, repr(self._files), *_code()])


@cache
def _code() -> list[str]:
    """Return the marks of what reads manifests in this process: the code, and the libraries beside orjson."""
    import orjson

    package = Path(__file__).parents[2]
    code = sorted(mark for name in _PACKAGES for mark in _code_in(f"{package}/{name}"))
    libraries = str(Path(orjson.__file__).parents[1])
    return [*code, f"{libraries} {mark_of(libraries)}"]


def _code_in(folder: str) -> Iterator[str]:
    """Yield the path and mark of each file of code in a folder (half the time that `glob` takes)."""
    for entry in os.scandir(folder):
        if entry.name.endswith(".py"):
            yield f"{entry.path} {mark_of(entry.path)}"
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _code_in(entry.path)


def mark_of(path: str) -> Mark:
    """Return the mark of a manifest as it is now."""
    try:
        return _mark(os.stat(path))
    except OSError:
        return []


def new_mark_of(path: str) -> Mark:
    """Return a mark for a manifest that was read just now."""
    return _once(mark_of(path))


def settled_mark_of(path: str, raw: bytes, files: SourceFiles) -> Mark:
    """Return the mark of a manifest whose file was too new for one; empty if it still is, or has changed."""
    try:
        now, facts = read_with_facts(path, files)
    except (OSError, ManifestError):
        return []
    mark = _mark(facts)
    return mark if now == raw and max(mark[:2]) < time.time_ns() - _SETTLED_NS else []


def _once(mark: Mark) -> Mark:
    """Return a mark that no other reading has: a new file may be written again at the same time."""
    return [mark[0], secrets.randbits(62)] if mark else []


def _mark(facts: os.stat_result | None) -> Mark:
    """Return the state of a file. No program can set the change time in it."""
    if facts is None:
        return []
    return [facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev]


def _from_json(raw: bytes, json: bytes, path: str) -> tuple[Tool, Document]:
    import orjson

    document = Document(path, raw, "", orjson.loads(json))
    return tool_of(document.data, path, raw), document


def _from_file(stored: _Stored, folder: str, name: str, files: SourceFiles) -> tuple[Tool, Document]:
    """Return the tool of an entry, or the one on disk if the entry is damaged."""
    entry = _Entry(*stored.entries[name])
    content = stored.bytes_of(entry)
    if hashlib.sha256(content).hexdigest() == entry.digest:
        return _from_json(content[: entry.raw], content[entry.raw :], f"{folder}/{FILE_NAME}")
    found: list[Diagnostic] = []
    read_one = read_folder(folder, name, found, files)
    if read_one is None and found:
        raise failure(found)
    if read_one is None or entry.mark != mark_of(read_one[1].path):
        # It may have passed its checks in its former state.
        message = "the manifest has changed since the project was opened"
        raise failure(
            [make(f"{folder}/{FILE_NAME}", (1, 1), "unreadable", message, hint="open the project again")]
        )
    return read_one


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
        # No link is followed, and a named pipe in its place does not block.
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
    # Only the head is checked here; each entry has a digest of its own, checked when it is used.
    if content[: len(key)] != key or content[len(key) : at] != hashlib.sha256(head).digest():
        return None
    return content, begin, orjson.loads(head)


def write_cache(path: Path, key: bytes, head: Any, parts: Iterable[bytes]) -> None:
    """Replace the file. An unwritable folder is not an error: the next start is only slower."""
    import orjson

    encoded = orjson.dumps(head)
    # A name for each process: two that start at once write two files, and the last to finish is kept.
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        for folder in reversed(path.parents):
            folder.mkdir(mode=0o700, exist_ok=True)  # With `parents` those above would follow the umask.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", _BUFFER) as file:
            file.write(key + hashlib.sha256(encoded).digest() + len(encoded).to_bytes(8, "big") + encoded)
            file.writelines(parts)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
