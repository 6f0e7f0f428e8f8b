"""Make schemas smaller: remove annotations first, then the deepest definitions, and report the loss.

A smaller schema accepts everything that the whole one accepts. The tools of a document share definitions, so
each definition is made smaller only once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from toolcrib.schema.walk import INSIDE, LISTS, MAPS, changed
from toolcrib.spec import Output, Tool

Schema = dict[str, Any]

_SHORT = 80
_NOTES = ("examples", "title", "$comment", "deprecated")
_DEPTHS = (8, 6, 4, 3, 2, 1, 0)
_REF = len("#/$defs/")


def size_of(schema: Any) -> int:
    """Return the size of a schema in bytes of JSON."""
    import orjson

    return len(orjson.dumps(schema))


class Slimmer:
    """Makes the schemas of tools at most `limit` bytes large, as far as possible."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: dict[tuple[str, int], _Piece] = {}

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
        """Return the schema after the first step that makes it small enough, and the loss."""
        outer = {key: value for key, value in schema.items() if key != "$defs"}
        definitions: Schema = schema.get("$defs", {})
        if self._total("whole", outer, definitions) <= self._limit:
            return schema, ""
        for form, loss in (
            ("without notes", "examples and titles left out"),
            ("short", "examples, titles and long descriptions left out"),
        ):
            if self._total(form, outer, definitions) <= self._limit:
                return self._assembled(form, outer, definitions), loss
        smaller: Schema = {}
        for depth in _DEPTHS:
            kept = self._within(outer, definitions, depth)
            # An estimate that is often enough to skip a depth: opening the schema copies all of it.
            if depth and self._total("bare", outer, kept) > self._limit:
                continue
            smaller = self._opened(outer, kept)
            if size_of(smaller) <= self._limit:
                return smaller, f"descriptions and schemas more than {depth} references deep left out"
        return smaller, "descriptions and all definitions left out"

    def _piece(self, form: str, schema: Any) -> _Piece:
        """Return one definition in one form, cached because tools share it."""
        # By identity: comparing large definitions would take longer than making them smaller. An id can be
        # used again, so the source is compared too.
        key = (form, id(schema))
        piece = self._pieces.get(key)
        if piece is None or piece.source is not schema:
            piece = self._pieces[key] = _Piece(schema, _FORMS[form](schema))
        return piece

    def _total(self, form: str, outer: Schema, definitions: Schema) -> int:
        # Adding up known sizes is much cheaper than writing the whole again. The 4 are the quotes, the colon
        # and the comma of `"name":…,`.
        inner = sum(self._piece(form, rule).size + len(name) + 4 for name, rule in definitions.items())
        return size_of(_FORMS[form](outer)) + inner + (len('"$defs":{},') if definitions else 0)

    def _assembled(self, form: str, outer: Schema, definitions: Schema) -> Schema:
        out: Schema = _FORMS[form](outer)
        if definitions:
            out["$defs"] = {name: self._piece(form, rule).schema for name, rule in definitions.items()}
        return out

    def _within(self, outer: Schema, definitions: Schema, depth: int) -> Schema:
        """Return the definitions at most `depth` references deep."""
        kept: Schema = {}
        level = _referred(outer)
        for _ in range(depth):
            level = {name for name in level if name in definitions and name not in kept}
            if not level:
                break
            kept.update({name: definitions[name] for name in sorted(level)})
            level = {other for name in level for other in self._piece("bare", definitions[name]).refs}
        return kept

    def _opened(self, outer: Schema, kept: Schema) -> Schema:
        """Return the schema without references to other definitions: anything is accepted there."""
        opener = _Opener(kept)
        out: Schema = changed(_bare(outer), opener.open)
        definitions: Schema = {}
        for name, rule in kept.items():
            piece = self._piece("bare", rule)
            whole = piece.refs <= kept.keys()
            definitions[name] = piece.schema if whole else changed(piece.schema, opener.open)
        if definitions:
            out["$defs"] = definitions
        return out


class _Piece:
    """One definition in one form, its size in bytes, and what it refers to."""

    __slots__ = ("refs", "schema", "size", "source")

    def __init__(self, source: Any, schema: Any) -> None:
        self.source = source
        self.schema = schema
        self.size = size_of(schema)
        self.refs = _referred(schema)


class _Opener:
    """Removes references to other definitions, and the rules that would become stricter by that."""

    def __init__(self, kept: Schema) -> None:
        self._kept = kept
        self._loose: list[Schema] = []
        self._ids: set[int] = set()

    def open(self, node: Schema) -> Schema:
        """Change one schema after those inside it."""
        ref = node.get("$ref")
        loose = isinstance(ref, str) and ref[_REF:] not in self._kept
        if loose:
            del node["$ref"]
        inside = {word for word, value in node.items() if self._has_loose(word, value)}
        # A part that now accepts anything makes `not` refuse everything, and `oneOf` match twice.
        if "not" in inside:
            del node["not"]
        if "if" in inside:
            for word in ("if", "then", "else"):
                node.pop(word, None)
        if "oneOf" in inside:
            node["allOf"] = [*node.get("allOf", ()), {"anyOf": node.pop("oneOf")}]
        if "contains" in inside:
            node.pop("maxContains", None)
        if loose or inside:
            # A reference that is gone evaluates nothing, so these words would refuse what its target allowed.
            node.pop("unevaluatedProperties", None)
            node.pop("unevaluatedItems", None)
            self._loose.append(node)  # Kept alive, so that its id is not used again.
            self._ids.add(id(node))
        return node

    def _has_loose(self, word: str, value: Any) -> bool:
        if word in MAPS and isinstance(value, dict):
            return any(id(inner) in self._ids for inner in value.values())
        if word in LISTS and isinstance(value, list):
            return any(id(inner) in self._ids for inner in value)
        return word in INSIDE and id(value) in self._ids


def _referred(schema: Any) -> set[str]:
    """Return the definitions that a schema refers to directly."""
    found: set[str] = set()

    def note(node: Schema) -> Schema:
        ref = node.get("$ref")
        if isinstance(ref, str):
            found.add(ref[_REF:])
        return node

    changed(schema, note)
    return found


# `changed` hands over a copy of each schema, so these do not change what other tools share.
def _drop_notes(node: Schema) -> Schema:
    for word in _NOTES:
        node.pop(word, None)
    return node


def _shorten(node: Schema) -> Schema:
    _drop_notes(node)
    text = node.get("description")
    if isinstance(text, str) and len(text) > _SHORT:
        node["description"] = text[: _SHORT - 1].rstrip() + "…"
    return node


def _strip(node: Schema) -> Schema:
    _drop_notes(node).pop("description", None)
    return node


def _bare(schema: Any) -> Any:
    """Return a schema without descriptions, except those of the arguments, shortened."""
    if not isinstance(schema, dict):
        return schema
    out: Schema = changed(schema, _strip)
    for name, rule in schema.get("properties", {}).items():
        text = rule.get("description") if isinstance(rule, dict) else None
        if isinstance(text, str) and isinstance(out["properties"][name], dict):
            out["properties"][name]["description"] = text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
    return out


_FORMS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda schema: schema,
    "without notes": lambda schema: changed(schema, _drop_notes),
    "short": lambda schema: changed(schema, _shorten),
    "bare": lambda schema: changed(schema, _strip),
}
