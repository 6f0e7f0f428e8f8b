"""Validation against JSON Schema 2020-12: compiled once, every violation with its path, defaults applied."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeAlias

from toolcrib.errors import DefinitionError, InvalidInput, Violation
from toolcrib.schema.decode import as_text, decode_object
from toolcrib.schema.lenient import relaxed
from toolcrib.schema.walk import multiplies
from toolcrib.spec.naming import json_path, nearest, pointed

if TYPE_CHECKING:
    import jsonschema_rs


_LIMIT = 50
"""Violations that are listed; the rest is counted."""
_OFTEN = 5
"""The check from which on a tool has a `typed_check`: importing msgspec costs more than a few slow ones. The
command line checks the arguments of its one call up to four times."""


def check_schema(schema: Mapping[str, Any]) -> SchemaCheck:
    """Refuse a schema that is not valid 2020-12, does not describe an object, or points outside itself."""
    check = SchemaCheck(schema)
    if schema.get("type") != "object":
        raise DefinitionError(
            "an input schema must have type: object",
            violations=[Violation("$.type", 'must be "object"')],
        )
    return check


class SchemaCheck:
    """A compiled schema. `is_valid(value)` is the fast answer, `violations(value)` the full one."""

    __slots__ = ("_validator", "is_valid", "schema")

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        import jsonschema_rs

        self.schema: Mapping[str, Any] = {} if isinstance(schema, bool) else schema
        try:
            # Offline: a `$ref` to a URL must not make this machine send requests. `RegexOptions` is the
            # engine without backtracking: no pattern can block the process.
            self._validator = jsonschema_rs.Draft202012Validator(
                schema if isinstance(schema, bool) else dict(schema),
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except (ValueError, TypeError) as error:
            where = json_path(getattr(error, "instance_path", ()))
            reason = _fault(str(getattr(error, "message", error)).splitlines()[0])
            raise DefinitionError(
                f"not a valid JSON Schema 2020-12: {reason}", violations=[Violation(where, reason)]
            ) from None
        if multiplies(self.schema):
            raise DefinitionError(
                "not usable: its references multiply, so that checking a value would not end"
            )
        self.is_valid: Callable[[Any], bool] = self._validator.is_valid

    def violations(self, value: Any) -> list[Violation]:
        """List every place where the value is wrong, in the order of the schema."""
        if multiplies(self.schema, value):
            return [Violation("$", "does not match its schema, whose references multiply the faults")]
        found: list[Violation] = []
        for error in self._validator.iter_errors(value):
            found.extend(_explain(error, self.schema))
        if len(found) > _LIMIT:
            more = len(found) - _LIMIT
            found = [*found[:_LIMIT], Violation("$", f"and {more} more violations")]
        return found


def _fault(message: str) -> str:
    """Return the message of the library about a schema, without the library's own terms."""
    pattern = message.removesuffix(' is not a "regex"')
    if pattern != message:
        return f"{_short(pattern)} is not a regex, or has look-ahead, look-behind or back-references"
    resource = re.match("Resource '(.*?)' is not present in a registry", message)
    if resource is None:
        return _short(message)
    return f"{_short(resource[1])!r} is another document, which is not fetched"


def _explain(error: jsonschema_rs.ValidationError, schema: Mapping[str, Any]) -> list[Violation]:
    at = list(error.instance_path)
    facts = error.kind.as_dict()
    if error.kind.name == "required":
        return [Violation(json_path([*at, facts["property"]]), "is required")]
    if error.kind.name in ("additionalProperties", "unevaluatedProperties"):
        known = _properties_at(schema, list(error.schema_path)[:-1])
        return [Violation(json_path([*at, name]), _unknown(name, known)) for name in facts["unexpected"]]
    if error.kind.name == "enum":
        allowed = ", ".join(_text(option) for option in facts["options"])
        return [Violation(json_path(at), f"{_text(error.instance)} is not one of: {allowed}")]
    if error.kind.name in ("anyOf", "oneOf") and all(facts["context"]):
        found = _explain_choice(at, facts["context"], schema)
        if found:
            return found
    return [Violation(json_path(at), _short(error.message))]


_Branch: TypeAlias = "list[jsonschema_rs.ValidationError]"
"""The faults of a value by one alternative."""


def _explain_choice(
    at: list[str | int], branches: list[_Branch], schema: Mapping[str, Any]
) -> list[Violation]:
    """Return the faults of the alternative that is meant: by its type or tag, or with the fewest."""

    def faults(branch: _Branch) -> list[Violation]:
        return [found for error in branch for found in _explain(error, schema)]

    # An optional value: report its own fault, not that null is possible.
    branches = [branch for branch in branches if not _wants_null(branch)]
    branches = [branch for branch in branches if not any(_is_type(error, at) for error in branch)] or branches
    tags = [next((error for error in branch if _is_tag(error, at)), None) for branch in branches]
    wrong = [tag for tag in tags if tag is not None]
    if len(branches) == 1:
        return faults(branches[0])
    if len(wrong) == len(branches) - 1:
        # The tag is a step of the path, as pydantic writes it: `$.pet.cat.lives`.
        begin = json_path(at)
        tagged = begin + json_path([str(wrong[0].instance)])[1:]
        return [
            Violation(tagged + found.path[len(begin) :], found.message)
            for found in faults(branches[tags.index(None)])
        ]
    paths = {json_path(tag.instance_path) for tag in wrong}
    if len(wrong) == len(branches) and len(paths) == 1:
        options = [repr(option) for tag in wrong for option in _allowed(tag)]
        listed = " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))
        return [Violation(paths.pop(), _short(f"tag {wrong[0].instance!r}, expected {listed}"))]
    first, *others = sorted((faults(branch) for branch in branches), key=len) or [[]]
    if not others or len(first) < len(others[0]):
        return first
    common = [found for found in first if all(found in other for other in others)]
    either = "; or ".join(f"{found[0].path} {found[0].message}" for found in (first, *others))
    return common or [Violation(json_path(at), _short(f"matches no alternative: {either}"))]


def _is_type(error: jsonschema_rs.ValidationError, at: list[str | int]) -> bool:
    return error.kind.name == "type" and list(error.instance_path) == at


def _is_tag(error: jsonschema_rs.ValidationError, at: list[str | int]) -> bool:
    """Return True if a property of the value has another constant than this alternative wants."""
    return error.kind.name in ("const", "enum") and list(error.instance_path)[:-1] == at


def _allowed(tag: jsonschema_rs.ValidationError) -> list[Any]:
    facts = tag.kind.as_dict()
    return list(facts["options"]) if "options" in facts else [facts["expected_value"]]


def _wants_null(branch: _Branch) -> bool:
    return len(branch) == 1 and branch[0].kind.name == "type" and "null" in str(branch[0].kind.as_dict())


def _unknown(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    if close is not None:
        return f"is not known; did you mean {close}?"
    return f"is not known; known: {', '.join(known)}" if known else "is not known; nothing is expected here"


def _properties_at(schema: Any, path: list[str | int]) -> list[str]:
    try:
        return list(reduce(getitem, path, schema)["properties"])
    except (KeyError, IndexError, TypeError):
        return []


def _text(value: Any) -> str:
    return _short(value if isinstance(value, str) else repr(value))


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "…"


class ArgumentCheck:
    """The check of one tool's arguments, which also fills in the defaults of its schema.

    `lenient` also reads texts as what the schema wants. `settled` is the part of the schema whose defaults
    are filled in, if not all are.
    """

    __slots__ = ("_lenient", "_schema", "_settle", "_settled", "_times", "check")

    def __init__(
        self, schema: Mapping[str, Any], *, lenient: bool = False, settled: Mapping[str, Any] | None = None
    ) -> None:
        self._schema = check_schema(schema)
        self._lenient = lenient
        self._settled = schema if settled is None else settled
        self._settle = settler(self._settled)
        self._times = 0
        self.check: Callable[[Mapping[str, Any] | bytes | str], dict[str, Any]] = self._check
        """Returns the arguments as a new dict with defaults filled in: JSON text is parsed, a mapping is
        copied. Raises `InvalidInput` with every violation.

        Read this attribute for each call: a tool that is called often gets a faster function.
        """

    def _check(self, arguments: Mapping[str, Any] | bytes | str) -> dict[str, Any]:
        # Not at the first call: most tools of a process are called never or once.
        self._times += 1
        if self._times == _OFTEN:
            schema = self._schema.schema
            settle = settler(self._settled, integers=False)
            from toolcrib.schema.typed import typed_check

            self.check = typed_check(schema, self._check, settle) or self._check
        values = self._fitting(decode_object(arguments if isinstance(arguments, str) else as_text(arguments)))
        try:
            return values if self._settle is None else self._settle(values)
        except RecursionError:
            raise refuse([Violation("$", "is nested too deeply")]) from None

    def _fitting(self, values: dict[str, Any]) -> dict[str, Any]:
        if self._schema.is_valid(values):
            return values
        values = relaxed(values, self._schema.schema, texts=self._lenient)
        if self._schema.is_valid(values):
            return values
        raise refuse(self._schema.violations(values))


def refuse(violations: list[Violation]) -> InvalidInput:
    """Return the error that lists these violations."""
    listed = "; ".join(f"{v.path} {v.message}" for v in violations[:10])
    return InvalidInput(listed, violations=violations, hint="Correct these arguments and call again.")


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
        # With several alternatives it is not known which one a value matched, so its defaults stay out.
        branches = [branch for branch in rule.get("anyOf", ()) if branch != {"type": "null"}]
        if len(branches) == 1:
            return self.make(branches[0])
        kind = rule.get("type")
        # Where the schema also allows numbers, 2.0 may be meant as one and stays.
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
            # Copied if a call could change it for the next one.
            for name, default, mutable in defaults:
                if name not in value:
                    value[name] = copy.deepcopy(default) if mutable else default
            return value

        return settle_object
