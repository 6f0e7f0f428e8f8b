"""Make schemas smaller: remove annotations first, then the deepest definitions, and report the loss.

A smaller schema accepts everything that the whole one accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from toolcrib.manifest.openapi.schemas import REF, references
from toolcrib.schema.walk import changed
from toolcrib.spec import Output, Tool

Schema = dict[str, Any]

_SHORT = 80
_NOTES = ("examples", "title", "$comment", "deprecated")
_NOT_LOOSER = ("not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems")
"""Words that accept less where a schema inside them accepts more."""
_DEPTHS = (1, 2, 3, 4, 6, 8)


def size_of(schema: Any) -> int:
    """Return the size of a schema in bytes of JSON."""
    import orjson

    return len(orjson.dumps(schema))


class Slimmer:
    """Makes the schemas of tools at most `limit` bytes large, as far as possible."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._made: dict[tuple[Any, int], tuple[Any, Any]] = {}

    def slim(self, tool: Tool) -> tuple[Tool, list[str]]:
        """Return the smaller tool, and the losses. An output schema that stays too large is left out."""
        lost: list[str] = []
        schema, loss = self._fit(tool.input_schema)
        if loss:
            lost.append(f"input schema: {loss}")
            tool = replace(tool, input_schema=schema)
        if tool.output.schema is not None:
            schema, loss = self._fit(tool.output.schema)
            if loss:
                kept = schema if size_of(schema) <= self._limit else None
                lost.append(f"output schema: {'left out' if kept is None else loss}")
                tool = replace(tool, output=Output(tool.output.format, kept, tool.output.on_violation))
        return tool, lost

    def _fit(self, schema: Schema) -> tuple[Schema, str]:
        """Return the first form that is small enough, or else the smallest, and what it has lost."""
        for change, loss in _FORMS:
            form = self._small(schema, change)
            if form is not None:
                return form, loss
        definitions = schema.get("$defs", {})
        bare = _bare({word: part for word, part in schema.items() if word != "$defs"})
        # The descriptions of the arguments stay: without them a model could not call the tool.
        for name, rule in schema.get("properties", {}).items():
            if isinstance(rule, dict) and "description" in rule:
                bare["properties"][name]["description"] = _short(rule["description"])
        loss = "descriptions and all definitions left out"
        kept: Schema = {}
        smallest = bare
        level = references(bare)
        for depth in range(1, _DEPTHS[-1] + 1):
            names = [name for name in level if name in definitions and name not in kept]
            fresh = {name: self._once(definitions[name], _bare) for name in names}
            kept |= fresh
            whole = self._small({**bare, "$defs": kept}, _same)
            if whole is None:
                break
            if depth in _DEPTHS:
                smallest = whole
                loss = f"descriptions and schemas more than {depth} references deep left out"
            level = {name: None for rule in fresh.values() for name in self._once(rule, references)}

        inside = smallest.get("$defs", {})

        def opened(rule: Schema) -> Schema:
            if "$ref" in rule and rule["$ref"].removeprefix(REF) not in inside:
                del rule["$ref"]
            return rule

        return changed(smallest, opened), loss

    def _small(self, schema: Schema, change: Callable[[Any], Any]) -> Schema | None:
        """Return a schema with each part changed, or None as soon as it is larger than the limit."""
        definitions = schema.get("$defs")
        form: Schema = change({word: part for word, part in schema.items() if word != "$defs"})
        if not definitions:
            return form if size_of(form) <= self._limit else None
        made = form["$defs"] = {}
        # A definition has two quotes, a colon and a comma, but the last one no comma.
        left = self._limit - size_of(form) + 1
        for name, rule in definitions.items():
            made[name] = self._once(rule, change)
            left -= self._once(made[name], size_of) + len(name) + 4
            if left < 0:
                return None
        return form

    def _once(self, rule: Any, make: Callable[[Any], Any]) -> Any:
        """Return what is made of a definition, which many tools share."""
        key = make, id(rule)
        if key not in self._made:
            # With the definition, so that its id is not used again.
            self._made[key] = rule, make(rule)
        return self._made[key][1]


# `changed` hands over a copy of each schema, so these do not change what other tools share.
def _drop_notes(rule: Schema) -> Schema:
    for word in _NOTES:
        rule.pop(word, None)
    return rule


def _shorten(rule: Schema) -> Schema:
    if "description" in _drop_notes(rule):
        rule["description"] = _short(rule["description"])
    return rule


def _loosen(rule: Schema) -> Schema:
    """Drop the descriptions, and whatever would accept less once references are removed."""
    for word in (*_NOTES, *_NOT_LOOSER, "description"):
        rule.pop(word, None)
    if "oneOf" in rule:
        rule["allOf"] = [*rule.get("allOf", ()), {"anyOf": rule.pop("oneOf")}]
    return rule


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1].rstrip() + "…"


def _same(schema: Any) -> Any:
    return schema


_bare = partial(changed, change=_loosen)
_FORMS: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (_same, ""),
    (partial(changed, change=_drop_notes), "examples and titles left out"),
    (partial(changed, change=_shorten), "examples, titles and long descriptions left out"),
)
