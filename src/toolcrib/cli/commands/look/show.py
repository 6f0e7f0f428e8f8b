"""`toolcrib show`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolcrib.builtin.definition import BUILTIN_BUNDLE
from toolcrib.builtin.names import NAMES
from toolcrib.cli.arguments import complete_tool, parse_target, resolved
from toolcrib.cli.caller import caller_of
from toolcrib.cli.commands.look.list import entry_of
from toolcrib.cli.options import FileCommand, open_project, project_options
from toolcrib.cli.output import print_json, print_result, printable
from toolcrib.errors import ToolcribError, ToolNotFound
from toolcrib.spec import Tool

if TYPE_CHECKING:
    from toolcrib.project import Project

_DEEPEST = 2
"""Objects inside of objects that are shown."""


def find_tool(project: Project, target: str) -> Tool:
    """Return the tool that `[BUNDLE/]NAME[@VERSION]` names. Raises ToolNotFound, with the nearest name."""
    if target in project.toolset.names:
        return project.get(target)
    bundle, name, version = parse_target(target)
    if (name not in project.toolset.names or bundle not in (None, "project")) and (
        stored := project.bundles.find(target)
    ):
        return project.get(stored)
    if bundle == BUILTIN_BUNDLE or (name in NAMES and name not in project.toolset.names):
        tool = project.catalog.builtins.definition(name)  # Also one that is off.
    else:
        tool = project.get(name)
    if bundle is not None and bundle != tool.bundle:
        raise ToolNotFound(f"there is no bundle {bundle!r} here; {name} is in {tool.bundle!r}")
    if version is not None and version != str(tool.version):
        raise ToolNotFound(f"{name} has no version {version!r}; there is version {tool.version}")
    return tool


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
    found = find_tool(project, tool)
    caller, identity = caller_of(project)
    if identity is not None and found not in project.tools(caller, identity):
        raise ToolNotFound(f"there is no tool {tool!r} for this token")
    found = replace(found, permissions=project.permissions_of(found))
    _print(found, names_for(project.toolset.middleware, found.name), as_json=as_json)


def _print(tool: Tool, middleware: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({**_document(tool), "middleware": middleware})
    else:
        print_result(printable("\n".join(_lines(tool, middleware))))


def _document(tool: Tool) -> dict[str, Any]:
    return {
        **entry_of(tool),
        "output": {"format": tool.output.format, "schema": tool.output.schema},
        "permissions": tool.permissions.as_json(),
        "examples": [
            {"description": e.description, "params": e.params, "expected_output": e.expected_output}
            for e in tool.examples
        ],
        "source": None
        if tool.source is None
        else {"path": tool.source.path, "dialect": tool.source.dialect, "sha256": tool.source.sha256},
    }


def _lines(tool: Tool, middleware: list[str]) -> Iterator[str]:
    from toolcrib.manifest.touches import may_touch

    yield f"{tool.name}  ({tool.kind}, version {tool.version})"
    yield tool.description.strip()
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
