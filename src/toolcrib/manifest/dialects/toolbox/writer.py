"""Write SQL tools as files of MCP Toolbox."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.toolbox.reader import TYPES, WORDS
from toolcrib.manifest.yaml.source import dump
from toolcrib.spec import SqlExec, Tool


def write_file(tool: Tool) -> bytes:
    """Return a file with this one statement and its source.

    Raises ManifestError if the values of the statement are not exactly the arguments in their order.
    """
    config = tool.config
    if not isinstance(config, SqlExec):
        raise ManifestError(f"{tool.name} is of kind {tool.kind}; only sql can be written for MCP Toolbox")
    properties: dict[str, Any] = tool.input_schema.get("properties", {})
    if list(config.parameters) != [f"${{{name}}}" for name in properties]:
        raise ManifestError(
            f"{tool.name} cannot be written as toolbox: the values of its statement are not its arguments in "
            "their order",
            hint="List every property of inputs.schema once in `parameters`, in the same order.",
        )
    source = {"kind": config.engine, "database": config.database, **config.connection}
    required = tool.input_schema.get("required", ())
    entry = {
        "kind": f"{config.engine}-sql",
        "source": config.engine,
        "description": tool.description,
        "statement": config.statement,
        "parameters": [
            {"name": name, **_parameter(tool, name, rule, needed=name in required)}
            for name, rule in properties.items()
        ],
    }
    toolsets = {"toolsets": {tag: [tool.name] for tag in tool.tags}} if tool.tags else {}
    content = {
        **toolsets,
        "sources": {config.engine: {key: value for key, value in source.items() if value is not None}},
        "tools": {tool.name: {**entry, **tool.extensions.get("toolbox", {})}},
    }
    return dump(content).encode()


def _parameter(tool: Tool, name: str, rule: Any, *, needed: bool) -> dict[str, Any]:
    words = {str(schema["type"]): word for word, schema in TYPES.items()}
    words |= {"array": "array", "object": "map"}
    kind = rule.get("type") if isinstance(rule, dict) else None
    if not isinstance(kind, str) or kind not in words:
        raise ManifestError(
            f"{tool.name} cannot be written as toolbox: `{name}` does not have exactly one type",
            hint=f"Give it one of {', '.join(words)} in inputs.schema.",
        )
    entry: dict[str, Any] = {"type": words[kind]}
    for key, word in WORDS.items():
        if word in rule:
            entry[key] = rule[word]
    if needed is ("default" in rule):
        entry["required"] = needed
    if kind == "array":
        entry["items"] = {"name": "item", **_parameter(tool, f"{name}[]", rule.get("items"), needed=True)}
    value = rule.get("additionalProperties")
    if kind == "object" and isinstance(value, dict) and value.get("type") in words:
        entry["valueType"] = words[value["type"]]
    return entry
