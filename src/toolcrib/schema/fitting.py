"""The check of an explicit schema against its function."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import DefinitionError
from toolcrib.schema.derive import FunctionShape
from toolcrib.schema.validate import ArgumentCheck

_COMBINED = {"$ref", "allOf", "anyOf", "if", "oneOf", "patternProperties", "unevaluatedProperties"}
"""Keywords by which a schema has properties outside of its `properties`."""


def fitting(name: str, shape: FunctionShape, schema: dict[str, Any]) -> dict[str, Any]:
    """Return an explicit schema, closed (`additionalProperties: false`) unless the function takes others.

    `DefinitionError` if it is invalid, or if arguments that match it would not match the function.
    """
    ArgumentCheck(schema)
    properties = schema.get("properties", {})
    if shape.struct in properties:
        shape.struct = None
    if shape.open or shape.struct is not None:
        return schema
    known = {parameter.name for parameter in shape.parameters}
    for prop in properties:
        if prop not in known:
            raise DefinitionError(
                f"{name}: the schema has the property {prop!r}, but the function has no such parameter"
            )
    for parameter in shape.parameters:
        if parameter.default is parameter.empty and parameter.name not in schema.get("required", ()):
            raise DefinitionError(
                f"{name}: the function needs {parameter.name!r}, but the schema does not require it",
                hint=f"Put {parameter.name!r} into `required`, or give the parameter a default.",
            )
    if schema.get("additionalProperties", False) is not False:
        raise DefinitionError(
            f"{name}: the schema allows other properties, but the function takes none",
            hint="Give the function a `**kwargs`, or set additionalProperties to false.",
        )
    return schema if _COMBINED & schema.keys() else {**schema, "additionalProperties": False}
