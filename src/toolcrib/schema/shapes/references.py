"""Local references of a schema, replaced by what they refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolcrib.errors import DefinitionError
from toolcrib.schema.walk import rooted, schemas
from toolcrib.spec.naming import pointed

_DEEPEST = 5
"""Levels of a recursive reference that are written out."""
_MOST_PARTS = 20_000
"""Schemas in a schema with its references written out."""


def written_out(schema: Mapping[str, Any], *, recursion: bool = False) -> dict[str, Any]:
    """Return a schema whose local references are replaced by their targets; recursion ends in any value.

    With `recursion`, references that lead back to themselves stay, and their targets are in `$defs`. Raises
    DefinitionError for a schema that is too large then: references that are named twice multiply.
    """
    kept = _recursive(schema) if recursion else {}
    writer = _Writer(schema, kept)
    made: dict[str, Any] = writer.written(rooted(schema) if kept else schema, ())
    if kept:
        made["$defs"] = {
            name: writer.written(pointed(schema, target), (target,)) for target, name in kept.items()
        }
    return made


class _Writer:
    """Writes the parts of one schema without references, but for those that are `kept`: their new names."""

    def __init__(self, schema: Mapping[str, Any], kept: Mapping[str, str]) -> None:
        self._schema, self._kept, self._left = schema, kept, _MOST_PARTS

    def written(self, rule: Any, inside: tuple[str, ...], *, whole: bool = False) -> Any:
        """Return a part of the schema; `inside` are the references that led to it.

        With `whole` it is not a reference, unless it is in itself.
        """
        if isinstance(rule, list):
            return [self.written(part, inside, whole=whole) for part in rule]
        if not isinstance(rule, Mapping):
            return rule
        self._left -= 1
        if self._left < 0:
            raise DefinitionError(f"with its references written out it has more than {_MOST_PARTS:,} parts")
        target = rule.get("$ref")
        if isinstance(target, str):
            rest = self.written({word: part for word, part in rule.items() if word != "$ref"}, inside)
            return {**self._target(target, inside, whole=whole), **rest}
        made = {}
        for word, part in rule.items():
            if word in ("properties", "patternProperties", "dependentSchemas") and isinstance(part, Mapping):
                made[word] = {name: self.written(inner, inside) for name, inner in part.items()}
            elif word not in ("$defs", "definitions"):
                # Values are not schemas: a `$ref` in them is plain data.
                value = word in ("enum", "const", "default", "examples")
                # Several parts of `allOf` become one schema, of which a reference cannot be a part.
                whole = word == "allOf" and (len(part) > 1 or "properties" in rule)
                made[word] = part if value else self.written(part, inside, whole=whole)
        return made

    def _target(self, target: str, inside: tuple[str, ...], *, whole: bool) -> dict[str, Any]:
        if target in self._kept and (not whole or target in inside):
            return {"$ref": f"#/$defs/{self._kept[target]}"}
        # A type with several references to itself would multiply at each level, so recursion ends early.
        if (inside.count(target) >= 1 and len(inside) >= _DEEPEST) or inside.count(target) >= 2:
            return {"description": "the same again"}
        found = pointed(self._schema, target)
        return self.written(found, (*inside, target)) if isinstance(found, Mapping) else {}


def _recursive(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the references that lead back to themselves, each with a name for its target."""

    def reached(part: Any) -> set[str]:
        found: set[str] = set()
        waiting = [part]
        while waiting:
            for _, rule in schemas(waiting.pop()):
                target = rule.get("$ref")
                if isinstance(target, str) and target not in found:
                    found.add(target)
                    waiting.append(pointed(schema, target))
        return found

    names: dict[str, str] = {}
    for target in sorted(reached(schema)):
        if target in reached(pointed(schema, target)):
            name = re.sub(r"\W+", "_", target.rpartition("/")[2], flags=re.ASCII) or "_"
            names[target] = name if name not in names.values() else f"{name}_{len(names)}"
    return names
