"""Make schemas smaller: remove annotations first, then the deepest definitions, and report the loss.

A smaller schema accepts everything that the whole one accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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


def slimmed(tool: Tool, limit: int) -> tuple[Tool, list[str]]:
    """Return the tool with schemas of at most `limit` bytes, as far as possible, and the losses.

    An output schema that stays too large is left out.
    """
    lost: list[str] = []
    schema, loss = _fit(tool.input_schema, limit)
    if loss:
        lost.append(f"input schema: {loss}")
        tool = replace(tool, input_schema=schema)
    if tool.output.schema is not None:
        schema, loss = _fit(tool.output.schema, limit)
        if loss:
            kept = schema if size_of(schema) <= limit else None
            lost.append(f"output schema: {'left out' if kept is None else loss}")
            tool = replace(tool, output=Output(tool.output.format, kept, tool.output.on_violation))
    return tool, lost


def _fit(schema: Schema, limit: int) -> tuple[Schema, str]:
    """Return the first form that is small enough, or else the smallest, and what it has lost."""
    form = schema, ""
    if size_of(schema) > limit:
        for form in _forms(schema):
            if size_of(form[0]) <= limit:
                break
    return form


def _forms(schema: Schema) -> Iterator[tuple[Schema, str]]:
    yield changed(schema, _without_notes), "examples and titles left out"
    yield changed(schema, _shortened), "examples, titles and long descriptions left out"
    bare = changed(schema, _bare)
    # The descriptions of the arguments stay: without them a model could not call the tool.
    for name, rule in schema.get("properties", {}).items():
        if isinstance(rule, dict) and "description" in rule:
            bare["properties"][name]["description"] = _short(rule["description"])
    definitions = bare.pop("$defs", {})
    for depth in _DEPTHS:
        kept = _within(bare, definitions, depth)

        def opened(rule: Schema, kept: Schema = kept) -> Schema:
            if "$ref" in rule and rule["$ref"].removeprefix(_REF) not in kept:
                del rule["$ref"]
            return rule

        loss = f"descriptions and schemas more than {depth} references deep left out"
        yield (
            changed({**bare, "$defs": kept} if kept else bare, opened),
            loss if depth else "descriptions and all definitions left out",
        )


def _within(outer: Schema, definitions: Schema, depth: int) -> Schema:
    """Return the definitions at most `depth` references deep."""
    kept: Schema = {}
    level = [outer]
    for _ in range(depth):
        found = {
            rule["$ref"].removeprefix(_REF) for one in level for _, rule in schemas(one) if "$ref" in rule
        }
        fresh = sorted(name for name in found if name in definitions and name not in kept)
        kept |= {name: definitions[name] for name in fresh}
        level = [definitions[name] for name in fresh]
    return kept


# `changed` hands over a copy of each schema, so these do not change what other tools share.
def _without_notes(rule: Schema) -> Schema:
    return {word: part for word, part in rule.items() if word not in _NOTES}


def _shortened(rule: Schema) -> Schema:
    made = _without_notes(rule)
    if "description" in made:
        made["description"] = _short(made["description"])
    return made


def _bare(rule: Schema) -> Schema:
    """Return a schema that accepts more, never less, if its references are removed."""
    made = {word: part for word, part in _without_notes(rule).items() if word not in _NOT_LOOSER}
    made.pop("description", None)
    if "oneOf" in made:
        made["allOf"] = [*made.get("allOf", ()), {"anyOf": made.pop("oneOf")}]
    return made


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1].rstrip() + "…"
