"""Changes of an input schema that several hosts and providers need. Checks keep to the own schema."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from toolcrib.schema.walk import changed, rooted
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
