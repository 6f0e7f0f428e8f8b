"""The texts that a person reads before trusting a tool: its manifest and its code, and their differences.

A text that was accepted is kept in the ledger by its content, so that a later question can show the
difference. Large files and those that are not text are named, not shown.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.guard.trust.digest import ToolDigest
from toolcrib.guard.trust.ledger import Ledger
from toolcrib.manifest import SourceFiles
from toolcrib.spec import Tool
from toolcrib.spec.naming import INKLESS
from toolcrib.state import Vault
from toolcrib.state.private import open_plain

_LARGEST = 65_536
# Unicode categories: control, format, private use, surrogates, unassigned, separators. They could hide from a
# reader what really runs.
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})


class TrustedTexts:
    """The manifest and the code of one project's tools as text; only of `files`."""

    def __init__(self, vault: Vault, ledger: Ledger, files: SourceFiles) -> None:
        self._ledger, self._files = ledger, files
        self._root = f"{vault.root}/"

    def of(self, tool: Tool, digest: ToolDigest) -> Iterator[bytes]:
        """Yield the texts that belong to this version of a tool, to be kept with its acceptance."""
        if tool.source is not None:
            yield tool.source.raw
        for path, content in self._code(tool, digest):
            data = _read(path, self._files)
            # The file may have changed since the person looked at it: only the text with the accepted digest
            # is kept.
            if data is not None and content.endswith(hashlib.sha256(data).hexdigest()):
                yield data

    def manifest(self, tool: Tool, before: str | None) -> list[str]:
        """Return the manifest as lines; a unified diff where the SHA-256 of an accepted one is `before`.

        Invisible characters, and those that control a terminal, are escaped.
        """
        if tool.source is None:
            return []
        now, file = _lines(tool.source.raw), ascii(os.path.basename(tool.source.path))[1:-1]
        old = None if not before else self._ledger.text(before)
        if old is None:
            return [f"{file}:", *(f"{number:5} | {line}" for number, line in enumerate(now, 1))]
        return _diff(_lines(old), now, file)

    def lines(
        self, tool: Tool, digest: ToolDigest, accepted: Mapping[str, str] | None, mask: Callable[[str], str]
    ) -> Iterator[str]:
        """Yield each file that is new or has changed since these parts were `accepted`, line by line."""
        before = self._accepted(tool, accepted or {})
        for path, content in self._code(tool, digest):
            name = digest.names[path]
            earlier = before.get(name)
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
                old = None if earlier is None else self._ledger.text(earlier.rpartition(" ")[2])
                then = None if old is None else _text(old, mask)
                yield from _shown(name, then, now, changed=earlier is not None)

    def _code(self, tool: Tool, digest: ToolDigest) -> Iterator[tuple[str, str]]:
        """Yield path and content of each file of the project that decides what the tool runs."""
        # The manifest has lines of its own: `manifest`.
        manifest = "" if tool.source is None else os.path.realpath(tool.source.path)
        for path, content in sorted(digest.files.items()):
            own = (
                path.startswith(self._root)
                and path != manifest
                and f"venv/{digest.names[path]}" not in digest.parts
            )
            if own and content.startswith(("file ", "executable ")):
                yield path, content

    def _accepted(self, tool: Tool, parts: Mapping[str, str]) -> dict[str, str]:
        folder = "" if tool.source is None else os.path.realpath(os.path.dirname(tool.source.path))
        paths = {}
        for part, content in parts.items():
            kind, _, rest = part.partition("/")
            paths[f"{folder}/{rest}".removeprefix(self._root) if kind == "files" else rest] = content
        return paths


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
        yield from _diff(then, now, name)
        return
    yield f"{name}, as it is now (no earlier text is kept):" if changed else f"{name}:"
    yield from (f"{number:5} | {line}" for number, line in enumerate(now, 1))


def _diff(then: list[str], now: list[str], name: str) -> list[str]:
    import difflib

    return list(difflib.unified_diff(then, now, f"trusted/{name}", f"now/{name}", lineterm=""))


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
