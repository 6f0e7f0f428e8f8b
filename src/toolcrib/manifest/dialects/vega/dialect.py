"""Vega's YAML definitions, one tool a file."""

from __future__ import annotations

import re

from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.kinds import kind_of
from toolcrib.manifest.plugins import on_call, on_use
from toolcrib.spec import FileExec, Permissions, Spelling, Tool

__all__ = ["DIALECT"]

_FOLDER = "toolcrib.manifest.dialects.vega"
_DEFINES = re.compile(rb"^implementation[ \t]*:", re.MULTILINE)
_NATIVE = re.compile(rb"^(?:exec|kind)[ \t]*:", re.MULTILINE)


def _claims(raw: bytes, path: str) -> bool:  # noqa: ARG001 - the text decides alone
    """Recognise a definition by its text: control lines may keep it from being YAML."""
    return _DEFINES.search(raw) is not None and _NATIVE.search(raw) is None


def _granted(tool: Tool, granted: Permissions) -> Permissions:
    """Let file tools use the granted folders: a definition names none."""
    if not isinstance(tool.config, FileExec):
        return kind_of(tool).granted(tool, granted)
    write = granted.write if tool.config.action == "write" else ()
    return Permissions(read=granted.read, write=write, secrets=tool.permissions.secrets)


DIALECT = Dialect(
    name="vega",
    meaning="Vega's definitions, one tool a file",
    load=on_call(f"{_FOLDER}.reader:load_vega"),
    entries=on_call(f"{_FOLDER}.reader:entries"),
    fields=on_use(f"{_FOLDER}.form:FIELDS"),
    spelling=Spelling.DOUBLE_BRACE,
    claims=_claims,
    claims_unreadable=on_call(f"{_FOLDER}.conditions:has_control_line"),
    endings=(".yaml", ".yml"),
    granted=_granted,
    write=on_call(f"{_FOLDER}.writer:write_vega"),
    file_name="{name}.yaml",
    terms=on_call(f"{_FOLDER}.writer:as_vega"),
    native_terms=on_call(f"{_FOLDER}.writer:native_terms"),
)
