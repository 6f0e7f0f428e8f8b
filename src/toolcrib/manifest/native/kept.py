"""The file that keeps a project's manifests: columns that each start reads, and a row for each tool.

A start of ten thousand tools compares the states of their files with one column. The rest that is known of a
tool is decoded when something asks for it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Any, Literal, NamedTuple

from toolcrib.manifest.touches import Touch

Mark = list[int]
"""State of a file: written and changed at (ns), size, inode, device. Empty: not known.

Of a file too new for these to show its next change: written at, and a random number.
"""
FULL_MARK = 5
_STATE = Struct("=qqQQQ")
"""A full mark in the column of marks."""
_DIGEST = 32
_BUFFER = 1 << 20
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


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
    concurrent: int | None
    """Its calls that may run at a time; None: any number."""
    touches: list[Touch]
    """As of `touched`; empty for a kind of a plug-in, whose code is not loaded for this."""


class KeptEntry(NamedTuple):
    """The facts that are known of a manifest without errors whose entry in MCP's list is kept."""

    manifest: str
    """SHA-256 of the bytes of the manifest."""
    reads: list[str] | None
    """As in `CheckResult`."""
    concurrent: int | None
    """As in `Facts`."""


class Entry(NamedTuple):
    """One tool in the file."""

    mark: Mark
    facts: Facts
    digest: str
    """SHA-256 of the content: the bytes of the manifest, then its data as JSON."""
    raw: int
    """Length of the manifest in bytes."""
    manifest: str
    """SHA-256 of the bytes of the manifest."""
    checked: CheckResult | None
    """None while the manifest has not passed its checks."""


class Kept:
    """The file as it was read; empty if it is missing, damaged, or for another key."""

    def __init__(self, path: Path | None, key: bytes) -> None:
        import orjson

        read = None if path is None else read_cache(path, key)
        self._content: bytes | mmap.mmap
        self._content, self._begin, head = read or (b"", 0, memoryview(b""))
        self.digest = self._content[: len(key) + _DIGEST].hex()
        """A text that no other content of the file has; empty without one."""
        end = 8 + int.from_bytes(head[:8], "big")
        columns = orjson.loads(head[8:end] or b"{}")
        self.names: list[str] = columns.get("names", [])
        states = bytes(head[end : end + _STATE.size * len(self.names)])
        parts = (states[at : at + _STATE.size] for at in range(0, len(states), _STATE.size))
        self.states = dict(zip(self.names, parts, strict=True))
        """Name to the mark as `states_of` yields it."""
        end += len(states)
        self._manifests = head[end : end + _DIGEST * len(self.names)]
        self._rows, self._at = head[end + len(self._manifests) :], columns.get("at", [])
        self._checks, self._checked = columns.get("checks", []), columns.get("checked", [])
        self._touches, self._touched = columns.get("touches", []), columns.get("touched", [])
        self.counts: dict[str, dict[str, int]] = columns.get("counts", {"secrets": {}, "write": {}})
        """The number of tools that declare a secret, or may write a path."""
        self._lists = columns.get("lists", (0, 0))

    def _number(self, name: str) -> int:
        # The names are sorted. A mapping of all would be most of the first call among a hundred thousand.
        return bisect_left(self.names, name)

    def _row(self, name: str) -> list[Any]:
        import orjson

        number = self._number(name)
        row: list[Any] = orjson.loads(self._rows[self._at[number] : self._at[number + 1]])
        return row

    def mark(self, name: str) -> Mark:
        """Return the mark of a tool; empty if there is none of that name."""
        state = self.states.get(name)
        return [] if state is None else list(_STATE.unpack(state))

    def touches(self, name: str) -> list[Touch]:
        """Return what the tool touches."""
        found: list[Touch] = self._touches[self._touched[self._number(name)]]
        return found

    def facts(self, name: str) -> Facts:
        """Return what is known of a tool."""
        return Facts(*(*self._row(name)[0], self.touches(name)))

    def entry(self, name: str) -> Entry:
        """Return all about a tool but its content."""
        facts, digest, raw, manifest, checked, *_ = self._row(name)
        known = Facts(*(*facts, self.touches(name)))
        result = None if checked is None else CheckResult(*checked)
        return Entry(self.mark(name), known, digest, raw, manifest, result)

    def content(self, name: str) -> bytes:
        """Return the bytes of a manifest, then its data as JSON, which may be damaged."""
        start, size = self._row(name)[5:7]
        return bytes(self._content[self._begin + start : self._begin + start + size])

    def checked(self, name: str) -> KeptEntry | None:
        """Return the facts about a manifest without errors; None without its entry in MCP's list."""
        number = self._number(name)
        if (check := self._checks[self._checked[number]]) is None:
            return None
        return KeptEntry(self._manifests[_DIGEST * number : _DIGEST * (number + 1)].hex(), *check)

    def listed(self, name: str) -> memoryview:
        """Return the entry of a tool in MCP's list; empty without one."""
        return self._listed[slice(*self._row(name)[7])]

    @cached_property
    def _listed(self) -> memoryview:
        """The entries of all in MCP's list; nothing if damaged. A digest would take longer than the list."""
        listed = memoryview(self._content)[self._begin + self._lists[0] :]
        return listed if zlib.crc32(listed) == self._lists[1] else listed[:0]


def write_kept(path: Path, key: bytes, entries: Iterable[tuple[str, Entry, bytes, bytes]]) -> None:
    """Replace the file by these tools, sorted by name: name, entry, content, and entry in MCP's list."""
    import orjson

    names, states, manifests, rows, at, parts, lists = [], [], [], [], [0], [], []
    touches, touched, start, end = dict[tuple[Touch, ...], int](), [], 0, 0
    checks, checked_as = dict[bytes, int](), []
    counts = {"secrets": Counter[str](), "write": Counter[str]()}
    for name, (mark, facts, digest, raw, manifest, checked), content, listed in entries:
        names.append(name)
        states.append(_STATE.pack(*mark))
        manifests.append(bytes.fromhex(manifest))
        check = (checked.reads, facts.concurrent) if checked is not None and listed else None
        checked_as.append(checks.setdefault(orjson.dumps(check), len(checks)))
        counts["secrets"].update(facts.secrets)
        counts["write"].update(facts.write)
        touched.append(touches.setdefault(tuple(facts.touches), len(touches)))
        result = None if checked is None else list(checked)
        place = start, len(content), (end, end := end + len(listed))
        rows.append(orjson.dumps([facts[:-1], digest, raw, manifest, result, *place]))
        at.append(at[-1] + len(rows[-1]))
        start += len(content)
        parts.append(content)
        lists.append(listed)
    columns = orjson.dumps({
        "names": names, "at": at, "touches": list(touches), "touched": touched, "counts": counts,
        "lists": (start, zlib.crc32(b"".join(lists))),
        "checks": [orjson.Fragment(one) for one in checks], "checked": checked_as,
    })  # fmt: skip
    head = b"".join([len(columns).to_bytes(8, "big"), columns, *states, *manifests, *rows])
    write_cache(path, key, head, [*parts, *lists])


class KnownFacts(Mapping[str, Facts]):
    """The facts of tools by name: of those that are kept decoded when asked for."""

    def __init__(self, kept: Kept, same: Iterable[str], read: Mapping[str, Facts]) -> None:
        self._kept, self._same, self._read = kept, dict.fromkeys(same), dict(read)

    def __getitem__(self, name: str) -> Facts:
        return self._kept.facts(name) if name in self._same else self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._same or name in self._read

    def __iter__(self) -> Iterator[str]:
        # A copy: tools come and go while calls are made in other threads.
        return iter([*self._same, *self._read])

    def __len__(self) -> int:
        return len(self._same) + len(self._read)

    @property
    def digest(self) -> str:
        """`Kept.digest` of the file that `is_kept` means."""
        return self._kept.digest

    def is_kept(self, name: str) -> bool:
        """Return True for a tool whose manifest is as the file has it."""
        return name in self._same

    def touches(self, name: str) -> list[Touch]:
        """Return what a tool touches."""
        return self._kept.touches(name) if name in self._same else self._read[name].touches

    def every(self, of: Literal["secrets", "write"]) -> set[str]:
        """Return all secrets that these tools declare, or all paths that they may write, as written."""
        kept, counts = self._kept, self._kept.counts[of]
        others = [kept.facts(name) for name in kept.states.keys() - self._same.keys()]
        gone = Counter(one for facts in others for one in getattr(facts, of))
        found = {one for one, count in counts.items() if count > gone[one]}
        return found.union(*(getattr(facts, of) for facts in [*self._read.values()]))

    def forget(self, name: str) -> None:
        """Leave out one tool."""
        self._same.pop(name, None)
        self._read.pop(name, None)


def states_of(folder: str, names: Sequence[str], file: str) -> Iterator[bytes]:
    """Yield the state of this file in each of these folders in a folder; empty without one."""
    if not names:  # The folder may be missing.
        return
    stat_of, pack, above = os.stat, _STATE.pack, os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        for name in names:
            try:
                # From the folder on, because the kernel follows each part of a path.
                facts = stat_of(f"{name}/{file}", dir_fd=above)
            except OSError:
                yield b""
            else:
                yield pack(facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev)
    finally:
        os.close(above)


def cache_key(form: str, parts: Iterable[str]) -> bytes:
    """Return the first line of a file: its form, and a digest of all that must be unchanged."""
    digest = hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()
    return f"{form} {digest}\n".encode()


def read_cache(path: Path, key: bytes) -> tuple[mmap.mmap, int, memoryview] | None:
    """Return the content, the offset of the bytes behind the head, and the head.

    None if the file is missing, damaged or for another key, or if another user could have written it.
    """
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
    at = len(key) + _DIGEST
    start = at + 8
    begin = start + int.from_bytes(content[at:start], "big")
    head = memoryview(content)[start:begin]
    # Only the head is checked here; each entry has a digest of its own, checked when it is used.
    if content[: len(key)] != key or content[len(key) : at] != hashlib.sha256(head).digest():
        return None
    return content, begin, head


def write_cache(path: Path, key: bytes, head: bytes, parts: Iterable[bytes]) -> None:
    """Replace the file. An unwritable folder is not an error: the next start is only slower."""
    # A name for each process: two that start at once write two files, and the last to finish is kept.
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        for folder in reversed(path.parents):
            folder.mkdir(mode=0o700, exist_ok=True)  # With `parents` those above would follow the umask.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", _BUFFER) as file:
            file.write(key + hashlib.sha256(head).digest() + len(head).to_bytes(8, "big") + head)
            file.writelines(parts)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
