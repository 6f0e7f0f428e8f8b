"""Almost right arguments: null for one that is left out; if lenient, numbers and objects written as text.

Only values that do not match are read again, only where the schema allows one reading, and
the result is checked like any other argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from toolcrib.errors import InvalidInput
from toolcrib.schema.decode import decode_object
from toolcrib.schema.walk import multiplies
from toolcrib.spec.naming import pointed

# A number of more digits may not fit in 64 bits, which arguments are limited to.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_KINDS: Mapping[type, str] = {bool: "boolean", str: "string", list: "array", dict: "object"}
_TRUTH = {"true": True, "false": False}
_LONGEST = 1 << 20
_DEEPEST_CHOICE = 12
"""Levels to which alternatives are tried: each one may double the work."""


def relaxed(
    value: Any, schema: Any, root: Mapping[str, Any] | None = None, depth: int = 0, *, texts: bool = True
) -> Any:
    """Return the value without nulls for what may be left out and must not be null.

    With `texts`, each text is read as the type that its schema wants, where that is possible.
    """
    if root is None:
        if multiplies(schema, value):
            return value
        root = schema
    rule = _followed(schema, root)
    if rule is None or depth > 100:
        return value
    kinds = kinds_of(rule, root)
    if texts and isinstance(value, str) and kinds and "string" not in kinds:
        value = _read(value, kinds)
    if isinstance(value, (dict, list)):
        value = _by_part(value, rule, root, depth, texts)
    if isinstance(value, dict):
        named = rule.get("properties")
        rules = named if isinstance(named, Mapping) else {}
        required, rest = rule.get("required", ()), rule.get("additionalProperties")
        return {
            key: relaxed(part, rules.get(key, rest), root, depth + 1, texts=texts)
            for key, part in value.items()
            # From a strict list, a model must write null for an argument that it leaves out.
            if part is not None or key in required or key not in rules or _takes_null(rules[key], root)
        }
    if isinstance(value, list) and isinstance(rule.get("items"), Mapping):
        return [relaxed(part, rule["items"], root, depth + 1, texts=texts) for part in value]
    return value


def _by_part(value: Any, rule: Mapping[str, Any], root: Mapping[str, Any], depth: int, texts: bool) -> Any:
    """Return the value as each part of `allOf` wants it, and as the first alternative that it fits then."""
    for part in rule.get("allOf", ()):
        value = relaxed(value, part, root, depth + 1, texts=texts)
    if depth <= _DEEPEST_CHOICE:
        for branch in (*rule.get("anyOf", ()), *rule.get("oneOf", ())):
            found = relaxed(value, branch, root, depth + 1, texts=texts)
            if isinstance(branch, Mapping) and _fits(found, branch, root):
                return found
    return value


def _fits(value: Any, rule: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    import jsonschema_rs

    schema = {**{word: root[word] for word in ("$defs", "definitions") if word in root}, **rule}
    options = jsonschema_rs.RegexOptions()
    with suppress(ValueError):
        return jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=options).is_valid(
            value
        )
    return False


def _takes_null(rule: Any, root: Mapping[str, Any]) -> bool:
    kinds = kinds_of(rule, root)
    return not kinds or "null" in kinds


def _read(text: str, kinds: frozenset[str]) -> Any:
    plain = text.strip()
    if "boolean" in kinds and plain.lower() in _TRUTH:
        return _TRUTH[plain.lower()]
    if "null" in kinds and plain in ("null", ""):
        return None
    if kinds & {"integer", "number"} and _WHOLE.fullmatch(text):
        return int(plain)
    if "number" in kinds and _NUMBER.fullmatch(text):
        # `1e999` becomes infinity, which JSON does not have; then the text stays.
        number = float(plain)
        return number if number - number == 0 else text
    if kinds & {"object", "array"} and plain[:1] in ("{", "[") and len(plain) <= _LONGEST:
        try:
            # Inside an object, so that the strict rules for arguments apply. A text such as `{},"b":{}` would
            # add a key; the length shows it.
            whole = decode_object(f'{{"value":{plain}}}')
        except InvalidInput:
            return text
        found = whole["value"] if len(whole) == 1 else text
        wanted = "object" if isinstance(found, dict) else "array"
        return found if wanted in kinds else text
    return text


def kinds_of(
    schema: Any, root: Mapping[str, Any], depth: int = 0, known: dict[int, frozenset[str]] | None = None
) -> frozenset[str]:
    """Return the JSON types that a schema allows; none if it allows every one.

    `known` holds those of the parts, which references may name again and again.
    """
    rule = _followed(schema, root)
    if rule is None or depth > 20:
        return frozenset()
    known = {} if known is None else known
    if id(rule) not in known:
        known[id(rule)] = _kinds_of(rule, root, depth + 1, known)
    return known[id(rule)]


def _kinds_of(
    rule: Mapping[str, Any], root: Mapping[str, Any], depth: int, known: dict[int, frozenset[str]]
) -> frozenset[str]:
    found = []
    if "type" in rule:
        kind = rule["type"]
        found.append(frozenset({kind} if isinstance(kind, str) else kind))
    if isinstance(values := rule.get("enum", [rule["const"]] if "const" in rule else None), list):
        found.append(frozenset(kind_of(value) for value in values))
    for choice in ("anyOf", "oneOf"):
        if isinstance(branches := rule.get(choice), list):
            each = [kinds_of(one, root, depth, known) for one in branches]
            found.append(frozenset().union(*each) if all(each) else frozenset())
    found += [kinds_of(part, root, depth, known) for part in rule.get("allOf", ())]
    stated = [kinds for kinds in found if kinds]
    return frozenset.intersection(*stated) if stated else frozenset()


def kind_of(value: Any) -> str:
    """Return the JSON type of a value; `integer` for a whole number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "integer" if value % 1 == 0 else "number"
    return _KINDS.get(type(value), "null")


def _followed(rule: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema behind local references."""
    for _ in range(20):
        if not isinstance(rule, Mapping):
            return None
        target = rule.get("$ref")
        if not isinstance(target, str) or not target.startswith("#/"):
            return rule
        rule = pointed(root, target)
    return None
