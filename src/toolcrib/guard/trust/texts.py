"""The code of a tool as text, for the person who reviews it: the scripts and modules, and what has changed.

A text that was reviewed is kept in the user's own folder, by its content, so that a later review can show the
difference. Large files and those that are no text are named, not shown.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from toolcrib.errors import ManifestError, StateUnavailable
from toolcrib.guard.trust.digest import ToolDigest
from toolcrib.manifest import ANY_FILE, SourceFiles
from toolcrib.spec import Tool
from toolcrib.state import Vault
from toolcrib.state.private import open_plain, put_private

_LARGEST = 65_536


class ReviewedTexts:
    """The texts of one project's tools, as they are and as they were reviewed; only those of `files`."""

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
                yield f"{name}: {len(data):,} bytes that are no text, so they are not shown"
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
