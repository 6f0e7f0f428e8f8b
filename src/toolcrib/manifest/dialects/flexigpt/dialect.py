"""FlexiGPT's `tool.json`: one record a file, `go` (a registered Python callable) or `http`."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.manifest.dialects.base import Entry, finish
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.dialects.fields import Fields
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import HttpExec, Tool

__all__ = ["DIALECT"]


def _load(raw: bytes, path: str) -> Document:
    from toolcrib.manifest.yaml.json_source import load_json

    return load_json(raw, path)


def _entries(document: Document) -> list[Entry]:
    from toolcrib.manifest.dialects.flexigpt.reader import drafts

    return [finish(draft, shared=False) for draft in drafts(document)]


def _fields() -> Fields:
    from toolcrib.manifest.dialects.flexigpt.reader import FIELDS

    return FIELDS


def _detect(data: Any) -> bool:
    return isinstance(data, dict) and "impl" in data and ("argSchema" in data or "slug" in data)


def _terms(tool: Tool) -> Tool:
    """Write `auth` as headers and query: a record has no other place for it."""
    from toolcrib.manifest.dialects.spelling import respelled
    from toolcrib.manifest.http.requests import with_auth_written

    return respelled(with_auth_written(tool, tool.config) if isinstance(tool.config, HttpExec) else tool)


def _write(tool: Tool) -> bytes:
    from toolcrib.manifest.dialects.flexigpt.writer import record_of

    return (json.dumps(record_of(tool), indent=2, ensure_ascii=False) + "\n").encode()


DIALECT = Dialect(
    name="flexigpt",
    meaning="FlexiGPT's tool.json",
    load=_load,
    entries=_entries,
    fields=_fields,
    detect=_detect,
    own_file="tool.json",
    endings=(".json", ".jsonc"),
    write=_write,
    file_name="{name}/tool.json",
    terms=_terms,
)
