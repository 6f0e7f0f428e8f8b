"""The cache of a project's manifests: text and data of each, and the result of its checks.

It makes the next start faster and never changes what is loaded. An entry is valid while the state of the
manifest on disk is the one it was written for. If the digest of its content is wrong, the manifest is read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.manifest.kinds import KINDS, Start
from toolcrib.manifest.native.kept import (
    FULL_MARK,
    CheckResult,
    Entry,
    Facts,
    Kept,
    KeptEntry,
    KnownFacts,
    Mark,
    cache_key,
    read_cache,
    states_of,
    write_cache,
    write_kept,
)
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
from toolcrib.manifest.yaml.source import ANY_FILE, Document, SourceFiles, read_with_facts
from toolcrib.spec import Tool

_FORM = "toolcrib manifests 13"
_STALE_PART = 20
"""The file is written again once more than one entry in this many is missing or stale."""
_SETTLED_NS = 100_000_000
"""A file that changed less than this ago may change again without another time on it."""
_PACKAGES = (
    "bundles", "core", "egress", "executors", "manifest", "project/catalog", "project/integrity",
    "sandbox/files", "schema", "spec", "template",
)  # fmt: skip
"""Packages whose code decides what a manifest means, which errors it has, and what lists say of it."""


class _Read(NamedTuple):
    """A manifest that was read in this process."""

    entry: Entry
    content: bytes
    path: str


class LazyTools(NamedTuple):
    """The content of a folder of tools, which are built on first use: to build ten thousand takes long."""

    names: list[str]
    facts: KnownFacts
    marks: dict[str, Mark]
    """The marks of the manifests that were read, which `mark` does not have."""
    mark: Callable[[str], Mark]
    """Returns the mark of a manifest that is kept."""
    make: Callable[[str], tuple[Tool, Document]]
    """Returns a tool and its document, which may lack positions.

    Raises ManifestError if the cache is damaged and the manifest can no longer be used.
    """
    found: list[Diagnostic]
    rest: list[str]
    """Folders without a usable manifest."""


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
        self._before = self._kept = Kept(None, b"")
        """The file as tools are read from it, and as it is now."""
        self._fresh: dict[str, _Read] = {}
        """Manifests that were read in this process and are not in the file yet."""
        self._only_here: dict[str, _Read] = {}
        """Those that will not be in it."""
        self._checks = None if path is None else path.with_name(f"{path.name}-checks")
        self._checked: dict[str, tuple[Mark, CheckResult, bytes]] = {}
        """Checks that the file does not have: those kept beside it, and those of this process."""
        self._is_checked = False

    def load(self) -> LazyTools:
        """Return what the folder holds. Never raises for a bad manifest."""
        found: list[Diagnostic] = []
        tools: list[str] = []
        rest: list[str] = []
        with uncollected():
            names = folders(self._base, found)
            if not names:
                self._path = None
            self._kept = self._read_file()
            self._checked = self._read_checks()
            states, settled = self._kept.states, time.time_ns() - _SETTLED_NS
            for name, state in zip(names, states_of(self._base, names, FILE_NAME), strict=True):
                usable = states.get(name) == state or self._read(name, found, settled)
                (tools if usable else rest).append(name)
            self.save(tools)
            self._before = kept = self._kept
            read = self._fresh | self._only_here
            same = [name for name in tools if name not in read] if read else tools
            facts = KnownFacts(kept, same, {name: one.entry.facts for name, one in read.items()})
        marks = {name: one.entry.mark for name, one in read.items()}
        return LazyTools(tools, facts, marks, kept.mark, partial(self._make, kept, read), found, rest)

    @property
    def states(self) -> Mapping[str, bytes]:
        """The states of the manifests that tools are made from, as of `states_of`, where they are kept."""
        return self._before.states

    def check_result(self, name: str, mark: Mark) -> CheckResult | None:
        """Return the result of earlier checks; None if the manifest must be checked."""
        if name in self._checked and self._checked[name][0] == mark:
            return self._checked[name][1]
        return self._kept.entry(name).checked if mark and self._kept.mark(name) == mark else None

    def checked(self, names: Iterable[str], marks: Mapping[str, Mark]) -> dict[str, KeptEntry]:
        """Return by name what is kept of the tools that are as they were loaded.

        `marks` are those of manifests that were read meanwhile.
        """
        kept, before = self._kept, self.states
        states = kept.states
        with uncollected():
            found = {
                name: kept.checked(name)
                for name in names
                if name in states
                and (kept.mark(name) == marks[name] if name in marks else states[name] == before.get(name))
            }
            return {name: one for name, one in found.items() if one is not None}

    def listed(self, names: Iterable[str]) -> dict[str, memoryview]:
        """Return by name the entries in MCP's list of tools that `checked` has returned."""
        with uncollected():
            return {name: text for name in names if (text := self._kept.listed(name))}

    def add_check(self, name: str, mark: Mark, result: CheckResult, listed: bytes) -> None:
        """Remember that the manifest in this state has passed its checks, and its entry in MCP's list."""
        if self._path is None or len(mark) != FULL_MARK:
            return
        if mark == (self._fresh[name].entry.mark if name in self._fresh else self._kept.mark(name)):
            self._checked[name] = mark, result, listed
            self._is_checked = True

    def save(self, names: Collection[str]) -> None:
        """Write the file if one entry in so many has changed; `names` are the tools that exist."""
        changed = len(self._fresh.keys() | self._checked.keys())
        if self._path is None or changed * _STALE_PART <= len(names):
            return
        write_kept(self._path, self._key, self._entries(names))
        self._kept = self._read_file()
        if self._kept.states.keys() >= self._fresh.keys() & set(names):
            self._fresh, self._checked, self._is_checked = {}, {}, False
        else:
            self._path = None  # It cannot be written.

    def close(self, names: Collection[str]) -> None:
        """Keep the checks of this process: a few of them beside the file, which takes long to write."""
        import orjson

        self.save(names)
        if self._path is None or self._checks is None or not self._is_checked:
            return
        checks = {
            name: [mark, list(result), listed.decode()]
            for name, (mark, result, listed) in self._checked.items()
        }
        write_cache(self._checks, self._key, orjson.dumps(checks), ())

    def _read_checks(self) -> dict[str, tuple[Mark, CheckResult, bytes]]:
        import orjson

        read = None if self._path is None or self._checks is None else read_cache(self._checks, self._key)
        checks = {} if read is None else orjson.loads(read[2])
        return {
            name: (mark, CheckResult(*result), listed.encode())
            for name, (mark, result, listed) in checks.items()
            if mark == self._kept.mark(name)
        }

    def _entries(self, names: Collection[str]) -> Iterator[tuple[str, Entry, bytes, bytes]]:
        kept = self._kept
        for name in sorted(names):
            listed = b""
            if name in self._fresh:
                # What was read in this process is newer than what the file holds.
                entry, content, _ = self._fresh[name]
            elif name in kept.states:
                entry, content, listed = kept.entry(name), kept.content(name), bytes(kept.listed(name))
            else:
                continue
            if name in self._checked and self._checked[name][0] == entry.mark:
                _, result, listed = self._checked[name]
                entry = entry._replace(checked=result)
            yield name, entry, content, listed

    def _read_file(self) -> Kept:
        return Kept(None, b"") if self._path is None else Kept(self._path, self._key)

    def _read(self, name: str, found: list[Diagnostic], settled: int) -> bool:
        """Read a manifest. Return False if it cannot be used, and add its faults to `found`."""
        read_one = read_document(f"{self._base}/{name}", name, found, self._files)
        if read_one is None:
            return False
        document, facts = read_one
        raw, json, mark, known = document.raw, document.json, _mark(facts), self._facts(document)
        reads = self._fresh
        # A clock ticks in steps: a file written just now may change once more and keep its times. Such an
        # entry is not kept, so the next start reads the file again.
        if not mark or max(mark[:2]) >= settled:
            mark, reads = _once(mark), self._only_here
        elif self._path is None or not KINDS.is_builtin(document.data["kind"]):
            reads = self._only_here
        content = raw + json
        digest, sha256 = (hashlib.sha256(one).hexdigest() for one in (content, raw))
        reads[name] = _Read(Entry(mark, known, digest, len(raw), sha256, None), content, document.path)
        return True

    def _make(self, kept: Kept, read: Mapping[str, _Read], name: str) -> tuple[Tool, Document]:
        """Return a tool, or the one on disk if what is kept of it is damaged."""
        if name in read:
            (entry, content, path), raw = read[name], read[name].entry.raw
            return _from_json(content[:raw], content[raw:], path)
        entry, content, path = kept.entry(name), kept.content(name), f"{self._base}/{name}/{FILE_NAME}"
        if hashlib.sha256(content).hexdigest() == entry.digest:
            return _from_json(content[: entry.raw], content[entry.raw :], path)
        found: list[Diagnostic] = []
        read_one = read_folder(f"{self._base}/{name}", name, found, self._files)
        if read_one is None and found:
            raise failure(found)
        if read_one is None or entry.mark != mark_of(read_one[1].path):
            # It may have passed its checks in its former state.
            message = "the manifest has changed since the project was opened"
            raise failure([make(path, (1, 1), "unreadable", message, hint="open the project again")])
        return read_one

    def _facts(self, document: Document) -> Facts:
        data, granted = document.data, permissions_of(document.data.get("permissions"))
        kind, code, touches = data["kind"], ["/"], list[Touch]()
        # The code of a plug-in is not loaded for this: its tools may have theirs anywhere.
        if KINDS.is_builtin(kind):
            config = KINDS[kind].configure(data["exec"][kind])
            code = self._places(KINDS[kind].starts(config), document.path)
            touches = sorted(touched(Tool(data["name"], "", kind, {}, config, permissions=granted)))
        secrets, tags = [one.name for one in granted.secrets], data.get("tags", [])
        most = data.get("limits", {}).get("concurrent_calls")
        return Facts(secrets, list(granted.write), code, kind, data["version"], tags, most, touches)

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
