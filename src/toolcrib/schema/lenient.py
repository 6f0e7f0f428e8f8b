"""Arguments that a model has written almost right: a number as text, an object as JSON text.

A switch that is off unless somebody turns it on. Only a value that does not fit is looked at, only where the
schema leaves one way to read it, and what comes of it is checked like any other argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["relaxed"]

_WHOLE = re.compile(r"\s*[+-]?\d{1,19}\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*")
_TRUTH = {"true": True, "false": False}
_LONGEST = 1 << 20


def relaxed(value: Any, schema: Any, root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """The value with each part read as its schema's type where it is text that says so; else as it is."""
    root = root if root is not None else schema
    rule = _followed(schema, root)
    if rule is None or depth > 100:
        return value
    kinds = _kinds(rule, root)
    if isinstance(value, str) and kinds and "string" not in kinds:
        value = _read(value, kinds)
    if isinstance(value, dict):
        named = rule.get("properties")
        rest = rule.get("additionalProperties")
        return {
            key: relaxed(
                part, named[key] if isinstance(named, Mapping) and key in named else rest, root, depth + 1
            )
            for key, part in value.items()
        }
    if isinstance(value, list) and isinstance(rule.get("items"), Mapping):
        return [relaxed(part, rule["items"], root, depth + 1) for part in value]
    return value


def _read(text: str, kinds: frozenset[str]) -> Any:
    plain = text.strip()
    if "boolean" in kinds and plain.lower() in _TRUTH:
        return _TRUTH[plain.lower()]
    if "null" in kinds and plain in ("null", ""):
        return None
    if kinds & {"integer", "number"} and _WHOLE.fullmatch(text):
        return int(plain)
    if "number" in kinds and _NUMBER.fullmatch(text):
        number = float(plain)
        return number if number - number == 0 else text
    if kinds & {"object", "array"} and plain[:1] in ("{", "[") and len(plain) <= _LONGEST:
        try:
            found = json.loads(plain)
        except (ValueError, RecursionError):
            return text
        wanted = "object" if isinstance(found, dict) else "array"
        return found if wanted in kinds else text
    return text


def _kinds(rule: Mapping[str, Any], root: Mapping[str, Any]) -> frozenset[str]:
    """The types that a value may have; none where the schema does not say."""
    kind = rule.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(kind)
    branches = rule.get("anyOf") or rule.get("oneOf")
    if not isinstance(branches, list):
        return frozenset()
    found: set[str] = set()
    for branch in branches:
        inner = _followed(branch, root)
        told = _kinds(inner, {}) if inner is not None else frozenset()
        if not told:
            return frozenset()
        found |= told
    return frozenset(found)


def _followed(rule: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema itself behind local references."""
    for _ in range(20):
        if not isinstance(rule, Mapping):
            return None
        target = rule.get("$ref")
        if not isinstance(target, str) or not target.startswith("#/"):
            return rule
        found: Any = root
        for step in target[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        rule = found
    return None
