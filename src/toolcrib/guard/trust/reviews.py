"""The versions of tools that a person has reviewed, and the tools that agents have made.

They are in the user's own folder, with the code as it was reviewed, out of reach of the project: no manifest
can claim to be reviewed, or hide who made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

from toolcrib.errors import ManifestError, StateUnavailable
from toolcrib.guard.trust.digest import ToolDigest
from toolcrib.manifest import ANY_FILE, SourceFiles
from toolcrib.spec import Tool
from toolcrib.spec.identifier import new_id
from toolcrib.spec.naming import INKLESS
from toolcrib.spec.record import record
from toolcrib.state import VAULT_REVIEWS, Database, SqliteDatabase, Vault
from toolcrib.state.private import open_plain, put_private

_LARGEST = 65_536


class ReviewedTexts:
    """The code of one project's tools as text, for the person who reviews it; only that of `files`.

    A text that was reviewed is kept by its content, so that a later review can show the difference. Large
    files and those that are not text are named, not shown.
    """

    def __init__(self, vault: Vault, files: SourceFiles) -> None:
        self._vault = vault
        self._files = files
        self._root = f"{vault.root}/"

    def keep(self, tool: Tool, digest: ToolDigest) -> None:
        """Keep the texts that a person has reviewed. One that cannot be kept is shown whole the next time."""
        for path, content in self._code(tool, digest):
            place, data = self._place(self._vault.folder, content), _read(path, self._files)
            # The file may have changed since the person looked at it: only the text with the reviewed digest
            # is kept.
            if data is not None and content.endswith(hashlib.sha256(data).hexdigest()):
                with suppress(StateUnavailable):
                    put_private(place, data, first=True)

    def lines(
        self, tool: Tool, digest: ToolDigest, reviewed: Mapping[str, str] | None, mask: Callable[[str], str]
    ) -> Iterator[str]:
        """Yield each file that is new or has changed since these parts were `reviewed`, line by line."""
        before = self._reviewed(tool, reviewed or {})
        for path, content in self._code(tool, digest):
            named = digest.names.get(path, path)
            earlier, name = before.get(named), named.removeprefix(self._root)
            if earlier == content:
                continue
            data = _read(path, self._files)
            if data is None:
                yield f"{name}: over {_LARGEST:,} bytes or closed to tools, so it is not shown here"
            elif not content.endswith(hashlib.sha256(data).hexdigest()):
                yield f"{name}: it changes while it is shown; look again"
            elif (now := _text(data, mask)) is None:
                yield f"{name}: {len(data):,} bytes that are not text, so they are not shown"
            else:
                old = None if earlier is None else _read(self._place(self._vault.path, earlier), ANY_FILE)
                then = None if old is None else _text(old, mask)
                yield from _shown(name, then, now, changed=earlier is not None)

    def _code(self, tool: Tool, digest: ToolDigest) -> Iterator[tuple[str, str]]:
        """Yield path and content of each file of the project that decides what the tool runs."""
        # The manifest has a diff of its own: `ReviewStatus.diff`.
        manifest = "" if tool.source is None else os.path.realpath(tool.source.path)
        for path, content in sorted(digest.files.items()):
            own = path.startswith(self._root) and path != manifest and f"venv/{path}" not in digest.parts
            if own and content.startswith(("file ", "executable ")):
                yield path, content

    def _reviewed(self, tool: Tool, parts: Mapping[str, str]) -> dict[str, str]:
        folder = "" if tool.source is None else os.path.realpath(os.path.dirname(tool.source.path))
        paths = {}
        for part, content in parts.items():
            kind, _, rest = part.partition("/")
            paths[f"{folder}/{rest}" if kind == "files" else rest] = content
        return paths

    def _place(self, folder: Path, content: str) -> Path:
        return folder / "reviewed" / content.rpartition(" ")[2]


def _read(path: str | Path, files: SourceFiles) -> bytes | None:
    """Return a file of at most 64 KiB; None for a larger one, and for one that may not or cannot be read."""
    try:
        with open_plain(path) as file:
            files.check(file.fileno(), str(path))
            data = file.read(_LARGEST + 1)
    except (OSError, ManifestError):
        return None
    return data if len(data) <= _LARGEST else None


def _text(data: bytes, mask: Callable[[str], str]) -> list[str] | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    lines = mask(text).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _shown(name: str, then: list[str] | None, now: list[str], *, changed: bool) -> Iterator[str]:
    if then is not None:
        import difflib

        yield from difflib.unified_diff(then, now, f"reviewed/{name}", f"now/{name}", lineterm="")
        return
    yield f"{name}, as it is now (no earlier text is kept):" if changed else f"{name}:"
    yield from (f"{number:5} | {line}" for number, line in enumerate(now, 1))


_KEPT = 50
"""Reviews kept of one tool; the newest are."""
# Unicode categories: control, format, private use, surrogates, unassigned, separators. They could hide from a
# reviewer what really runs.
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_LAST = (
    "SELECT digest, parts, manifest, reviewed_by, reviewed_at FROM reviewed WHERE tool = ? AND bundle = ?"
    " ORDER BY id DESC LIMIT 1"
)
_PARTS = "SELECT parts FROM reviewed WHERE tool = ? AND bundle = ? AND manifest = ?"
_ONE = "SELECT 1 FROM reviewed WHERE tool = ? AND bundle = ? AND digest = ?"
_DROP = "DELETE FROM reviewed WHERE tool = ? AND bundle = ? AND digest = ?"
_OLDEST = (
    "DELETE FROM reviewed WHERE tool = ? AND bundle = ? AND id NOT IN"
    " (SELECT id FROM reviewed WHERE tool = ? AND bundle = ? ORDER BY id DESC LIMIT ?)"
)


@record
class Review:
    """One version of a tool that a person has approved."""

    digest: str
    parts: Mapping[str, str]
    """The parts that were reviewed, by name."""
    manifest: bytes
    by: str
    at: float
    """Seconds since the epoch."""


@record
class ReviewStatus:
    """A tool is `reviewed` as it is, `changed` since its last review, or `new`."""

    status: Literal["reviewed", "changed", "new"]
    last: Review | None = None

    def diff(self, tool: Tool) -> str:
        """Return the changes in the manifest since its last review as a unified diff; all of a new one.

        Invisible characters, and those that control a terminal, are escaped.
        """
        import difflib

        new = b"" if tool.source is None else tool.source.raw
        old = b"" if self.last is None else self.last.manifest
        file = "tool.yml" if tool.source is None else ascii(os.path.basename(tool.source.path))[1:-1]
        names = ("/dev/null" if self.last is None else f"reviewed/{file}", f"now/{file}")
        lines = difflib.unified_diff(_lines(old), _lines(new), *names, lineterm="")
        return "\n".join(lines)


class Reviews:
    """The reviews of one project. Nothing is created on disk before there is something to store.

    `files` are those whose text may be shown.
    """

    def __init__(
        self, vault: Vault, files: SourceFiles = ANY_FILE, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._vault = vault
        self.texts = ReviewedTexts(vault, files)
        """The scripts and modules of tools, as text."""
        self._clock = clock
        self._opened: Database | None = None
        self._creators: tuple[int, dict[str, str]] = (-1, {})
        self._reviewed: tuple[int, set[tuple[str, str, str]]] = (-1, set())

    @cached_property
    def _database(self) -> Database:
        self._opened = SqliteDatabase(self._vault.folder / "reviews.db", VAULT_REVIEWS)
        return self._opened

    @property
    def _exists(self) -> bool:
        return self._opened is not None or (self._vault.path / "reviews.db").exists()

    def status(self, tool: Tool, digest: ToolDigest) -> ReviewStatus:
        """Return the review status of a tool that has this digest now."""
        if not self._exists:
            return ReviewStatus("new")
        last = self.last(tool)
        if last is None:
            return ReviewStatus("new")
        return ReviewStatus("reviewed" if self.is_reviewed(tool, digest.digest) else "changed", last)

    def is_reviewed(self, tool: Tool, digest: str) -> bool:
        """Return True if a person has reviewed this version of the tool."""
        if not self._exists:
            return False
        version, key = self._database.version, (tool.name, tool.bundle, digest)
        if self._reviewed[0] != version:
            # Another process may have revoked a review, so what was read before no longer counts.
            self._reviewed = (version, set())
        if key not in self._reviewed[1]:
            with self._database.read() as tx:
                if tx.one(_ONE, *key) is None:
                    return False
            self._reviewed[1].add(key)
        return True

    def last(self, tool: Tool) -> Review | None:
        """Return the newest review of a tool, of whatever version."""
        if not self._exists:
            return None
        with self._database.read() as tx:
            row = tx.one(_LAST, tool.name, tool.bundle)
        return None if row is None else Review(row[0], json.loads(row[1]), row[2], row[3], row[4])

    def parts(self, tool: Tool) -> list[Mapping[str, str]]:
        """Return the parts of each review of this manifest: those of its digest, by name."""
        if not self._exists or tool.source is None:
            return []
        with self._database.read() as tx:
            return [json.loads(row[0]) for row in tx.all(_PARTS, tool.name, tool.bundle, tool.source.raw)]

    def accept(self, tool: Tool, digest: ToolDigest, by: str) -> None:
        """Store that a person has reviewed the tool with this digest. `StateUnavailable`."""
        self.accept_all([(tool, digest)], by)

    def accept_all(self, reviewed: Iterable[tuple[Tool, ToolDigest]], by: str) -> None:
        """Store that a person has reviewed all of these, or none if they cannot be stored."""
        now, reviewed = self._clock(), list(reviewed)
        for tool, digest in reviewed:
            self.texts.keep(tool, digest)
        with self._database.write() as tx:
            for tool, digest in reviewed:
                key, raw = (tool.name, tool.bundle), b"" if tool.source is None else tool.source.raw
                parts = json.dumps(reviewed_parts(tool, digest))
                # Reviewed again, a version becomes the newest, and `_OLDEST` keeps it.
                tx.run(_DROP, *key, digest.digest)
                row = (new_id(now), *key, digest.digest, parts, raw, by, now)
                tx.run("INSERT INTO reviewed VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
                tx.run(_OLDEST, *key, *key, _KEPT)

    def forget(self, tool: str, bundle: str, digest: str) -> None:
        """Revoke a review."""
        self._reviewed = (-1, set())
        if self._exists:
            with self._database.write() as tx:
                tx.run(_DROP, tool, bundle, digest)

    # -- tools that agents made --------------------------------------------------------------------

    def creators(self) -> Mapping[str, str]:
        """Return the creator of each tool that an agent has made, by the tool's name."""
        if not self._exists:
            return {}
        version = self._database.version
        if self._creators[0] != version:
            with self._database.read() as tx:
                self._creators = (version, dict(tx.all("SELECT tool, creator FROM created ORDER BY id")))
        return self._creators[1]

    def note(self, tool: str, creator: str, manifest: str) -> str:
        """Store that an agent creates a tool, before its manifest is written; return the id for `drop`.

        `manifest` is the SHA-256 of the manifest, in hex.
        """
        now = self._clock()
        # The entry comes first: if the process dies in between, no tool of an agent looks like one that a
        # person made.
        entry = new_id(now)
        with self._database.write() as tx:
            tx.run("INSERT INTO created VALUES (?, ?, ?, ?, ?)", entry, tool, creator, manifest, now)
        self._creators = (-1, {})  # `version` does not change by our own writes
        return entry

    def drop(self, entry: str) -> None:
        """Undo `note`, because the tool was not created."""
        with self._database.write() as tx:
            tx.run("DELETE FROM created WHERE id = ?", entry)
        self._creators = (-1, {})

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._creators, self._reviewed = (-1, {}), (-1, set())
        if self._opened is not None:
            self._opened.close()


def reviewed_parts(tool: Tool, digest: ToolDigest) -> dict[str, str]:
    """Return the parts of a tool that a review covers: those of its digest, and if each call needs
    approval."""
    return {**digest.parts, **({"approval": "required"} if tool.approval.required else {})}


def shown(text: str) -> str:
    """Return the text with invisible characters, and those that control a terminal, escaped (`\\u202e`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _UNSEEN else _escaped(char)
        for char in INKLESS.sub(lambda found: _escaped(found[0]), text)
    )


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lines(raw: bytes) -> list[str]:
    """Split a manifest at newlines only: `splitlines` also splits at invisible characters."""
    lines = raw.decode(errors="backslashreplace").split("\n")
    return [shown(line) for line in (lines[:-1] if lines[-1] == "" else lines)]
