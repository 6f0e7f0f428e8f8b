"""Vega's YAML definitions, one tool a file."""

from __future__ import annotations

import re

from toolcrib.manifest.dialects.base import Entry
from toolcrib.manifest.dialects.dialect import Dialect, granted_by_kind
from toolcrib.manifest.dialects.fields import Fields
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import FileExec, Permissions, Spelling, Tool

__all__ = ["DIALECT"]

_DEFINES = re.compile(rb"^implementation[ \t]*:", re.MULTILINE)
_NATIVE = re.compile(rb"^(?:exec|kind)[ \t]*:", re.MULTILINE)


def _claims(raw: bytes, path: str) -> bool:  # noqa: ARG001 - the text decides alone
    """Recognise a definition by its text: control lines may keep it from being YAML."""
    return _DEFINES.search(raw) is not None and _NATIVE.search(raw) is None


def _claims_unreadable(raw: bytes) -> bool:
    from toolcrib.manifest.dialects.vega.conditions import has_control_line

    return has_control_line(raw)


def _load(raw: bytes, path: str) -> Document:
    from toolcrib.manifest.dialects.vega.reader import load_vega

    return load_vega(raw, path)


def _entries(document: Document) -> list[Entry]:
    from toolcrib.manifest.dialects.vega.reader import entry_of

    return [entry_of(document)]


def _fields() -> Fields:
    from toolcrib.manifest.dialects.vega.form import FIELDS

    return FIELDS


def _granted(tool: Tool, granted: Permissions) -> Permissions:
    """Let file tools use the granted folders: a definition names none."""
    if not isinstance(tool.config, FileExec):
        return granted_by_kind(tool, granted)
    write = granted.write if tool.config.action == "write" else ()
    return Permissions(read=granted.read, write=write, secrets=tool.permissions.secrets)


def _terms(tool: Tool) -> Tool:
    from toolcrib.manifest.dialects.vega.writer import as_vega

    return as_vega(tool)


def _native_terms(tool: Tool) -> Tool:
    from toolcrib.manifest.dialects.vega.writer import native_terms

    return native_terms(tool)


def _write(tool: Tool) -> bytes:
    from toolcrib.manifest.dialects.vega.writer import write_vega

    return write_vega(tool)


DIALECT = Dialect(
    name="vega",
    meaning="Vega's definitions, one tool a file",
    load=_load,
    entries=_entries,
    fields=_fields,
    spelling=Spelling.DOUBLE_BRACE,
    claims=_claims,
    claims_unreadable=_claims_unreadable,
    endings=(".yaml", ".yml"),
    granted=_granted,
    write=_write,
    file_name="{name}.yaml",
    terms=_terms,
    native_terms=_native_terms,
)
