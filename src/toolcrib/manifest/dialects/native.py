"""Native manifests as one of the formats."""

from __future__ import annotations

from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.base import Entry, Translated
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.native.reader import FILE_NAME, parse_tool
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.yaml.diagnostics import diagnostics_of
from toolcrib.manifest.yaml.source import Document, load
from toolcrib.spec import Tool


def _entries(document: Document) -> list[Entry]:
    path = Path(document.path)
    folder = path.parent.name if path.name == FILE_NAME else None
    whole = Translated(document, document.data if isinstance(document.data, dict) else {}, {(): ()})
    try:
        return [Entry(parse_tool(document, folder), whole)]
    except ManifestError as error:
        return [Entry(None, whole, diagnostics_of(error))]


def _reread(tool: Tool) -> Document:
    assert tool.source is not None
    return load(tool.source.raw, tool.source.path)


DIALECT = Dialect(
    name="native",
    meaning="Toolcrib's and Glee's tool.yml",
    load=load,
    entries=_entries,
    detect=lambda data: isinstance(data, dict) and "kind" in data and "exec" in data,
    reread=_reread,
    write=on_call("toolcrib.manifest.native.writer:write_manifest"),
    file_name=f"{{name}}/{FILE_NAME}",
)
