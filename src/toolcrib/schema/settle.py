"""Defaults for absent arguments, and 2 for an integer that was written as 2.0."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from toolcrib.spec.naming import pointed

_Settle = Callable[[Any], Any]


def settler(schema: Mapping[str, Any], *, integers: bool = True) -> _Settle | None:
    """Return the function that completes a valid value in place; None if there is nothing to do.

    `integers=False` says that integers are never written as floats.
    """
    return _Settlers(schema, integers).make(schema)


def _whole(value: Any) -> Any:
    """Return 2 for 2.0: an integer in JSON Schema, but not in Python."""
    return int(value) if value.__class__ is float else value


class _Settlers:
    """The settlers of one schema, whose `$ref`s are followed."""

    def __init__(self, schema: Mapping[str, Any], integers: bool) -> None:
        self._schema = schema
        self._integers = integers
        self._made: dict[str, _Settle | None] = {}
        self._making: set[str] = set()

    def make(self, rule: Any) -> _Settle | None:
        if not isinstance(rule, Mapping):
            return None
        if isinstance(rule.get("$ref"), str):
            return self._referred(rule["$ref"])
        branches = [branch for branch in rule.get("anyOf", ()) if branch != {"type": "null"}]
        if len(branches) == 1:
            return self.make(branches[0])
        kind = rule.get("type")
        if kind == "integer" or (isinstance(kind, list) and "integer" in kind and "number" not in kind):
            return _whole if self._integers else None
        if "properties" in rule or "additionalProperties" in rule:
            return self._object(rule)
        each = self.make(rule.get("items"))
        if each is None:
            return None
        return lambda value: [each(item) for item in value] if value.__class__ is list else value

    def _referred(self, reference: str) -> _Settle | None:
        if reference in self._making:  # a type that contains itself
            return partial(self._late, reference)
        if reference not in self._made:
            self._making.add(reference)
            self._made[reference] = self.make(pointed(self._schema, reference))
            self._making.remove(reference)
        return self._made[reference]

    def _late(self, reference: str, value: Any) -> Any:
        made = self._made[reference]
        return value if made is None else made(value)

    def _object(self, rule: Mapping[str, Any]) -> _Settle | None:
        properties = rule.get("properties", {})
        made = {name: self.make(inner) for name, inner in properties.items()}
        integers = tuple(name for name, settle in made.items() if settle is _whole)
        inner = [
            (name, settle) for name, settle in made.items() if settle is not None and settle is not _whole
        ]
        others = self.make(rule.get("additionalProperties"))
        defaults = [
            (name, rule["default"], isinstance(rule["default"], (dict, list)))
            for name, rule in properties.items()
            if isinstance(rule, Mapping) and "default" in rule
        ]
        if not (integers or inner or others or defaults):
            return None

        def settle_object(value: Any) -> Any:
            if value.__class__ is not dict:
                return value
            for name in integers:
                if value.get(name).__class__ is float:
                    value[name] = int(value[name])
            for name, settle in inner:
                if name in value:
                    value[name] = settle(value[name])
            if others is not None:
                for name in value.keys() - made.keys():
                    value[name] = others(value[name])
            for name, default, mutable in defaults:
                if name not in value:
                    value[name] = copy.deepcopy(default) if mutable else default
            return value

        return settle_object
