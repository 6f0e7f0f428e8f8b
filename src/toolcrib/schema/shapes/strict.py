"""JSON Schema in the words of OpenAI's strict tools: closed objects, in which every property is required."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.errors import DefinitionError
from toolcrib.schema.shapes.gemini import both, typed
from toolcrib.schema.shapes.parts import compact
from toolcrib.schema.walk import schemas

_MOST = (("properties", "properties", 5_000), ("enum", "values of enums", 1_000))
"""Limits of the API. A list with a tool beyond one of them is refused as a whole."""
_LEVELS = 10
"""Objects and lists inside each other that the API accepts."""


def strict_schema(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a strict tool; an optional property may be null.

    An object with any keys, and whatever else has no strict form but can only be an object or a list, is
    asked for as JSON text, as is what lies too deep. Raises DefinitionError where that is not enough, and
    beyond a limit of the API.
    """
    definitions = rule.get("$defs", {})
    made = _strict({word: part for word, part in rule.items() if word != "$defs"}, "$", 1)
    if definitions:
        made["$defs"] = {name: _part(inner, name, 1) for name, inner in definitions.items()}
    for word, what, most in _MOST:
        number = sum(len(part.get(word, ())) for _, part in schemas(made))
        if number > most:
            raise DefinitionError(
                f"it has {number:,} {what}; OpenAI accepts at most {most:,} in a strict tool"
            )
    return made


def _strict(rule: Mapping[str, Any], path: str, level: int) -> dict[str, Any]:
    made = typed(dict(rule))
    if "$ref" in made:
        # The API takes no word beside it.
        target = {"$ref": made.pop("$ref")}
        made.pop("type", None)
        about = made.pop("description", "") + (f" ({compact(made)})" if made else "")
        return {"anyOf": [target], "description": about.strip()} if about else target
    branches = made.pop("anyOf", None)
    if branches is not None:
        return _alternatives(made, branches, path, level)
    kinds = _kinds(made)
    if not kinds:
        raise DefinitionError(f"{path} takes a value of any type, which a strict schema cannot express")
    if kinds & {"object", "array"} and level > _LEVELS:
        raise DefinitionError(f"{path} is nested deeper than the {_LEVELS} levels that OpenAI accepts")
    made = {"type": next(iter(kinds)), **made}
    if "object" in kinds:
        properties, others = made.get("properties", {}), made.get("additionalProperties")
        if isinstance(others, Mapping) or not (properties or others is False or path == "$"):
            raise DefinitionError(f"{path} takes any keys, which a strict schema cannot express")
        required = set(made.get("required", ()))
        made["properties"] = {
            name: _part(inner, f"{path}.{name}", level + 1, required=name in required)
            for name, inner in properties.items()
        }
        made |= {"required": list(properties), "additionalProperties": False}
    if "array" in kinds:
        made["items"] = _part(made.get("items") or {}, f"{path}[]", level + 1)
    else:
        made.pop("items", None)  # It says nothing of other values, and may be `false`.
    return made


def _alternatives(
    rest: dict[str, Any], branches: list[dict[str, Any]], path: str, level: int
) -> dict[str, Any]:
    """Return `anyOf`; the words beside it go into each branch, a rule about them into the description."""
    about = {"description": rest.pop("description")} if "description" in rest else {}
    if rest and not all(_kinds(branch) for branch in branches):
        text = f"{about.get('description', '')} (anyOf: {compact(branches)})".strip()
        return _strict({**rest, "description": text}, path, level)
    return {"anyOf": [_strict(both(branch, rest), path, level) for branch in branches], **about}


def _part(rule: Mapping[str, Any], path: str, level: int, *, required: bool = True) -> dict[str, Any]:
    """Return a schema inside another one, as JSON text where it has no other form."""
    try:
        made = _strict(rule, path, level)
    except DefinitionError:
        kinds = _kinds(rule)
        if not kinds or not kinds <= {"object", "array", "null"}:
            raise
        about = rule.get("description", "")
        shape = compact({word: part for word, part in rule.items() if word != "description"})
        made = {"type": "string", "description": f"{about} (JSON text that fits {shape})".strip()}
        # A text cannot be null, so a part that may be null is made nullable again below.
        required = required and "null" not in kinds
    return made if required else _nullable(made)


def _kinds(rule: Mapping[str, Any]) -> set[str]:
    """Return the types that a value may have; none if it may have any."""
    if "$ref" in rule:
        return {"object"}  # Only to what contains itself, which a plain value does not.
    kind = rule.get("type") or ("object" if "properties" in rule else "array" if "items" in rule else ())
    if kind or "anyOf" not in rule:
        return {kind} if isinstance(kind, str) else set(kind)
    branches = [_kinds(typed(dict(branch))) for branch in rule["anyOf"]]
    return set().union(*branches) if all(branches) else set()


def _nullable(rule: dict[str, Any]) -> dict[str, Any]:
    null: dict[str, Any] = {"type": "null"}
    if "$ref" in rule:
        return {"anyOf": [rule, null]}
    if "anyOf" in rule:
        return rule if null in rule["anyOf"] else {**rule, "anyOf": [*rule["anyOf"], null]}
    kinds = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    if "null" in kinds:
        return rule
    # An `enum` without null refuses null, whatever `type` says.
    if "enum" in rule or "const" in rule:
        about = {"description": rule["description"]} if "description" in rule else {}
        return {"anyOf": [{key: rule[key] for key in rule if key != "description"}, null], **about}
    return {**rule, "type": [*kinds, "null"]}
