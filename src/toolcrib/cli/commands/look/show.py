"""`toolcrib show`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import complete_tool, parse_target, resolved
from toolcrib.cli.caller import caller_of
from toolcrib.cli.options import FileCommand, open_project, project_options
from toolcrib.cli.output import print_json, print_result, printable
from toolcrib.errors import ToolcribError, ToolNotFound
from toolcrib.spec import Tool
from toolcrib.spec.tools.tool import PLAIN

if TYPE_CHECKING:
    from toolcrib.bundles.answers import ToolAnswer
    from toolcrib.project import Project

_DEEPEST = 2
"""Objects inside of objects that are shown."""


def find_tool(project: Project, target: str) -> Tool:
    """Return the tool that `[BUNDLE/]NAME[@VERSION]` names, on or off.

    Raises ToolNotFound with the nearest name.
    """
    if target in project.toolset.names:
        return project.get(target)
    bundle, name, version = parse_target(target)
    found = project.bundles.stored.find(target)
    if found is not None and not (found.full and found.fault):
        full = project.bundles.stored.full_name(found)
        return project.get(full) if full in project.toolset else project.bundles.entries.tool(found)
    tool = project.get(name)
    if bundle is not None and bundle != tool.bundle:
        raise ToolNotFound(f"there is no bundle {bundle!r} here; {name} is in {tool.bundle!r}")
    raise ToolNotFound(f"{name} has no version {version!r}; there is version {tool.version}")


def input_schema(project: Project, target: str) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments; an empty one if there is no such tool, as its call reports."""
    try:
        return find_tool(project, target).input_schema
    except ToolcribError:
        return {}


@click.command("show", cls=FileCommand)
@click.argument("tool", shell_complete=complete_tool)
@project_options
def command(tool: str, root: str | None, as_json: bool) -> None:
    """Show one tool: its arguments, permissions and examples.

    TOOL is [BUNDLE/]NAME[@VERSION].
    """
    from toolcrib.middleware.handler import names_for

    project = open_project(root)
    caller, identity = caller_of(project)
    found = find_tool(project, tool)
    sees = project.bundles.sees(project.wish(caller, identity))
    listed = project.bundles.stored.find(found.name)
    if listed is None or (identity is not None and sees is not None and not sees(listed)):
        raise ToolNotFound(f"there is no tool {tool!r} for this token")
    found = replace(found, permissions=project.permissions_of(found))
    middleware, answer = names_for(project.toolset.middleware, found.name), None
    with suppress(ToolcribError):
        answer = project.bundles.tool(found.name, caller, identity)
    if as_json:
        from toolcrib.cli.commands.bundles.chosen import document_of

        record = document_of(answer)
        source, permissions = found.source, found.permissions.as_json()
        named = {"path": source.path, "dialect": source.dialect, "sha256": source.sha256} if source else None
        print_json({**record, "permissions": permissions, "middleware": middleware, "file": named})
    else:
        print_result(
            printable("\n".join(_lines(found, middleware, [] if answer is None else _state(answer))))
        )


def _state(tool: ToolAnswer) -> Iterator[str]:
    """Yield why a tool cannot be called now, and what to do."""
    name = shlex.quote(tool.name)
    if not tool.is_enabled:
        yield f"It is disabled. To enable it: toolcrib bundle tool enable {name}"
    if tool.trust is not None:
        why = "nobody has trusted it" if tool.trust == "new" else "it has changed since it was trusted"
        yield f"It waits for trust, because {why}: toolcrib trust {name}"
    if tool.unavailable_because is not None:
        yield f"It cannot be called: {tool.unavailable_because}"


def _lines(tool: Tool, middleware: list[str], state: Iterable[str]) -> Iterator[str]:
    from toolcrib.manifest.touches import may_touch

    yield f"{tool.name}  ({tool.kind}, version {tool.version})"
    yield tool.description.strip()
    yield from (f"{name}: {value}" for name in PLAIN if (value := getattr(tool, name)))
    yield from state
    yield "\nArguments"
    required = set(tool.input_schema.get("required", ()))
    properties = tool.input_schema.get("properties", {})
    for name, rule in properties.items():
        yield f"  {name}  {_argument(rule, tool.input_schema, name in required)}"
    if not properties:
        yield "  none"
    yield "\nMay touch"
    for line in may_touch(tool):
        yield f"  {line}"
    approval = tool.approval
    yield "\nApproval"
    yield f"  a person must approve each call: {approval.reason}" if approval.required else "  not needed"
    if middleware:
        yield "\nMiddleware, the outermost first"
        yield from (f"  {number}. {name}" for number, name in enumerate(middleware, 1))
    for example in tool.examples:
        yield f"\nExample: {example.description}"
        words = " ".join(_word(name, value) for name, value in example.params.items())
        yield f"  toolcrib run {shlex.quote(tool.name)} {words}".rstrip()
    if tool.source is not None:
        yield f"\n{tool.source.path}"
        yield f"sha256 {tool.source.sha256}"


def _argument(member: Any, schema: Mapping[str, Any], required: bool) -> str:
    rule = resolved(member, schema)
    text = _shape(rule, schema)
    if required:
        text += ", required"
    else:
        text += f", default {json.dumps(rule['default'])}" if "default" in rule else ", optional"
    return text + (f": {rule['description']}" if "description" in rule else "")


def _shape(member: Any, schema: Mapping[str, Any], depth: int = 0) -> str:
    """Return the form of a value in a few words: `object (x: integer, y?: string)`."""
    from toolcrib.schema.lenient import kinds_of

    rule = resolved(member, schema)
    if "enum" in rule:
        return f"one of {json.dumps(rule['enum'])}"
    text = " or ".join(sorted(kinds_of(rule, schema))) or "any"
    parts = rule.get("properties")
    if isinstance(parts, dict) and parts and depth < _DEEPEST:
        needed = rule.get("required", ())
        shown = (
            f"{name}{'' if name in needed else '?'}: {_shape(parts[name], schema, depth + 1)}"
            for name in parts
        )
        text += f" ({', '.join(shown)})"
    elif "items" in rule and depth < _DEEPEST:
        text += f" of {_shape(rule['items'], schema, depth + 1)}"
    return text


def _word(name: str, value: Any) -> str:
    return shlex.quote(f"{name}={value}" if isinstance(value, str) else f"{name}:={json.dumps(value)}")
