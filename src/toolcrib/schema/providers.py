"""How a tool is described to others: its name on the wire, and the shapes of MCP and of Anthropic's API."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any

from toolcrib.spec import Annotations, Tool

__all__ = [
    "WIRE_NAME",
    "anthropic_tool",
    "mcp_output_schema",
    "mcp_tool",
    "wire_names",
    "wraps_output",
]

WIRE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every client and model provider takes as a name (use `fullmatch`)."""

_NAME_LENGTH = 64
_HASH_LENGTH = 8
_EXAMPLES_LENGTH = 2_000
"""Characters of examples put into a description; later examples are left out."""

_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


def wire_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Each tool under a name that every client takes, unique, in the order given.

    A name that already fits is kept, whatever else is in the list. Any other has its foreign characters
    replaced by `_`; where that is too long, empty, or taken, it ends in a hash of bundle, name and version,
    so it does not depend on the order of the list.
    """
    tools = list(tools)
    wished = [_wished(tool.name) for tool in tools]
    count = Counter(name for name in wished if name is not None)
    names: dict[str, Tool] = {}
    taken = set(wished)
    for tool, name in zip(tools, wished, strict=True):
        if name is not None and name not in names and (name == tool.name or count[name] == 1):
            names[name] = tool
        else:
            names[_hashed(tool, names, taken)] = tool
    return names


def _wished(name: str) -> str | None:
    """The wire name `name` would have were it alone, or None if it needs a hash anyway."""
    if WIRE_NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name)
    return plain if len(plain) <= _NAME_LENGTH and plain.strip("_-") else None


def _hashed(tool: Tool, *taken: Container[str | None]) -> str:
    identity = "\0".join((tool.bundle, tool.name, str(tool.version)))
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    base = re.sub(r"[^a-zA-Z0-9_-]+", "_", tool.name).strip("_-") or "tool"
    for length in range(_HASH_LENGTH, _NAME_LENGTH - 1):
        name = f"{base[: _NAME_LENGTH - 1 - length]}_{digest[:length]}"
        if not any(name in names for names in taken):
            return name
    raise AssertionError(f"two tools of one identity: {tool.bundle}/{tool.name}@{tool.version}")


def mcp_tool(tool: Tool, wire_name: str) -> dict[str, Any]:
    """The tool as an entry of MCP's `tools/list`, fit for every protocol version.

    `title` is the name as written where the wire name differs. `outputSchema` is there only if the tool has
    one, wrapped as `mcp_output_schema` says. What MCP has no word for stands in `_meta["toolcrib/tool"]`.
    """
    entry: dict[str, Any] = {"name": wire_name}
    if wire_name != tool.name:
        entry["title"] = tool.name
    entry["description"] = _with_examples(tool)
    entry["inputSchema"] = _object_schema(tool.input_schema)
    output_schema = mcp_output_schema(tool)
    if output_schema is not None:
        entry["outputSchema"] = output_schema
    hints = _hints(tool.annotations)
    if hints:
        entry["annotations"] = hints
    entry["_meta"] = {"toolcrib/tool": _about(tool)}
    return entry


def anthropic_tool(tool: Tool, wire_name: str) -> dict[str, Any]:
    """The tool as an entry of `tools` in a request to Anthropic's Messages API.

    The API refuses `oneOf`, `anyOf` and `allOf` at the top of an input schema: such rules move into the
    description, for the model to read; the call is checked against them all the same.
    """
    schema = _object_schema(tool.input_schema)
    description = tool.description
    rules = {word: schema.pop(word) for word in ("oneOf", "anyOf", "allOf") if word in schema}
    if rules:
        description += "\n\nThe input must also fit this JSON Schema: " + _compact(rules)
    entry: dict[str, Any] = {"name": wire_name, "description": description, "input_schema": schema}
    if tool.examples:
        entry["input_examples"] = [example.params for example in tool.examples]
    return entry


def wraps_output(tool: Tool) -> bool:
    """Whether a value of this tool goes out as `{"result": value}`: its schema does not promise an object."""
    return tool.output.schema is None or tool.output.schema.get("type") != "object"


def mcp_output_schema(tool: Tool) -> dict[str, Any] | None:
    """The schema of the tool's `structuredContent`, or None if its output has none.

    MCP 2025-11-25 wants an object at the root, so any other schema becomes that of `{"result": value}`, on
    every wire, with its own references pointing to where it now stands.
    """
    schema = tool.output.schema
    if schema is None or not wraps_output(tool):
        return schema
    inner = dict(schema)
    dialect = inner.pop("$schema", None)
    if "$id" not in inner:
        inner = _moved(inner)
    wrapped: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {"$schema": dialect, **wrapped} if dialect else wrapped


_SCHEMA_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_PLAIN_DATA = frozenset({"const", "default", "enum", "examples"})


def _moved(schema: Any) -> Any:
    """A copy of a schema in which `#/…` points below `#/properties/result`."""
    if isinstance(schema, list):
        return [_moved(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved: dict[str, Any] = {}
    for word, part in schema.items():
        if word in ("$dynamicRef", "$ref") and isinstance(part, str) and f"{part}/".startswith("#/"):
            moved[word] = "#/properties/result" + part[1:]
        elif word in _SCHEMA_MAPS and isinstance(part, Mapping):
            moved[word] = {name: _moved(inner) for name, inner in part.items()}
        else:
            moved[word] = part if word in _PLAIN_DATA else _moved(part)
    return moved


def _object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that says what every client asks to see said: an object, with properties."""
    return {"type": "object", "properties": {}, **schema}


def _with_examples(tool: Tool) -> str:
    lines: list[str] = []
    room = _EXAMPLES_LENGTH
    for example in tool.examples:
        line = f"- {example.description}: {_compact(example.params)}"
        if example.expected_output is not None:
            line += f" → {example.expected_output}"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return "\n".join([tool.description, "", "Examples:", *lines]) if lines else tool.description


def _hints(annotations: Annotations) -> dict[str, bool]:
    said = ((hint, getattr(annotations, name)) for name, hint in _HINTS.items())
    return {hint: value for hint, value in said if value is not None}


def _about(tool: Tool) -> dict[str, Any]:
    about: dict[str, Any] = {"name": tool.name, "version": tool.version, "bundle": tool.bundle}
    if tool.tags:
        about["tags"] = list(tool.tags)
    if tool.approval.required:
        about["approval"] = {"required": True, "reason": tool.approval.reason}
    return about


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
