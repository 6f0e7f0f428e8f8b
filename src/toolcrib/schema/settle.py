"""What is done to checked arguments: absent ones get their defaults, 2.0 for an integer becomes 2."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

__all__ = ["settler"]

_Settle = Callable[[Any], Any]
_Step = Callable[[dict[str, Any]], None]


def settler(schema: Mapping[str, Any]) -> _Settle | None:
    """What settles a value that fits `schema`, in place; None when there is nothing to do."""
    return _Settlers(schema).make(schema)


def _whole(value: Any) -> Any:
    """JSON Schema takes 2.0 for an integer; Python does not."""
    return int(value) if value.__class__ is float else value


class _Settlers:
    """Makes the settlers of one schema, following its `$ref`s."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
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
            return _whole
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
            self._made[reference] = self.make(self._target(reference))
            self._making.remove(reference)
        return self._made[reference]

    def _late(self, reference: str, value: Any) -> Any:
        made = self._made[reference]
        return value if made is None else made(value)

    def _target(self, reference: str) -> Any:
        found: Any = self._schema if reference.startswith("#") else None
        for part in reference.lstrip("#").split("/")[1:]:
            if not isinstance(found, Mapping):
                return None
            found = found.get(part.replace("~1", "/").replace("~0", "~"))
        return found

    def _object(self, rule: Mapping[str, Any]) -> _Settle | None:
        properties = rule.get("properties", {})
        settlers = {name: self.make(inner) for name, inner in properties.items()}
        steps = [
            _of_integers(tuple(name for name, settle in settlers.items() if settle is _whole)),
            _of_inner({name: settle for name, settle in settlers.items() if settle not in (None, _whole)}),
            _of_others(self.make(rule.get("additionalProperties")), properties.keys()),
            _of_defaults({name: rule["default"] for name, rule in properties.items() if _has_default(rule)}),
        ]
        plan = tuple(step for step in steps if step is not None)
        if not plan:
            return None

        def settle_object(value: Any) -> Any:
            if value.__class__ is dict:
                for step in plan:
                    step(value)
            return value

        return settle_object


def _has_default(rule: Any) -> bool:
    return isinstance(rule, Mapping) and "default" in rule


def _of_integers(names: tuple[str, ...]) -> _Step | None:
    def step(value: dict[str, Any]) -> None:
        for name in names:
            if value.get(name).__class__ is float:
                value[name] = int(value[name])

    return step if names else None


def _of_inner(settlers: Mapping[str, Any]) -> _Step | None:
    def step(value: dict[str, Any]) -> None:
        for name, settle in settlers.items():
            if name in value:
                value[name] = settle(value[name])

    return step if settlers else None


def _of_others(settle: _Settle | None, known: Set[str]) -> _Step | None:
    if settle is None:
        return None

    def step(value: dict[str, Any]) -> None:
        for name in value.keys() - known:
            value[name] = settle(value[name])

    return step


def _of_defaults(defaults: Mapping[str, Any]) -> _Step | None:
    plan = [(name, default, isinstance(default, (dict, list))) for name, default in defaults.items()]

    def step(value: dict[str, Any]) -> None:
        for name, default, mutable in plan:
            if name not in value:
                value[name] = copy.deepcopy(default) if mutable else default

    return step if plan else None
