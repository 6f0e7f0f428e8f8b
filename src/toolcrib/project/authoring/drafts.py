"""Drafts: tools whose text is written and not stored yet, to be checked and tried on the usual path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from toolcrib.bundles.forms import slug_of
from toolcrib.errors import ManifestError
from toolcrib.manifest import Diagnostic, check_tool, diagnostics_of, entries
from toolcrib.manifest.touches import may_touch
from toolcrib.project.project import Project
from toolcrib.spec import Tool
from toolcrib.spec.naming import DRAFTS, stored_name


def is_record(text: str) -> bool:
    """Return True for FlexiGPT's record as JSON, False for a native manifest, in YAML or JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "impl" in value


def read_draft(text: str) -> tuple[Tool | None, Sequence[Diagnostic]]:
    """Return the tool of a text as one of a bundle of drafts, None if it cannot be used; and all findings."""
    name, dialect = ("draft.json", "flexigpt") if is_record(text) else ("draft.yml", "native")
    try:
        entry = entries(name, text.encode(), dialect)[0]
    except ManifestError as error:
        return None, diagnostics_of(error)
    found = [*entry.found, *(() if entry.tool is None else check_tool(entry.tool, entry.document))]
    found.sort(key=lambda one: (one.line, one.column))
    tool = entry.tool
    if tool is None or tool.source is None or any(one.is_error for one in found):
        return None, found
    source = replace(tool.source, shared=True, stored=True)
    full = stored_name(DRAFTS, slug_of(tool.name), str(tool.version))
    return replace(tool, name=full, bundle=DRAFTS, source=source), found


def touches_of(project: Project, tool: Tool) -> list[str]:
    """List in words what a call may touch, also by the tools that it calls. Raises ToolUnavailable."""
    parts = project.parts_of(tool)
    return [*may_touch(tool), *(f"{part.name}: {line}" for part in parts for line in may_touch(part))]
