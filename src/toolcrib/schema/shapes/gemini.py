"""JSON Schema in the words of Gemini's API: its `Schema`, which is a part of OpenAPI 3.0, or JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.schema.walk import changed

_OF_VALUES = {str: "string", bool: "boolean", int: "integer", float: "number"}


_OF_TYPE = {
    **dict.fromkeys(("items", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "enum"), "string"),
}
"""Keyword to the only type beside which the API takes it."""


def single_types(rule: Any) -> Any:
    """Return a schema with single types and without `allOf`.

    Lists of types become `anyOf` or `nullable`, constants an `enum`, parts of `allOf` one schema.
    """
    return changed(rule, _single)


def _single(made: dict[str, Any]) -> dict[str, Any]:
    made = _merged(made)
    if isinstance(made.get("const"), str):
        made |= {"type": "string", "enum": [made.pop("const")]}
    _single_type(made)
    branches = made.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        left = [branch for branch in branches if branch != {"type": "null"}]
        made["nullable"] = True
        if len(left) == 1:
            del made["anyOf"]
            made = {**left[0], **made}
        else:
            made["anyOf"] = left
    return made


def merged(rule: Any) -> Any:
    """Return a schema in which the parts of `allOf` are one schema, and `oneOf` is `anyOf`."""
    return changed(rule, _merged)


def _merged(made: dict[str, Any]) -> dict[str, Any]:
    parts = made.get("allOf", ())
    choices = sum("anyOf" in part or "oneOf" in part for part in (made, *parts) if isinstance(part, Mapping))
    # Two `anyOf` in one schema cannot be one `anyOf` without listing all pairs.
    if parts and choices <= 1 and all(isinstance(part, Mapping) for part in parts):
        del made["allOf"]
        for part in parts:
            made = both(made, part)
    if "oneOf" in made and "anyOf" not in made:
        made["anyOf"] = made.pop("oneOf")
    return made


def typed(made: dict[str, Any]) -> dict[str, Any]:
    """Add the type of the values of an `enum` or `const` that has none."""
    values = made.get("enum", [made["const"]] if "const" in made else [])
    if "type" not in made and values:
        kinds = list(dict.fromkeys(_OF_VALUES.get(type(value), "null") for value in values))
        made["type"] = kinds[0] if len(kinds) == 1 else kinds
    return made


def _single_type(made: dict[str, Any]) -> None:
    kind = typed(made).get("type")
    if not isinstance(kind, list):
        return
    kinds = [one for one in kind if one != "null"]
    if len(kinds) < len(kind):
        made["nullable"] = True
        if "enum" in made and "string" in kinds:
            # The API takes only texts in an `enum`; `nullable` allows the null.
            made["enum"] = [value for value in made["enum"] if value is not None]
    if len(kinds) == 1:
        made["type"] = kinds[0]
    else:
        del made["type"]
        made.setdefault("anyOf", [{"type": one} for one in kinds])


def gemini_schema(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of single types as a `Schema`, with all that the API requires of one.

    A value of any kind, and an object with any keys, is asked for as JSON text.
    """
    made = dict(rule)
    if "anyOf" in made:
        # The API takes no other field beside `anyOf`, so they move into its branches.
        branches = made.pop("anyOf")
        first, *others = [both(branch, made) for branch in branches] or [made]
        if not others:
            return gemini_schema(first)
        plain = {word: part for word, part in made.items() if word != "description"}
        return {
            "anyOf": [
                gemini_schema(one) for one in (first, *(both(branch, plain) for branch in branches[1:]))
            ]
        }
    _repaired(made)
    kind = made.get("type") or ("object" if "properties" in made else "array" if "items" in made else None)
    # The API refuses a schema without a type, and an object without properties.
    if kind is None or (kind == "object" and not made.get("properties")):
        what = "any JSON value" if kind is None else "a JSON object as text"
        kept: dict[str, Any] = {word: made[word] for word in ("description", "nullable") if word in made}
        return noted({"type": "STRING", **kept}, what)
    made = {**_of_type(made, kind), "type": kind.upper()}
    if kind == "object":
        made["properties"] = {name: gemini_schema(inner) for name, inner in made["properties"].items()}
    if kind == "array":
        # The API refuses a list without `items`.
        items = made.get("items")
        made["items"] = gemini_schema(items if isinstance(items, Mapping) else {"type": "string"})
    return made


def gemini_json(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of single types as `parametersJsonSchema`, in which null is a type."""
    made = dict(rule)
    if isinstance(kind := made.get("type"), str):
        made = _of_type(made, kind)
    _repaired(made)
    if made.pop("nullable", False) and "anyOf" in made:
        made["anyOf"] = [*made["anyOf"], {"type": "null"}]
    elif "nullable" in rule and rule["nullable"] and "type" in made:
        made["type"] = [made["type"], "null"]
    if "properties" in made:
        made["properties"] = {name: gemini_json(inner) for name, inner in made["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(made.get(word), Mapping):
            made[word] = gemini_json(made[word])
    if "anyOf" in made:
        made["anyOf"] = [gemini_json(branch) for branch in made["anyOf"]]
    return made


def _of_type(made: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a schema without the keywords that mean nothing for this type."""
    return {word: part for word, part in made.items() if _OF_TYPE.get(word, kind) == kind}


def _repaired(made: dict[str, Any]) -> None:
    """Remove what the API refuses: names in `required` without a property, empty texts in an `enum`."""
    if "required" in made:
        made["required"] = [name for name in made["required"] if name in made.get("properties", ())]
        if not made["required"]:
            del made["required"]
    if "" in made.get("enum", ()):
        made["enum"] = [value for value in made["enum"] if value != ""]
        made |= noted(made, "or an empty text")
        if not made["enum"]:
            del made["enum"]


def both(rule: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that has the words of both; where both have one, that of `rule`."""
    made = {**shared, **rule}
    if "properties" in rule and "properties" in shared:
        made["properties"] = {**shared["properties"], **rule["properties"]}
    if "required" in rule and "required" in shared:
        made["required"] = list(dict.fromkeys([*shared["required"], *rule["required"]]))
    texts = dict.fromkeys(one["description"] for one in (shared, rule) if one.get("description"))
    return {**made, "description": " ".join(texts)} if texts else made


def noted(rule: dict[str, Any], words: str) -> dict[str, Any]:
    """Return a schema with these words at the end of its description, in parentheses."""
    text = rule.get("description", "")
    return {**rule, "description": f"{text} ({words})" if text else f"({words})"}
