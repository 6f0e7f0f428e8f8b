"""Make schemas smaller: remove annotations first, then the deepest definitions, and report the loss.

A smaller schema accepts everything that the whole one accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from toolcrib.schema.walk import changed, schemas
from toolcrib.spec import Output, Tool

Schema = dict[str, Any]

_SHORT = 80
_NOTES = ("examples", "title", "$comment", "deprecated")
_NOT_LOOSER = ("not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems")
"""Words that accept less where a schema inside them accepts more."""
_DEPTHS = (8, 6, 4, 3, 2, 1, 0)
_REF = "#/$defs/"


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
        form = schema, ""
        if size_of(schema) > self._limit:
            for form in self._forms(schema):
                if size_of(form[0]) <= self._limit:
                    break
        return form

    def _forms(self, schema: Schema) -> Iterator[tuple[Schema, str]]:
        yield self._changed(schema, _without_notes), "examples and titles left out"
        yield self._changed(schema, _shortened), "examples, titles and long descriptions left out"
        bare = self._changed(schema, _bare)
        # The descriptions of the arguments stay: without them a model could not call the tool.
        for name, rule in schema.get("properties", {}).items():
            if isinstance(rule, dict) and "description" in rule:
                bare["properties"][name]["description"] = _short(rule["description"])
        definitions = bare.pop("$defs", {})
        for depth in _DEPTHS:
            kept = self._within(bare, definitions, depth)
            whole = {**bare, "$defs": kept} if kept else bare
            # Opening copies all of it, and makes it little smaller.
            if depth and size_of(whole) > self._limit:
                continue

            def opened(rule: Schema, kept: Schema = kept) -> Schema:
                if "$ref" in rule and rule["$ref"].removeprefix(_REF) not in kept:
                    del rule["$ref"]
                return rule

            loss = f"descriptions and schemas more than {depth} references deep left out"
            yield changed(whole, opened), loss if depth else "descriptions and all definitions left out"

    def _within(self, outer: Schema, definitions: Schema, depth: int) -> Schema:
        """Return the definitions at most `depth` references deep."""
        kept: Schema = {}
        level = _references(outer)
        for _ in range(depth):
            fresh = {name: definitions[name] for name in level if name in definitions and name not in kept}
            kept |= fresh
            level = {name: None for rule in fresh.values() for name in self._once(rule, _references)}
        return kept

    def _changed(self, schema: Schema, change: Callable[[Any], Any]) -> Schema:
        made = {name: self._once(rule, change) for name, rule in schema.get("$defs", {}).items()}
        outer: Schema = change({word: part for word, part in schema.items() if word != "$defs"})
        return {**outer, "$defs": made} if made else outer

    def _once(self, rule: Any, make: Callable[[Any], Any]) -> Any:
        """Return what is made of a definition, which many tools share."""
        key = make, id(rule)
        if key not in self._made:
            # With the definition, so that its id is not used again.
            self._made[key] = rule, make(rule)
        return self._made[key][1]


def _references(schema: Any) -> dict[str, None]:
    """Return the names of the definitions that a schema refers to directly."""
    return {rule["$ref"].removeprefix(_REF): None for _, rule in schemas(schema) if "$ref" in rule}


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


_without_notes = partial(changed, change=_drop_notes)
_shortened = partial(changed, change=_shorten)
_bare = partial(changed, change=_loosen)
