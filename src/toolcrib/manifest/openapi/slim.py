"""Schemas made smaller: what is only told goes first, then what lies deepest; what went is told.

A smaller schema lets in all that the whole one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from toolcrib.spec import Output, Tool

__all__ = ["size_of", "slimmed"]

_SHORT = 80
_TOLD = ("examples", "title", "$comment", "deprecated")


def size_of(schema: Any) -> int:
    """Bytes of a schema as JSON."""
    import orjson

    return len(orjson.dumps(schema))


def slimmed(tool: Tool, limit: int) -> tuple[Tool, list[str]]:
    """The tool with input and output schema of at most `limit` bytes each, as far as that can be, and what
    was lost.
    """
    lost: list[str] = []
    schema, told = _fit(tool.input_schema, limit)
    if told:
        lost.append(f"input schema: {told}")
        tool = replace(tool, input_schema=schema)
    if tool.output.schema is not None:
        schema, told = _fit(tool.output.schema, limit)
        if told:
            lost.append(f"output schema: {told}")
            kept = schema if size_of(schema) <= limit else None
            tool = replace(tool, output=Output(tool.output.format, kept, tool.output.on_violation))
            if kept is None:
                lost[-1] = "output schema: left out"
    return tool, lost


def _fit(schema: dict[str, Any], limit: int) -> tuple[dict[str, Any], str]:
    """The schema after the first step that makes it small enough, and what the steps took."""
    if size_of(schema) <= limit:
        return schema, ""
    told = ""
    steps: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = [
        ("examples and titles", _without_told),
        ("examples, titles and long descriptions", lambda whole: _walk(_without_told(whole), _shorten)),
        *((f"examples, titles, descriptions and what lies {depth} references deep",
           lambda whole, depth=depth: _cut(_walk(_without_told(whole), _undescribed), depth))  # type: ignore[misc]
          for depth in (6, 4, 3, 2, 1, 0)),
    ]  # fmt: skip
    smaller = schema
    for told, step in steps:
        smaller = step(schema)
        if size_of(smaller) <= limit:
            break
    return smaller, f"{told} left out ({size_of(schema):,} to {size_of(smaller):,} bytes)"


def _without_told(schema: dict[str, Any]) -> dict[str, Any]:
    return _walk(
        schema, lambda node: [node.pop(word, None) for word in _TOLD if not isinstance(node.get(word), dict)]
    )


def _shorten(node: dict[str, Any]) -> None:
    said = node.get("description")
    if isinstance(said, str) and len(said) > _SHORT:
        node["description"] = said[: _SHORT - 1].rstrip() + "…"


def _undescribed(node: dict[str, Any]) -> None:
    if isinstance(node.get("description"), str):
        del node["description"]


_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_INSIDE = frozenset(
    {
        "items",
        "additionalProperties",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
    | {"not", "if", "then", "else"}
)


def _walk(schema: Any, change: Callable[[dict[str, Any]], object]) -> Any:
    """A copy of a schema with `change` done to every schema in it."""
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _MAPS and isinstance(value, dict):
            out[word] = {name: _walk(inner, change) for name, inner in value.items()}
        elif word in _LISTS and isinstance(value, list):
            out[word] = [_walk(inner, change) for inner in value]
        else:
            out[word] = _walk(value, change) if word in _INSIDE else value
    change(out)
    return out


def _cut(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    """Definitions that only further references lead to are let in whatever they are."""
    definitions = schema.get("$defs", {})
    kept: dict[str, Any] = {}
    level = _referred({key: value for key, value in schema.items() if key != "$defs"})
    for _ in range(depth):
        level = {name for name in level if name in definitions and name not in kept}
        kept.update({name: definitions[name] for name in level})
        level = {other for name in level for other in _referred(definitions[name])}

    def open_up(node: dict[str, Any]) -> None:
        ref = node.get("$ref")
        if isinstance(ref, str) and ref[len("#/$defs/") :] not in kept:
            del node["$ref"]

    out: dict[str, Any] = _walk({**schema, "$defs": kept}, open_up)
    if not out["$defs"]:
        del out["$defs"]
    return out


def _referred(schema: Any) -> set[str]:
    found: set[str] = set()

    def note(node: dict[str, Any]) -> None:
        ref = node.get("$ref")
        if isinstance(ref, str):
            found.add(ref[len("#/$defs/") :])

    _walk(schema, note)
    return found
