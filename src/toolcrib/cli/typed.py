"""Texts of the command line as values of the types that a JSON Schema names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_DEPTH = 16


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_IS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value % 1 == 0,
    "number": _is_number,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


def property_of(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema of one member of an object; True where it says nothing about it."""
    members = schema.get("properties")
    if isinstance(members, dict) and name in members:
        return members[name]
    return schema.get("additionalProperties", True)


def as_typed(text: str, member: Any, schema: Mapping[str, Any]) -> Any:
    """Return the value that a text means: JSON where the schema allows no string, else the text itself.

    A text that is not JSON of an allowed type stays as it is, for the check of the arguments to explain.
    """
    types = types_of(member, schema)
    if types is None or "string" in types:
        return text
    import orjson

    from toolcrib.schema import decode_value

    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    value = decode_value(text)
    return value if any(_IS[name](value) for name in types if name in _IS) else text


def types_of(member: Any, root: Mapping[str, Any], depth: int = 0) -> set[str] | None:
    """Return the JSON types that a schema allows; None if it allows every one."""
    if not isinstance(member, dict) or depth > _DEPTH:
        return None
    found: list[set[str] | None] = []
    if "type" in member:
        kinds = member["type"]
        found.append({kinds} if isinstance(kinds, str) else set(kinds))
    if isinstance(values := member.get("enum", [member["const"]] if "const" in member else None), list):
        found.append({next(name for name, fits in _IS.items() if fits(value)) for value in values})
    if isinstance(ref := member.get("$ref"), str):
        found.append(types_of(_referred(ref, root), root, depth + 1))
    for choice in ("anyOf", "oneOf"):
        if isinstance(branches := member.get(choice), list):
            each = [types_of(one, root, depth + 1) for one in branches]
            found.append(None if None in each else set().union(*(one for one in each if one is not None)))
    if isinstance(parts := member.get("allOf"), list):
        found += [types_of(one, root, depth + 1) for one in parts]
    known = [one for one in found if one is not None]
    return set.intersection(*known) if known else None


def resolved(member: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a member with what its `$ref` leads to; its own words count first."""
    found = dict(member) if isinstance(member, dict) else {}
    for _ in range(_DEPTH):
        if not isinstance(ref := found.pop("$ref", None), str):
            break
        there = _referred(ref, root)
        found = {**(there if isinstance(there, dict) else {}), **found}
    return found


def _referred(ref: str, root: Mapping[str, Any]) -> Any:
    at: Any = root if ref.startswith("#") else None
    for part in ref.removeprefix("#").split("/")[1:]:
        at = at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
    return at
