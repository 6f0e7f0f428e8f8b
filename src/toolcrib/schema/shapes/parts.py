"""Changes of an input schema that several hosts and providers need. Checks keep to the own schema."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from toolcrib.errors import DefinitionError
from toolcrib.schema.walk import changed, rooted, schemas
from toolcrib.spec.naming import pointed

_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "if", "then", "else")
"""Keywords that no provider accepts at the top of a tool's input."""
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NAME = 64
"""Characters of a property's name that the strictest API takes."""
LONGEST = 1024
"""Characters of a function's description that OpenAI's API takes."""


def without_unions(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of an object without what no provider takes at its top, and those rules.

    The properties of the branches stay, as optional ones.
    """
    made = {"properties": {}, **rooted(schema), "type": "object"}
    rules = {word: made.pop(word) for word in _TOP if word in made}
    offered: dict[str, Any] = {}
    for word in ("allOf", "anyOf", "oneOf"):
        for branch in rules.get(word, ()):
            target = branch.get("$ref") if isinstance(branch, Mapping) else None
            found = pointed(schema, target) if isinstance(target, str) else branch
            if isinstance(found, Mapping) and isinstance(found.get("properties"), Mapping):
                offered |= found["properties"]
    made["properties"] = {**offered, **made["properties"]}
    return made, rules


def renamed_properties(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a schema whose own properties have names that Anthropic's API accepts, and the new names' own.

    It checks the names at the top only.
    """
    given = schema["properties"]
    own: dict[str, str] = {}
    for name in given:
        if not _PROPERTY.fullmatch(name):
            plain = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name).strip("_") or "value"
            if plain in given or plain in own or len(plain) > _NAME:
                plain = shortened(plain, name, _NAME)
            own[plain] = name
    if not own:
        return schema, {}
    new = {name: plain for plain, name in own.items()}

    def moved(rule: dict[str, Any]) -> dict[str, Any]:
        parts = str(rule.get("$ref", "")).split("/")
        if parts[:2] == ["#", "properties"] and len(parts) > 2:
            name = unquote(parts[2]).replace("~1", "/").replace("~0", "~")
            rule["$ref"] = "/".join((*parts[:2], quote(new.get(name, name)), *parts[3:]))
        return rule

    made = changed(schema, moved)
    made["properties"] = {new.get(name, name): part for name, part in made["properties"].items()}
    if "required" in made:
        made["required"] = [new.get(name, name) for name in made["required"]]
    return made, own


def with_items(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which each list says what it holds; the APIs of OpenAI and Google refuse others."""

    def completed(rule: dict[str, Any]) -> dict[str, Any]:
        kind = rule.get("type")
        if kind == "array" or (isinstance(kind, list) and "array" in kind):
            rule.setdefault("items", {})
        return rule

    made: dict[str, Any] = changed(schema, completed)
    return made


def shortened(name: str, whole: str, longest: int) -> str:
    """Return a name of at most `longest` characters that ends in a hash of `whole`."""
    return f"{name[: longest - 9]}_{hashlib.sha256(whole.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def with_rules(description: str, rules: Mapping[str, Any]) -> str:
    """Return a description with the rules that have no place in the schema."""
    more = f"\n\nThe input must also match this JSON Schema: {compact(rules)}" if rules else ""
    return description + more


def cut(description: str) -> str:
    """Return a description within what OpenAI's API takes."""
    return description if len(description) <= LONGEST else f"{description[: LONGEST - 1].rstrip()}…"


def compact(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


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
