"""Translate one schema of a document, in any dialect, to JSON Schema 2020-12.

References become `#/$defs/NAME`. `Schemas` keeps those definitions, and records everything that had to be
dropped. A schema never becomes stricter, except that a request has no `readOnly` properties.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from toolcrib.errors import DefinitionError
from toolcrib.manifest.openapi.document import Node, RefProblem, clean
from toolcrib.schema.walk import INSIDE, LISTS, MEANT_TYPES, TYPES

Direction = Literal["request", "response"]
Schema = dict[str, Any]

_MAX_DEPTH = 40
"""Levels of nested schemas without a reference; a manifest has at most 128 levels."""
_LONGEST_EXAMPLE = 200
_MAX_EXAMPLES = 3
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_IN_PLACE = frozenset({"not", "if", "then", "else"})
_NOTES = ("title", "description", "deprecated", "examples")
_BESIDE_REF = frozenset({"description", "title", "deprecated", "summary"})
_BOTH_WAYS = frozenset({"exclusiveMinimum", "exclusiveMaximum"})


class Translator:
    """Translates the schemas of one document for one direction.

    `refer` returns a reference as it is written in the result. Its last argument is the keyword if the target
    checks the same value as the schema that refers to it. `follow` returns the final target of a node's
    `$ref`. `record` notes what of the document is not in the result.
    """

    def __init__(
        self,
        refer: Callable[[str, Node, str | None], Schema],
        follow: Callable[[Node], Node],
        record: Callable[[Node, str], None],
        direction: Direction,
        *,
        legacy: bool,
    ) -> None:
        self._refer, self._follow, self._record = refer, follow, record
        self._request = direction == "request"
        self._legacy = legacy
        self._lost = 0
        """The number of things dropped so far."""
        self._place: str | None = None
        """The keyword by which the current schema checks the same value as its definition, if it does."""

    def schema(self, node: Node, depth: int = 0, in_place: str | None = None) -> Schema | bool:
        """Return the translated schema of a node."""
        value = node.value
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            if value is not None:
                self._report_loss(node, "a schema that is not an object")
            return {}
        if depth > _MAX_DEPTH:
            self._report_loss(node, f"a schema nested more than {_MAX_DEPTH} deep")
            return {}
        ref = value.get("$ref", value.get("$dynamicRef", value.get("$recursiveRef")))
        # Restored below: the handlers translate schemas inside this one.
        outer, self._place = self._place, in_place
        out: Schema = {}
        if isinstance(ref, str):
            out = self._reference(node, ref, depth, in_place)
        else:
            for key in value:
                handler = _HANDLERS.get(key)
                if handler is not None:
                    handler(self, out, node, key, depth)
            self._combine(out, node)
        self._place = outer
        return out

    def _reference(self, node: Node, ref: str, depth: int, in_place: str | None) -> Schema:
        value = node.value
        # Before 3.1 everything beside a `$ref` is ignored, but documents describe references all the same.
        beside = value.keys() & _BESIDE_REF if self._legacy else value.keys() - {"$ref"}
        nullable = self._legacy and _nullable(value)
        out = self._refer(ref, node, "anyOf" if in_place and nullable else in_place)
        if len(value) == 1:
            return out
        if nullable:
            out = {"anyOf": [out, {"type": "null"}]}
        extra: Schema = {}
        for key in value:
            if key in beside and (handler := _HANDLERS.get(key)) is not None:
                handler(self, extra, node, key, depth)
        if not extra:
            return out
        self._combine(extra, node)
        if in_place is None and not extra.keys() & out.keys():
            return {**out, **extra}
        # The reference stays an object of its own: a circle in place is cut there.
        return {**extra, "allOf": [*extra.get("allOf", ()), out]}

    def _combine(self, out: Schema, node: Node) -> None:
        """Apply the rules that depend on several keywords."""
        value = node.value
        if self._request and "default" in out:
            _describe_default(out)
        required = out.get("required")
        if required and "properties" in value:
            # In `required`, a readOnly property counts for responses only, a writeOnly one for requests only
            # (OpenAPI 3.0, Schema Object).
            gone = self._withheld(node, required)
            if gone:
                out["required"] = [name for name in required if name not in gone]
                if not out["required"]:
                    del out["required"]
        if "discriminator" in value and isinstance(value["discriminator"], dict):
            self._discriminator(out, node)
        if self._legacy:
            _exclusive(out)
            if _nullable(value):
                _allow_null(out)
        if "type" in out and "enum" in out:
            _enum_of_type(out)

    def _withheld(self, node: Node, required: list[str]) -> set[str]:
        """Return the required properties that are not sent in this direction: readOnly or writeOnly ones."""
        named = node.at("properties")
        word = "readOnly" if self._request else "writeOnly"
        return {name for name in required if name in named.object and self._has(named.at(name), word)}

    def _has(self, node: Node, word: str) -> bool:
        value = node.value
        if not isinstance(value, dict):
            return False
        if word in value:
            return flag(value[word]) is True
        if "$ref" not in value:
            return False
        try:
            target = self._follow(node).value
        except RefProblem:
            return False
        return isinstance(target, dict) and flag(target.get(word)) is True

    def _report_loss(self, node: Node, what: str) -> None:
        self._lost += 1
        self._record(node, what)

    # Keywords

    def _any(self, out: Schema, node: Node, key: str, _: int) -> None:
        out[key] = node.value[key]

    def _plain(self, out: Schema, node: Node, key: str, _: int) -> None:
        text = clean(node.value[key])
        if text:
            out[key] = text

    def _flag(self, out: Schema, node: Node, key: str, _: int) -> None:
        if flag(node.value[key]) is True:
            out[key] = True

    def _checked(self, out: Schema, node: Node, key: str, _: int) -> None:
        read, wrong = _CHECKED[key]
        found = read(node.value[key])
        if found is None:
            self._report_loss(node.at(key), f"`{key}` that is {wrong}")
        else:
            out[key] = found

    def _exclusive(self, out: Schema, node: Node, key: str, depth: int) -> None:
        if not isinstance(node.value[key], bool):
            self._checked(out, node, key, depth)
        elif self._legacy and node.value[key]:
            out[key] = True  # Resolved in `_combine`, together with its bound.

    def _type(self, out: Schema, node: Node, key: str, _: int) -> None:
        value = node.value[key]
        if value.__class__ is str and value in TYPES:
            out[key] = value
            return
        # A type of 2.0 only (Parameter Object): the value is bytes.
        if value == "file":
            out["format"] = "binary"
        found = types(value)
        if found is None:
            if value not in ("any", None, "", []):
                self._report_loss(node.at(key), f"the type {str(value)[:40]!r}, which does not exist")
            return
        out[key] = found[0] if len(found) == 1 else found

    def _required(self, out: Schema, node: Node, key: str, _: int) -> None:
        value = node.value[key]
        if isinstance(value, list):
            names = list(dict.fromkeys(name for name in value if isinstance(name, str)))
            if names:
                out[key] = names
        elif not isinstance(value, bool):
            # A boolean is not a loss: it is the `required` of draft 3, which later drafts do not have.
            self._report_loss(node.at(key), "`required` that is not a list")

    def _pattern(self, out: Schema, node: Node, key: str, _: int) -> None:
        value = node.value[key]
        if isinstance(value, str) and is_linear_pattern(value):
            out[key] = value
        else:
            self._report_loss(node.at(key), f"a pattern that cannot be matched in linear time: {value!r:.80}")

    def _examples(self, out: Schema, node: Node, key: str, _: int) -> None:
        value = node.value[key]
        found = value if key == "examples" else [value]
        if isinstance(found, list) and "examples" not in out:
            short = [item for item in found[:_MAX_EXAMPLES] if len(str(item)) <= _LONGEST_EXAMPLE]
            if short:
                out["examples"] = short

    def _inside(self, out: Schema, node: Node, key: str, depth: int) -> None:
        below = node.at(key)
        if isinstance(below.value, list) and key == "items":
            self._tuple(out, node, depth)
        elif isinstance(below.value, str) and flag(below.value) is not None:
            out[key] = flag(below.value)
        elif below.value is not None:
            out[key] = self.schema(below, depth + 1)

    def _tuple(self, out: Schema, node: Node, depth: int) -> None:
        """Translate a list of `items`, as drafts before 2020-12 write it."""
        places = [self.schema(item, depth + 1) for item in node.at("items").items()]
        if places:
            out["prefixItems"] = places
        if "additionalItems" in node.value:
            out["items"] = self.schema(node.at("additionalItems"), depth + 1)

    def _in_place(self, out: Schema, node: Node, key: str, depth: int) -> None:
        before = self._lost
        schema = self.schema(node.at(key), depth + 1, self._place and key)
        # A schema that lost a rule accepts more, so its `not` would accept less.
        if key != "not" or self._lost == before:
            out[key] = schema

    def _list(self, out: Schema, node: Node, key: str, depth: int) -> None:
        below = node.at(key)
        members = list(below.items()) if isinstance(below.value, list) else [below]
        word = self._place and key if key != "prefixItems" else None
        before = self._lost
        found = [self.schema(member, depth + 1, word) for member in members if member.value is not None]
        if found and key == "oneOf" and self._lost != before:
            # Two alternatives that lost a rule may both match.
            out["allOf"] = [*out.get("allOf", ()), {"anyOf": found}]
        elif found:
            out[key] = [*out.get(key, ()), *found] if key == "allOf" else found

    def _map(self, out: Schema, node: Node, key: str, depth: int) -> None:
        below = node.at(key)
        if not isinstance(below.value, dict):
            if below.value:
                self._report_loss(below, f"`{key}` that is not an object")
            return
        found: Schema = {}
        word = self._place and key if key == "dependentSchemas" else None
        for name, inner in below.entries():
            if key == "patternProperties" and not is_linear_pattern(name):
                self._report_loss(inner, f"a pattern that cannot be matched in linear time: {name!r:.80}")
            elif not (self._request and key == "properties" and self._has(inner, "readOnly")):
                found[name] = self.schema(inner, depth + 1, word)
        if found or key == "properties":
            out[key] = found

    def _dependent(self, out: Schema, node: Node, key: str, depth: int) -> None:
        """Translate `dependencies` of drafts before 2019-09, and `dependentRequired`."""
        for name, inner in node.at(key).entries():
            if isinstance(inner.value, list):
                names = list(dict.fromkeys(item for item in inner.value if isinstance(item, str)))
                out.setdefault("dependentRequired", {})[name] = names
            elif key == "dependencies" and isinstance(inner.value, dict | bool):
                schemas = out.setdefault("dependentSchemas", {})
                schemas[name] = self.schema(inner, depth + 1, self._place and "dependentSchemas")

    def _discriminator(self, out: Schema, node: Node) -> None:
        """Distinguish alternatives by the value of one property.

        Mapped alternatives get an `enum` of their values. The mapping may be incomplete, so `oneOf` becomes
        `anyOf`: a value that matches two similar alternatives is not refused.
        """
        word = next((word for word in ("oneOf", "anyOf") if word in out), None)
        name = node.value["discriminator"].get("propertyName")
        if word is None or not isinstance(name, str):
            return
        mapping = node.at("discriminator", "mapping").object
        members = [member for member in node.at(word).items() if member.value is not None]
        named: dict[str, list[str]] = {}
        for value, ref in mapping.items():
            if isinstance(ref, str):
                # A value of the mapping is a reference or the bare name of a schema (Discriminator Object).
                named.setdefault(ref if "/" in ref else f"#/components/schemas/{ref}", []).append(value)
        found = out.pop(word)
        for at, member in enumerate(members[: len(found)]):
            ref = member.value.get("$ref") if isinstance(member.value, dict) else None
            values = named.get(ref) if isinstance(ref, str) else None
            if values and not self._fixes(member, name):
                rule = {"properties": {name: {"enum": values}}, "required": [name]}
                found[at] = {"allOf": [found[at]], **rule}
        if "anyOf" in out:
            out["allOf"] = [*out.get("allOf", ()), {"anyOf": found}]
        else:
            out["anyOf"] = found

    def _fixes(self, member: Node, name: str) -> bool:
        """Return True if an alternative fixes the value of the property itself."""
        try:
            rule = self._follow(self._follow(member).at("properties", name))
        except RefProblem:
            return False
        return bool(rule.object.keys() & {"const", "enum"})


def _nullable(value: dict[str, Any]) -> bool:
    if "nullable" not in value and "x-nullable" not in value:
        return False
    return flag(value.get("nullable", value.get("x-nullable"))) is True


def _exclusive(out: Schema) -> None:
    # Up to 3.0 these words are booleans that change the bound beside them (JSON Schema draft 4).
    for bound, word in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if out.get(word) is True:
            del out[word]
            if bound in out:
                out[word] = out.pop(bound)


def _allow_null(out: Schema) -> None:
    """Make the schema accept null too."""
    kinds = out.get("type")
    if kinds is not None and not any(word in out for word in ("allOf", "anyOf", "oneOf", "not", "const")):
        named = kinds if isinstance(kinds, list) else [kinds]
        out["type"] = named if "null" in named else [*named, "null"]
        # Otherwise the `enum` would refuse the null that `nullable` allows.
        if "enum" in out and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
        return
    notes: Schema = {key: out.pop(key) for key in _NOTES if key in out}
    if out:
        inner = dict(out)
        out.clear()
        out["anyOf"] = [inner, {"type": "null"}]
    out.update(notes)


def _enum_of_type(out: Schema) -> None:
    """Turn options of a text that YAML has read as numbers back into text."""
    if out["type"] == "string" and any(isinstance(item, int | float) for item in out["enum"]):
        # An object or a list is not text either, and none of the options that it can have.
        scalars = (item for item in out["enum"] if not isinstance(item, dict | list))
        texts = (str(item).lower() if isinstance(item, int | float) else item for item in scalars)
        out["enum"] = list(dict.fromkeys(texts))


def _describe_default(out: Schema) -> None:
    """Move a default to the description: if sent, it could overwrite values that nobody meant to change."""
    value = out.pop("default")
    if value is None or isinstance(value, dict | list) or len(str(value)) > _LONGEST_EXAMPLE or value == "":
        return
    shown = str(value).lower() if isinstance(value, bool) else clean(str(value))
    text = out.get("description", "")
    if shown.lower() not in text.lower() or "default" not in text.lower():
        out["description"] = f"{text.rstrip('.')}{'. ' if text else ''}Default: {shown}."


_PLAIN = frozenset({"title", "description", "format", "contentEncoding", "contentMediaType", "$comment"})
"""Keywords with a text as value."""
_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"minContains", "maxContains"}
)
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})

_LARGEST = 2**63 - 1
_LONGEST_PATTERN = 10_000


def types(value: Any) -> list[str] | None:
    """Return the types that `type` names, with common misspellings corrected; None if it names none."""
    names = value if isinstance(value, list) else [value]
    found: list[str] = []
    for name in names:
        lower = name.lower() if isinstance(name, str) else "null" if name is None else ""
        known = lower if lower in TYPES else MEANT_TYPES.get(lower)
        if known is None:
            return None
        if known not in found:
            found.append(known)
    return found or None


def count(value: Any) -> int | None:
    """Return a length; None for any other value, and for a length that nothing reaches."""
    whole = number(value)
    return int(whole) if whole is not None and 0 <= whole <= _LARGEST and whole == int(whole) else None


def number(value: Any) -> int | float | None:
    """Return a number, also one written as text; None for any other value."""
    if isinstance(value, str):
        try:
            value = float(value) if not value.lstrip("-").isdecimal() else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
        return None
    # A larger integer becomes a float, because the YAML reader refuses integers beyond 64 bits.
    return value if abs(value) <= _LARGEST or isinstance(value, float) else float(value)


def flag(value: Any) -> bool | None:
    """Return a boolean, also one written as text; None for any other value."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


@lru_cache(maxsize=4096)
def is_linear_pattern(pattern: str) -> bool:
    """Return True if the linear-time regex engine supports the pattern."""
    from toolcrib.schema import SchemaCheck

    # A pattern that needs backtracking is dropped: one short argument could block the process.
    if len(pattern) > _LONGEST_PATTERN:
        return False
    try:
        SchemaCheck({"pattern": pattern})
    except DefinitionError:
        return False
    return True


def _above_zero(value: Any) -> int | float | None:
    found = number(value)
    return found if found is not None and found > 0 else None


_CHECKED: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(_COUNTS, (count, "not a length")),
    **dict.fromkeys(_NUMBERS, (number, "not a number")),
    "multipleOf": (_above_zero, "not a number"),
    "enum": (lambda value: value if isinstance(value, list) and value else None, "not a list, or is empty"),
}
"""Keywords whose value may be wrong: the function that reads it, and the fault of a value that it refuses."""
_Handler = Callable[[Translator, Schema, Node, str, int], None]

# ruff: noqa: SLF001 - the table is the class's own, written after it.
_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys(_PLAIN, Translator._plain),
    **dict.fromkeys(_CHECKED, Translator._checked),
    **dict.fromkeys(_BOTH_WAYS, Translator._exclusive),
    **dict.fromkeys(LISTS, Translator._list),
    **dict.fromkeys(_MAPS, Translator._map),
    **dict.fromkeys(INSIDE - {"contentSchema"}, Translator._inside),
    **dict.fromkeys(_IN_PLACE, Translator._in_place),
    **dict.fromkeys(("uniqueItems", "deprecated"), Translator._flag),
    **dict.fromkeys(("const", "default"), Translator._any),
    **dict.fromkeys(("example", "examples"), Translator._examples),
    **dict.fromkeys(("dependencies", "dependentRequired"), Translator._dependent),
    "pattern": Translator._pattern,
    "required": Translator._required,
    "type": Translator._type,
}
