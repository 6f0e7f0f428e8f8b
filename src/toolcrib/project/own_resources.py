"""The resources of every project for MCP clients: pages of tools, and the calls and artifacts of a client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from toolcrib.errors import AuditUnavailable
from toolcrib.guard import AuditQuery, AuditReader
from toolcrib.manifest import dump
from toolcrib.project.project import Project
from toolcrib.spec import Caller, McpForms, Tool

PAGE = McpForms(listed=False, resource="toolcrib://tools/{name}", mime_type="text/markdown")
ARTIFACTS = McpForms(listed=False, resource="toolcrib://artifacts", mime_type="application/json")
CALLS = McpForms(listed=False, resource="toolcrib://calls", mime_type="application/json")
_MOST_CALLS = 100


def calls_of(project: Project, caller: str) -> list[dict[str, Any]]:
    """Return a caller's own lines of the audit log, the newest last."""
    try:
        with AuditReader(project.place.audit) as reader:
            found = reader.newest(AuditQuery(caller=caller), _MOST_CALLS)
    except OSError as error:
        raise AuditUnavailable(f"the audit log cannot be read: {error.strerror}") from None
    kept = ("time", "event", "fields")
    return [{key: value for key, value in line.as_dict().items() if key in kept} for line in found]


def artifacts_of(project: Project, caller: str, identity: Caller | None) -> list[dict[str, Any]]:
    """Return the artifacts of a caller's own calls, the newest first."""
    found = project.outputs.store.all(project.outputs.readable(caller, identity))
    return [{"tool": one.tool, **one.as_json()} for one in found[:_MOST_CALLS]]


def page_of(tool: Tool) -> str:
    """Return the page of a tool, in Markdown."""
    return "\n\n".join(_paragraphs(tool)) + "\n"


def _paragraphs(tool: Tool) -> Iterator[str]:
    yield f"# {tool.name}"
    yield tool.description
    yield f"Version {tool.version} of a tool of kind {tool.kind}, in {tool.bundle}."
    if tool.approval.required:
        yield f"A person approves each call: {tool.approval.reason or 'no reason is given'}."
    examples = [asdict(example) for example in tool.examples]
    for title, data in (("Input", tool.input_schema), ("Output", tool.output.schema), ("Examples", examples)):
        if data:
            yield f"## {title}\n\n```yaml\n{dump(data)}```"
