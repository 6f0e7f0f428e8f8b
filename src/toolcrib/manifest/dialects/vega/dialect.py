"""Vega's YAML definitions: one tool a file, or those that a team file defines itself."""

from __future__ import annotations

import re

from toolcrib.manifest.dialects.base import Entry
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.kinds import kind_of
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import FileExec, Permissions, Spelling, Tool

_FOLDER = "toolcrib.manifest.dialects.vega"
_DEFINES = re.compile(rb"^implementation[ \t]*:", re.MULTILINE)
_TEAM = re.compile(
    rb"(?=.*^(?:members|agents)[ \t]*:)(?=.*^tools[ \t]*:)(?=.*^[ \t]+implementation[ \t]*:)", re.M | re.S
)
_NATIVE = re.compile(rb"^(?:exec|kind)[ \t]*:", re.MULTILINE)


_load_definition, _one_entry, _load_team, _team_entries = (
    on_call(f"{_FOLDER}.reader:{name}") for name in ("load_vega", "entries", "load_team", "team_entries")
)


def _claims(raw: bytes, path: str) -> bool:  # noqa: ARG001 - the text decides alone
    """Recognise a definition by its text: control lines may keep it from being YAML."""
    return (_DEFINES.search(raw) is not None and _NATIVE.search(raw) is None) or bool(_TEAM.match(raw))


def _load(raw: bytes, path: str) -> Document:
    document: Document = (_load_team if _TEAM.match(raw) else _load_definition)(raw, path)
    return document


def _entries(document: Document) -> list[Entry]:
    found: list[Entry] = (_team_entries if _TEAM.match(document.raw) else _one_entry)(document)
    return found


def _granted(tool: Tool, granted: Permissions) -> Permissions:
    """Let file tools use the granted folders: a definition names none."""
    if not isinstance(tool.config, FileExec):
        return kind_of(tool).granted(tool, granted)
    write = granted.write if tool.config.action == "write" else ()
    return Permissions(read=granted.read, write=write, secrets=tool.permissions.secrets)


DIALECT = Dialect(
    name="vega",
    meaning="Vega's definitions, one tool a file or those of a team file",
    load=_load,
    entries=_entries,
    spelling=Spelling.DOUBLE_BRACE,
    claims=_claims,
    endings=(".yaml", ".yml"),
    granted=_granted,
    native_terms=on_call(f"{_FOLDER}.native:native_terms"),
)
