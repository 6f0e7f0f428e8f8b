"""Read `tools.yaml` of MCP Toolbox with one resource per YAML document, as the form with maps.

Each document has `kind` (source, tool, toolset), `name` and `type`. Findings name positions in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, failure, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document, decode, load

_END = re.compile(r"---[ \t]*(?:#.*)?\r?$")
_MOST = 1_000


class _Part(NamedTuple):
    """One document of the file."""

    document: Document
    start: int
    """The number of lines before it."""

    def report(self, message: str, path: KeyPath, text: str) -> Diagnostic:
        """Return a finding with its position in the file, whose text is given."""
        found = self.document.diagnostic("dialect", message, path)
        return found.moved((found.line + self.start, found.column), text)


class _Documents(Document):
    """Several documents as one."""

    __slots__ = ("_parts",)

    def __init__(self, path: str, raw: bytes, text: str) -> None:
        super().__init__(path, raw, text, {})
        self._parts: dict[KeyPath, _Part] = {}

    def add(self, part: _Part) -> None:
        """Add one document. Raises ManifestError if it is not a resource, or a duplicate."""
        data = part.document.data
        wrong = next(_misfits(data), None)
        if wrong is not None:
            raise failure([part.report(wrong, (), self.text)])
        kind = data["kind"] if data["kind"].endswith("s") else data["kind"] + "s"
        name = data["name"]
        place: KeyPath = (kind, name)
        if place in self._parts:
            message = f"there is already a {kind[:-1]} named {quoted(name)}"
            raise failure([part.report(message, ("name",), self.text)])
        self._parts.setdefault((kind,), part)
        self._parts[place] = part
        rest = {"kind" if key == "type" else key: data[key] for key in data if key not in ("kind", "name")}
        self.data.setdefault(kind, {})[name] = rest.get("tools") if kind == "toolsets" else rest

    def locate(self, path: KeyPath, key: bool = False) -> tuple[int, int]:
        found = self._inside(path)
        if found is None:
            return 1, 1
        part, inner = found
        line, column = part.document.locate(inner, key)
        return line + part.start, column

    def locate_text(self, path: KeyPath, literal: str, number: int = 0) -> tuple[int, int]:
        found = self._inside(path)
        if found is None:
            return 1, 1
        part, inner = found
        line, column = part.document.locate_text(inner, literal, number)
        return line + part.start, column

    def _inside(self, path: KeyPath) -> tuple[_Part, KeyPath] | None:
        """Return the document of a position, and the position in it."""
        part = self._parts.get(path[:2])
        if part is None or len(path) == 1:
            part = self._parts.get(path[:1])
            return None if part is None else (part, ("kind",))
        if path[0] == "toolsets":
            return part, ("tools", *path[2:])
        return part, ("type" if path[2:3] == ("kind",) else path[2], *path[3:]) if path[2:] else ("name",)


def load_documents(raw: bytes, path: str) -> Document:
    """Return the data of all documents. Raises ManifestError if one cannot be read."""
    text = decode(raw, path)
    whole = _Documents(path, raw, text)
    for number, (start, lines) in enumerate(_split(text)):
        if number == _MOST:
            message = f"the file has more than {_MOST:,} documents"
            raise failure([whole.diagnostic("too-large", message, at=(start + 1, 1))])
        try:
            document = load("\n".join(lines).encode(), path)
        except ManifestError as error:
            found = diagnostics_of(error)
            raise failure([one.moved((one.line + start, one.column), text) for one in found]) from None
        whole.add(_Part(document, start))
    return whole


def _split(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the documents that are not empty: the number of lines before each, and its lines."""
    start = 0
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), "---"], 1):
        if not _END.match(line):
            lines.append(line)
            continue
        if any(one.strip() and not one.lstrip().startswith("#") for one in lines):
            yield start, lines
        start, lines = number, []


def _misfits(data: Any) -> Iterator[str]:
    """Yield the reasons that a document is not a resource."""
    if not isinstance(data, dict):
        yield "each document must be a mapping with `kind` and `name`"
        return
    for key in ("kind", "name"):
        if not isinstance(data.get(key), str) or not data[key]:
            yield f"each document must have a text `{key}`"
