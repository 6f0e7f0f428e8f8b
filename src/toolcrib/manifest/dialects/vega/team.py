"""Read the tools that a team file defines itself, in the map `tools:`.

Each is read as a definition in a file of its own: the lines of its block, at the same line numbers, so that
control lines, checks and positions work as they do there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.base import Entry
from toolcrib.manifest.dialects.vega.conditions import unfold
from toolcrib.manifest.dialects.vega.reader import entries, load_vega
from toolcrib.manifest.yaml.diagnostics import diagnostics_of
from toolcrib.manifest.yaml.source import Document, decode, load


def load_team(raw: bytes, path: str) -> Document:
    """Return a team file; its `text` has the control lines as keys, each at its line.

    Raises ManifestError if it cannot be read.
    """
    text = unfold(decode(raw, path), path).text
    return Document(path, raw, text, load(text.encode(), path).data)


def team_entries(document: Document) -> list[Entry]:
    """Return the tools of a team file, usable or not."""
    tools = document.data.get("tools") if isinstance(document.data, dict) else None
    if not isinstance(tools, dict):
        return [_unused(document, (), "`tools` is not a map of definitions")]
    return [_entry(document, name, value) for name, value in tools.items()]


def _entry(document: Document, name: str, value: Any) -> Entry:
    first, _ = document.locate(("tools", name), key=True)
    if name == "include" and isinstance(value, list):
        hint = "name these files under `sources` in config.yml"
        return _unused(document, ("tools", name), "`include` is not followed", hint)
    if not isinstance(value, dict) or document.locate(("tools", name))[0] == first:
        hint = "write its keys below its name, one a line"
        return _unused(document, ("tools", name), "a tool is a mapping in lines of its own", hint)
    lines = decode(document.raw, document.path).splitlines(keepends=True)
    # Behind as many empty lines as are before it, so that every position is that of the file.
    block = "\n" * first + "".join(lines[first : _end(document, first) - 1])
    try:
        read = load_vega(block.encode(), document.path)
    except ManifestError as error:
        return Entry(None, document, diagnostics_of(error))
    read.data.setdefault("name", name)
    (entry,) = entries(read)
    if entry.tool is None or entry.tool.source is None:
        return entry
    whole = document.raw
    return replace(entry, tool=replace(entry.tool, source=replace(entry.tool.source, raw=whole)))


def _end(document: Document, line: int) -> int:
    """Return the first line after `line` that begins another tool or section, or the one after the last."""
    keys = [(key,) for key in document.data] + [("tools", key) for key in document.data["tools"]]
    begins = [document.locate(key, key=True)[0] for key in keys]
    return min((one for one in begins if one > line), default=document.text.count("\n") + 2)


def _unused(document: Document, place: tuple[str, ...], message: str, hint: str | None = None) -> Entry:
    return Entry(None, document, (document.diagnostic("dialect", message, place, key=True, hint=hint),))
