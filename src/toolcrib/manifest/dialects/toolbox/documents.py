"""Read `tools.yaml` of MCP Toolbox with one resource per YAML document, as the form with maps.

Each document has `kind` (source, tool, toolset), `name` and `type`. Findings name positions in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolcrib.manifest.yaml.diagnostics import failure, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document, decode, load

_END = re.compile(r"---[ \t]*(?:#.*)?\r?$")
_MOST = 1_000


class _Documents(Document):
    """Several documents as one."""

    __slots__ = ("_parts",)

    def __init__(self, path: str, raw: bytes, text: str) -> None:
        super().__init__(path, raw, text, {})
        self._parts: dict[KeyPath, Document] = {}

    def add(self, part: Document) -> None:
        """Add one document. Raises ManifestError if it is not a resource, or a duplicate."""
        data = part.data
        for key in ("kind", "name"):
            if not isinstance(data, dict) or not isinstance(data.get(key), str) or not data[key]:
                message = "each document must be a mapping with the texts `kind` and `name`"
                raise failure([part.diagnostic("dialect", message)])
        kind = data["kind"] if data["kind"].endswith("s") else data["kind"] + "s"
        name = data["name"]
        place: KeyPath = (kind, name)
        if place in self._parts:
            message = f"there is already a {kind[:-1]} named {quoted(name)}"
            raise failure([part.diagnostic("dialect", message, ("name",))])
        self._parts.setdefault((kind,), part)
        self._parts[place] = part
        rest = {"kind" if key == "type" else key: data[key] for key in data if key not in ("kind", "name")}
        self.data.setdefault(kind, {})[name] = rest.get("tools") if kind == "toolsets" else rest

    def locate(self, path: KeyPath, key: bool = False) -> tuple[int, int]:
        found = self._inside(path)
        if found is None:
            return 1, 1
        part, inner = found
        return part.locate(inner, key)

    def locate_text(self, path: KeyPath, literal: str, number: int = 0) -> tuple[int, int]:
        found = self._inside(path)
        if found is None:
            return 1, 1
        part, inner = found
        return part.locate_text(inner, literal, number)

    def _inside(self, path: KeyPath) -> tuple[Document, KeyPath] | None:
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
        # Each is read behind empty lines, so that its positions are those of the file.
        whole.add(load(("\n" * start + "\n".join(lines)).encode(), path))
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
