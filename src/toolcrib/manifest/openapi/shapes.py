"""What kind of value a translated schema lets in, as far as the way it is sent depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from toolcrib.manifest.openapi.schemas import Schemas
from toolcrib.manifest.openapi.translation import Schema

__all__ = ["Fields", "fields_of", "is_file", "is_scalar"]

_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})
_NO_RULE = frozenset(
    {"type", "properties", "required", "title", "description", "examples", "deprecated", "$comment", "format"}
)
_MAX_FIELDS = 300
_MAX_DEPTH = 10


@dataclass(slots=True)
class Fields:
    """An object with known fields: each can be an argument of its own."""

    properties: dict[str, Schema | bool] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)


def fields_of(schema: Schema | bool, needs: set[str], schemas: Schemas) -> Fields | None:
    """The fields of a schema that says nothing but fields, through references and `allOf`; None for others."""
    out = Fields(needs=set(needs))
    if not _collect(schema, schemas, out, 0) or not 0 < len(out.properties) <= _MAX_FIELDS:
        return None
    out.required = [name for name in dict.fromkeys(out.required) if name in out.properties]
    return out


def _collect(schema: Schema | bool, schemas: Schemas, out: Fields, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    name = _named(schema)
    if name is not None:
        out.needs |= schemas.needs(name)
        rest = schema.keys() - {"$ref"} <= _NO_RULE - {"properties", "required"}
        return rest and _collect(schemas.definition(name), schemas, out, depth + 1)
    if schema.get("additionalProperties") is False:
        schema = {key: value for key, value in schema.items() if key != "additionalProperties"}
    if schema.get("type", "object") != "object" or not schema.keys() <= _NO_RULE | {"allOf"}:
        return False
    for part in schema.get("allOf", ()):
        if not _collect(part, schemas, out, depth + 1):
            return False
    for key, rule in schema.get("properties", {}).items():
        both = key in out.properties and out.properties[key] != rule
        out.properties[key] = {"allOf": [out.properties[key], rule]} if both else rule
    out.required += schema.get("required", ())
    return "allOf" in schema or "properties" in schema


def is_scalar(schema: Schema | bool, schemas: Schemas, depth: int = 0) -> bool:
    """Whether no list and no object can fit."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    kinds = schema.get("type")
    if kinds is not None:
        return _SCALARS.issuperset(kinds if isinstance(kinds, list) else [kinds])
    if "enum" in schema:
        return not any(isinstance(item, dict | list) for item in schema["enum"])
    name = _named(schema)
    if name is not None and is_scalar(schemas.definition(name), schemas, depth + 1):
        return True
    if any(is_scalar(part, schemas, depth + 1) for part in schema.get("allOf", ())):
        return True
    either = list(_alternatives(schema))
    return bool(either) and all(is_scalar(part, schemas, depth + 1) for part in either)


def is_file(schema: Schema | bool, schemas: Schemas, depth: int = 0) -> bool:
    """Whether the values are bytes, and not text that stands for them."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    name = _named(schema)
    if name is not None:
        return is_file(schemas.definition(name), schemas, depth + 1)
    if schema.get("type", "string") not in ("string", ["string", "null"]):
        return False
    if schema.get("format") == "binary":
        return True
    return "contentMediaType" in schema and "contentEncoding" not in schema and "contentSchema" not in schema


def _named(schema: Schema) -> str | None:
    ref = schema.get("$ref")
    return ref[len("#/$defs/") :] if isinstance(ref, str) else None


def _alternatives(schema: Schema) -> Iterator[Any]:
    for word in ("anyOf", "oneOf"):
        yield from schema.get(word, ())
