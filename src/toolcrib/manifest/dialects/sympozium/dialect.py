"""Sympozium's SkillPack: the tools of its sidecar."""

from __future__ import annotations

from typing import Any

from toolcrib.manifest.dialects.base import Entry, finish
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.dialects.fields import Fields
from toolcrib.manifest.yaml.source import Document, dump
from toolcrib.spec import Tool

__all__ = ["DIALECT"]


def _entries(document: Document) -> list[Entry]:
    from toolcrib.manifest.dialects.sympozium.reader import drafts

    return [finish(draft, shared=True) for draft in drafts(document)]


def _fields() -> Fields:
    from toolcrib.manifest.dialects.sympozium.reader import FIELDS

    return FIELDS


def _detect(data: Any) -> bool:
    """Recognise a SkillPack, or its sidecar alone."""
    if not isinstance(data, dict):
        return False
    sidecar = data.get("sidecar")
    return data.get("kind") == "SkillPack" or (isinstance(sidecar, dict) and "tools" in sidecar)


def _terms(tool: Tool) -> Tool:
    from toolcrib.manifest.dialects.spelling import respelled

    return respelled(tool)


def _write(tool: Tool) -> bytes:
    from toolcrib.manifest.dialects.sympozium.writer import pack_of

    return dump(pack_of(tool)).encode()


DIALECT = Dialect(
    name="sympozium",
    meaning="Sympozium's SkillPack, its sidecar's tools",
    entries=_entries,
    fields=_fields,
    detect=_detect,
    endings=(".yaml", ".yml"),
    several=True,
    write=_write,
    file_name="{name}.skillpack.yaml",
    terms=_terms,
)
