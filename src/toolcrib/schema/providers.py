"""Tools for clients: names on the wire, and the forms of MCP and of Anthropic's API."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Any

from toolcrib.errors import ConflictError
from toolcrib.schema.shapes.parts import compact, renamed_properties, with_rules, without_unions
from toolcrib.schema.walk import changed, rooted
from toolcrib.spec import Annotations, Tool
from toolcrib.spec.naming import wire_name
from toolcrib.spec.tools.policies import MCP_HINTS

_NAME_LENGTH = 64
_HASH_LENGTH = 8
_EXAMPLES_LENGTH = 2_000
"""Characters of examples in a description; later examples are left out."""


def wire_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by a unique name that every client accepts, in the order given.

    Each has the `wire_name` of its own name, which no two tools of one toolset share. In any other list, a
    name that is taken ends in a hash of bundle, name and version, whatever the order.
    """
    tools = list(tools)
    wished = [wire_name(tool.name) for tool in tools]
    count = Counter(wished)
    names: dict[str, Tool] = {}
    for tool, name in zip(tools, wished, strict=True):
        # A name that is exactly a wire name is kept, so that a client finds the tool by the name it knows.
        free = name not in names and (name == tool.name or count[name] == 1)
        names[name if free else _hashed(tool, names, count)] = tool
    return names


def wire_conflict(name: str, other: str) -> ConflictError:
    """Return the error for two tools that clients could not distinguish."""
    return ConflictError(
        f"the tools {name!r} and {other!r} have the same name for clients: {wire_name(name)!r}",
        hint="Give one of the two another name.",
        details={"names": [name, other]},
    )


def _hashed(tool: Tool, *taken: Container[str]) -> str:
    identity = "\0".join((tool.bundle, tool.name, str(tool.version)))
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    base = wire_name(tool.name)
    for length in range(_HASH_LENGTH, _NAME_LENGTH - 1):
        name = f"{base[: _NAME_LENGTH - 1 - length]}_{digest[:length]}"
        if not any(name in names for names in taken):
            return name
    raise AssertionError(f"two tools of one identity: {tool.bundle}/{tool.name}@{tool.version}")


def mcp_tool(tool: Tool, wire_name: str) -> dict[str, Any]:
    """Return the tool as an entry of MCP's `tools/list`, valid in every protocol version.

    `title` is the tool's own name if the wire name differs. `outputSchema` is present only if the tool has
    one, wrapped by `mcp_output_schema`. Facts without a field in MCP are in `_meta["toolcrib/tool"]`.
    """
    entry: dict[str, Any] = {"name": wire_name}
    if wire_name != tool.name:
        entry["title"] = tool.name
    entry["description"] = _with_examples(tool)
    entry["inputSchema"] = {"type": "object", "properties": {}, **tool.input_schema}
    output_schema = mcp_output_schema(tool)
    if output_schema is not None:
        entry["outputSchema"] = output_schema
    hints = _hints(tool.annotations)
    if hints:
        entry["annotations"] = hints
    entry |= mcp_icons(tool)
    entry["_meta"] = {"toolcrib/tool": _about(tool)}
    return entry


def entry_to_keep(tool: Tool) -> bytes:
    """Return the entry of a tool as JSON, if that is all that MCP clients get of it; else nothing."""
    forms = tool.mcp
    if not forms.listed or forms.prompt or forms.resource is not None or wire_name(tool.name) != tool.name:
        return b""
    import orjson

    try:
        return orjson.dumps(mcp_tool(tool, tool.name))
    except TypeError:  # Lone surrogates, which take a longer way.
        return b""


def mcp_icons(tool: Tool) -> dict[str, Any]:
    """Return the member `icons` of an entry of MCP's lists; nothing for a tool without any."""
    return {"icons": list(tool.mcp.icons)} if tool.mcp.icons else {}


def anthropic_tool(tool: Tool, wire_name: str) -> dict[str, Any]:
    """Return the tool as an entry of `tools` in a request to Anthropic's Messages API.

    The API refuses unions at the top of an input schema: such rules move into the description for the model
    to read. Calls are still checked against them. Names of properties that it refuses are replaced.
    """
    schema, rules = without_unions(tool.input_schema)
    schema, description = renamed_properties(schema)[0], with_rules(tool.description, rules)
    entry: dict[str, Any] = {"name": wire_name, "description": description, "input_schema": schema}
    if tool.examples:
        entry["input_examples"] = [example.params for example in tool.examples]
    return entry


def wraps_output(tool: Tool) -> bool:
    """Return True if values are sent as `{"result": value}`: the schema does not promise an object."""
    return tool.output.schema is None or _with_type(tool.output.schema).get("type") != "object"


def mcp_output_schema(tool: Tool) -> dict[str, Any] | None:
    """Return the schema of the tool's `structuredContent`, or None if its output has none.

    MCP 2025-11-25 requires an object at the root, so any other schema becomes that of `{"result": value}` in
    every protocol version, and its references are moved with it.
    """
    if tool.output.schema is None:
        return None
    inner = _with_type(tool.output.schema)
    if not wraps_output(tool):
        return inner
    # `$schema` may only be at the root of a schema resource (JSON Schema 2020-12, 8.1.1).
    dialect = inner.pop("$schema", None)
    # A schema with an `$id` stays the root of its own references (8.2.1).
    if "$id" not in inner:
        inner = changed(inner, _moved)
    wrapped: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {"$schema": dialect, **wrapped} if dialect else wrapped


def _with_type(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without a reference at the root. A union of objects has their type."""
    made = rooted(schema)
    branches = made.get("oneOf") or made.get("anyOf")
    if "type" not in made and isinstance(branches, list):
        whole = [
            rooted({"$defs": made.get("$defs", {}), **one}) for one in branches if isinstance(one, Mapping)
        ]
        if len(whole) == len(branches) and all(one.get("type") == "object" for one in whole):
            return {"type": "object", **made}
    return made


def _moved(rule: dict[str, Any]) -> dict[str, Any]:
    """Let the references of one schema, `#/…`, point below `#/properties/result`."""
    for word in ("$dynamicRef", "$ref"):
        target = rule.get(word)
        if isinstance(target, str) and f"{target}/".startswith("#/"):
            rule[word] = "#/properties/result" + target[1:]
    return rule


def _with_examples(tool: Tool) -> str:
    lines: list[str] = []
    room = _EXAMPLES_LENGTH
    for example in tool.examples:
        line = f"- {example.description}: {compact(example.params)}"
        if example.expected_output is not None:
            line += f" → {example.expected_output}"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return "\n".join([tool.description, "", "Examples:", *lines]) if lines else tool.description


@lru_cache(maxsize=256)
def _hints(annotations: Annotations) -> dict[str, bool]:
    values = ((hint, getattr(annotations, name)) for name, hint in MCP_HINTS.items())
    return {hint: value for hint, value in values if value is not None}


def _about(tool: Tool) -> dict[str, Any]:
    about: dict[str, Any] = {"name": tool.name, "version": tool.version, "bundle": tool.bundle}
    if tool.tags:
        about["tags"] = list(tool.tags)
    if tool.approval.required:
        about["approval"] = {"required": True, "reason": tool.approval.reason}
    return about
