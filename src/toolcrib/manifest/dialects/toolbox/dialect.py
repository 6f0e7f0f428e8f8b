"""`tools.yaml` of MCP Toolbox for Databases: SQL statements, and HTTP requests."""

from __future__ import annotations

import re
from typing import Any

from toolcrib.manifest.dialects.base import finished
from toolcrib.manifest.dialects.dialect import Dialect, load_any
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.yaml.source import Document

_FOLDER = "toolcrib.manifest.dialects.toolbox"
_RESOURCE = re.compile(rb"^kind[ \t]*:[ \t]*(?:source|tool|toolset)s?[ \t]*(?:#.*)?\r?$", re.MULTILINE)
_load_documents = on_call(f"{_FOLDER}.documents:load_documents")


def _claims(raw: bytes, path: str) -> bool:  # noqa: ARG001 - the text decides alone
    """Recognise the form with one resource a document, which is not one YAML document."""
    return _RESOURCE.search(raw) is not None


def _load(raw: bytes, path: str) -> Document:
    document: Document = (_load_documents if _claims(raw, path) else load_any)(raw, path)
    return document


def _detect(data: Any) -> bool:
    """Recognise the form with the maps `sources` and `tools`."""
    if not isinstance(data, dict):
        return False
    tools = data.get("tools")
    if not isinstance(tools, dict) or not isinstance(data.get("sources", {}), dict):
        return False
    return all(isinstance(tool, dict) and "kind" in tool for tool in tools.values())


DIALECT = Dialect(
    name="toolbox",
    meaning="tools.yaml of MCP Toolbox",
    load=_load,
    entries=finished(on_call(f"{_FOLDER}.reader:drafts"), shared=True),
    claims=_claims,
    detect=_detect,
    endings=(".yaml", ".yml"),
    several=True,
    write=on_call(f"{_FOLDER}.writer:write_file"),
    file_name="{name}.tools.yaml",
    terms=on_call("toolcrib.manifest.dialects.base:respelled"),
)
