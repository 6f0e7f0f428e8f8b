"""What a rule asks of the arguments: a JSON Schema that cannot say less than it seems to.

JSON Schema passes over what it does not know, so a slip of the pen matches every call. Here it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolcrib.errors import DefinitionError, Violation
from toolcrib.schema import SchemaCheck
from toolcrib.spec.naming import json_path, nearest

__all__ = ["AnyCondition", "Condition"]

_Place = tuple[str | int, ...]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OBJECT = _words("maxProperties minProperties required dependentRequired")
_VALUE = _words(
    "type enum const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength "
    "pattern maxItems minItems uniqueItems maxContains minContains"
)
_ITEMS = _words("items contains unevaluatedItems")
_ONE = _ITEMS | _words("additionalProperties propertyNames if then else not unevaluatedProperties")
_LIST = _words("allOf anyOf oneOf prefixItems")
_NAMED = _words("properties patternProperties dependentSchemas")
_SILENT = _words("title description $comment")
_KNOWN = _OBJECT | _VALUE | _ONE | _LIST | _NAMED | _SILENT
_TOP = _KNOWN - _VALUE - _ITEMS - {"prefixItems"}
"""What says something about arguments, which are an object."""
_NEEDS = {"then": "if", "else": "if", "maxContains": "contains", "minContains": "contains"}
_WHY_NOT = {
    "format": "is not checked by anybody; say it with `pattern`",
    "$ref": "is not followed here; write the part out, or use a YAML alias",
    "$defs": "has no use where `$ref` is not followed",
}


class Condition:
    """A compiled condition over the arguments of a call, JSON Schema 2020-12 without references."""

    __slots__ = ("_check", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises `DefinitionError`; its first violation has the place within the schema."""
        self.schema = schema
        fault = next(_faults(schema, ()), None)
        if fault is not None:
            raise _refused(*fault)
        try:
            self._check = SchemaCheck(schema)
        except DefinitionError as error:
            place = tuple(getattr(error.__context__, "instance_path", ()))
            raise _refused(place, error.violations[0].message) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.schema == other.schema

    def __hash__(self) -> int:
        return hash(repr(self.schema))

    def __repr__(self) -> str:
        return f"Condition({self.schema!r})"

    def holds(self, arguments: Mapping[str, Any] | None) -> bool | None:
        """Whether the arguments are such; None where they are not known, or cannot be looked at."""
        if arguments is None:
            return None
        try:
            return self._check.is_valid(arguments)
        except Exception:  # they are no JSON; whoever asks must take the worse
            return None

    def misfit(self, arguments: Mapping[str, Any]) -> str:
        """Why the arguments are not such."""
        try:
            found = self._check.violations(arguments)
        except Exception as error:
            return f"the arguments cannot be looked at: {error}"
        return "; ".join(f"{violation.path} {violation.message}" for violation in found[:5])


class AnyCondition:
    """Several conditions at once: whether any of them may hold costs one look at the arguments."""

    __slots__ = ("_is_valid",)

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._is_valid = None
        if len(conditions) > 1:
            schemas = [condition.schema for condition in conditions]
            try:
                self._is_valid = SchemaCheck({"anyOf": _together(schemas)}).is_valid
            except DefinitionError:  # the patterns together are longer than an expression may be
                self._is_valid = SchemaCheck({"anyOf": schemas}).is_valid

    def may_hold(self, arguments: Mapping[str, Any] | None) -> bool:
        """False where none of them holds; True where each is to be looked at."""
        if self._is_valid is None or arguments is None:
            return True
        try:
            return self._is_valid(arguments)
        except Exception:  # each condition says itself what that means
            return True


def _together(schemas: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Schemas of which one fits what one of these fits: those that differ in one pattern alone become one."""
    alike: dict[str, tuple[Mapping[str, Any], str, list[str]]] = {}
    made: list[Mapping[str, Any]] = []
    for schema in schemas:
        arguments = schema.get("properties", {})
        name = next((name for name, rule in arguments.items() if _joins(rule)), None)
        if name is None:
            made.append(schema)
        else:
            key = repr(_with_pattern(schema, name, ""))
            alike.setdefault(key, (schema, name, []))[2].append(f"(?:{arguments[name]['pattern']})")
    return made + [_with_pattern(schema, name, "|".join(found)) for schema, name, found in alike.values()]


def _joins(rule: Any) -> bool:
    """Whether there is a pattern that can be one way of several. Flags would reach beyond it."""
    pattern = rule.get("pattern") if isinstance(rule, Mapping) else None
    return pattern is not None and "(?" not in pattern.replace("(?:", "")


def _with_pattern(schema: Mapping[str, Any], name: str, pattern: str) -> dict[str, Any]:
    arguments = schema["properties"]
    return {**schema, "properties": {**arguments, name: {**arguments[name], "pattern": pattern}}}


def _refused(place: _Place, message: str) -> DefinitionError:
    return DefinitionError(
        message, violations=[Violation(json_path(place), message)], details={"at": list(place)}
    )


def _faults(schema: Any, at: _Place) -> Iterator[tuple[_Place, str]]:
    """Where a schema says something that would be passed over."""
    if isinstance(schema, bool) and at:
        return
    if not isinstance(schema, Mapping):
        yield at, "must be a JSON Schema, a mapping"
        return
    if not schema.keys() - _SILENT and not at:
        yield at, "says nothing about the arguments; leave it out to match every call"
    for key, value in schema.items():
        here = (*at, key)
        if key not in (_KNOWN if at else _TOP):
            yield here, _unknown(key, at)
        elif key in _NEEDS and _NEEDS[key] not in schema:
            yield here, f"says nothing without `{_NEEDS[key]}`"
        elif key in _ONE:
            yield from _faults(value, here)
        elif key in _LIST and isinstance(value, list):
            for number, item in enumerate(value):
                yield from _faults(item, (*here, number))
        elif key in _NAMED and isinstance(value, Mapping):
            for name, item in value.items():
                yield from _faults(item, (*here, name))


def _unknown(key: str, at: _Place) -> str:
    if key in _WHY_NOT:
        return f"`{key}` {_WHY_NOT[key]}"
    if not at:
        close = nearest(key, _TOP)
        mend = f"did you mean `{close}`?" if close else f"for an argument write `properties: {{{key}: …}}`"
        return f"`{key}` says nothing about arguments, which are an object; {mend}"
    close = nearest(key, _KNOWN)
    mend = f"; did you mean `{close}`?" if close else ""
    return f"`{key}` is no keyword of JSON Schema that is checked{mend}"
