"""The resources of every project for MCP clients: pages of tools, and the calls and artifacts of a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from toolcrib.core.context import Context
from toolcrib.errors import AuditUnavailable, ToolNotFound
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.guard import AuditQuery, AuditReader
from toolcrib.manifest import dump
from toolcrib.project.project import Project
from toolcrib.spec import McpForms, Tool

PAGE = McpForms(listed=False, resource="toolcrib://tools/{name}", mime_type="text/markdown")
ARTIFACTS = McpForms(listed=False, resource="toolcrib://artifacts", mime_type="application/json")
CALLS = McpForms(listed=False, resource="toolcrib://calls", mime_type="application/json")
_MOST_CALLS = 100


def page_reader(project: Project) -> Callable[..., Any]:
    """Return the function that gives the page of one tool that its caller may see."""

    async def tool_page(ctx: Context, name: str) -> str:
        own = project.toolset.same_name(name) or name
        for tool in project.tools(ctx.caller, ctx.identity, among=(own,)):
            return "\n\n".join(_page(tool)) + "\n"
        raise ToolNotFound(f"there is no tool named {name[:200]!r}")

    return tool_page


def calls_reader(project: Project) -> Callable[..., Any]:
    """Return the function that gives the caller's own lines of the audit log, the newest last."""

    def read(caller: str) -> list[dict[str, Any]]:
        try:
            with AuditReader(project.place.audit) as reader:
                found = reader.newest(AuditQuery(caller=caller), _MOST_CALLS)
        except OSError as error:
            raise AuditUnavailable(f"the audit log cannot be read: {error.strerror}") from None
        kept = ("time", "event", "fields")
        return [{key: value for key, value in line.as_dict().items() if key in kept} for line in found]

    async def own_calls(ctx: Context) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await run_in_thread(lambda: read(ctx.caller))
        return found

    return own_calls


def artifacts_reader(project: Project) -> Callable[..., Any]:
    """Return the function that gives the artifacts of the caller's own calls, the newest first."""

    async def own_artifacts(ctx: Context) -> list[dict[str, Any]]:
        owner = project.outputs.readable(ctx.caller, ctx.identity)
        found = await run_in_thread(lambda: project.outputs.store.all(owner))
        return [{"tool": one.tool, **one.as_json()} for one in found[:_MOST_CALLS]]

    return own_artifacts


def _page(tool: Tool) -> Iterator[str]:
    """Yield the paragraphs of a tool's page, in Markdown."""
    yield f"# {tool.name}"
    yield tool.description
    yield f"Version {tool.version} of a tool of kind {tool.kind}, in {tool.bundle}."
    if tool.approval.required:
        yield f"A person approves each call: {tool.approval.reason or 'no reason is given'}."
    examples = [asdict(example) for example in tool.examples]
    for title, data in (("Input", tool.input_schema), ("Output", tool.output.schema), ("Examples", examples)):
        if data:
            yield f"## {title}\n\n```yaml\n{dump(data)}```"
