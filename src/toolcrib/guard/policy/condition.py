"""The condition of a rule on the arguments: a JSON Schema without anything that would be ignored.

JSON Schema ignores unknown keywords, so a misspelled one would match every call. Here it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolcrib.errors import DefinitionError, Violation
from toolcrib.schema import SchemaCheck
from toolcrib.spec.naming import did_you_mean, json_path, nearest

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
"""The keywords that apply to arguments, which are an object."""
_NEEDS = {"then": "if", "else": "if", "maxContains": "contains", "minContains": "contains"}
_WHY_NOT = {
    "format": "is not checked; use `pattern` instead",
    "$ref": "is not followed here; write the part in full, or use a YAML alias",
    "$defs": "has no effect, because `$ref` is not followed",
}


class Condition:
    """A compiled condition on the arguments of a call: JSON Schema 2020-12 without references."""

    __slots__ = ("_check", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raise `DefinitionError` for an unsuitable schema; its first violation has the place in it."""
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

    def is_met(self, arguments: Mapping[str, Any] | None) -> bool | None:
        """Return True if the arguments meet the condition; None if unknown, or not checkable."""
        if arguments is None:
            return None
        try:
            return self._check.is_valid(arguments)
        except Exception:  # they are not JSON; the caller must assume the worse
            return None

    def misfit(self, arguments: Mapping[str, Any]) -> str:
        """Return the reasons that the arguments do not meet the condition."""
        try:
            found = self._check.violations(arguments)
        except Exception as error:
            return f"the arguments cannot be checked: {error}"
        return "; ".join(f"{violation.path} {violation.message}" for violation in found[:5])


class AnyCondition:
    """Several conditions checked at once, to find quickly that none of them is met."""

    __slots__ = ("_is_valid",)

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._is_valid = None
        if len(conditions) > 1:
            schemas = [condition.schema for condition in conditions]
            try:
                self._is_valid = SchemaCheck({"anyOf": _together(schemas)}).is_valid
            except DefinitionError:  # the joined patterns are longer than an expression may be
                self._is_valid = SchemaCheck({"anyOf": schemas}).is_valid

    def may_be_met(self, arguments: Mapping[str, Any] | None) -> bool:
        """Return False if none of them is met; True if each must be checked."""
        if self._is_valid is None or arguments is None:
            return True
        try:
            return self._is_valid(arguments)
        except Exception:  # each condition reports this itself
            return True


def _together(schemas: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Join schemas that differ in one pattern only: one search for all patterns is much faster."""
    alike: dict[str, tuple[Mapping[str, Any], str, list[str]]] = {}
    joined: list[Mapping[str, Any]] = []
    for schema in schemas:
        arguments = schema.get("properties", {})
        name = next((name for name, rule in arguments.items() if _joins(rule)), None)
        if name is None:
            joined.append(schema)
        else:
            key = repr(_with_pattern(schema, name, ""))
            alike.setdefault(key, (schema, name, []))[2].append(f"(?:{arguments[name]['pattern']})")
    return joined + [_with_pattern(schema, name, "|".join(found)) for schema, name, found in alike.values()]


def _joins(rule: Any) -> bool:
    """Return True if a rule's pattern can be joined with others. Flags would affect the others."""
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
    """Yield the places where a schema contains something that would be ignored."""
    if isinstance(schema, bool) and at:
        return
    if not isinstance(schema, Mapping):
        yield at, "must be a JSON Schema, a mapping"
        return
    if not schema.keys() - _SILENT and not at:
        yield at, "has no condition on the arguments; omit it to match every call"
    for key, value in schema.items():
        here = (*at, key)
        if key not in (_KNOWN if at else _TOP):
            yield here, _unknown(key, at)
        elif key in _NEEDS and _NEEDS[key] not in schema:
            yield here, f"has no effect without `{_NEEDS[key]}`"
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
        fix = did_you_mean(key, _TOP, f"for an argument write `properties: {{{key}: …}}`")
        return f"`{key}` does not apply to arguments, which are an object; {fix}"
    close = nearest(key, _KNOWN)
    fix = f"; did you mean `{close}`?" if close else ""
    return f"`{key}` is not a JSON Schema keyword that is checked{fix}"
