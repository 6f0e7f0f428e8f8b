"""`tools.yaml` of MCP Toolbox for Databases: SQL statements, and HTTP requests."""

from __future__ import annotations

import re
from typing import Any

from toolcrib.manifest.dialects.base import Entry, finish
from toolcrib.manifest.dialects.dialect import Dialect, load_any
from toolcrib.manifest.dialects.fields import Fields
from toolcrib.manifest.yaml.source import Document, dump
from toolcrib.spec import Tool

__all__ = ["DIALECT"]

_RESOURCE = re.compile(rb"^kind[ \t]*:[ \t]*(?:source|tool|toolset)s?[ \t]*(?:#.*)?\r?$", re.MULTILINE)


def _claims(raw: bytes, path: str) -> bool:  # noqa: ARG001 - the text decides alone
    """Recognise the form with one resource a document, which is not one YAML document."""
    return _RESOURCE.search(raw) is not None


def _load(raw: bytes, path: str) -> Document:
    if not _claims(raw, path):
        return load_any(raw, path)
    from toolcrib.manifest.dialects.toolbox.documents import load_documents

    return load_documents(raw, path)


def _entries(document: Document) -> list[Entry]:
    from toolcrib.manifest.dialects.toolbox.reader import drafts

    return [finish(draft, shared=True) for draft in drafts(document)]


def _fields() -> Fields:
    from toolcrib.manifest.dialects.toolbox.reader import FIELDS

    return FIELDS


def _detect(data: Any) -> bool:
    """Recognise the form with the maps `sources` and `tools`."""
    if not isinstance(data, dict):
        return False
    tools = data.get("tools")
    if not isinstance(tools, dict) or not isinstance(data.get("sources", {}), dict):
        return False
    return all(isinstance(tool, dict) and "kind" in tool for tool in tools.values())


def _terms(tool: Tool) -> Tool:
    from toolcrib.manifest.dialects.spelling import respelled

    return respelled(tool)


def _write(tool: Tool) -> bytes:
    from toolcrib.manifest.dialects.toolbox.writer import file_of

    return dump(file_of(tool)).encode()


DIALECT = Dialect(
    name="toolbox",
    meaning="tools.yaml of MCP Toolbox",
    load=_load,
    entries=_entries,
    fields=_fields,
    claims=_claims,
    detect=_detect,
    endings=(".yaml", ".yml"),
    several=True,
    write=_write,
    file_name="{name}.tools.yaml",
    terms=_terms,
)
