"""Check manifests against the JSON Schema of the format, and explain each misfit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib.errors import ConfigError
from toolcrib.manifest.kinds import KINDS, Misfit, manifest_kinds
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec.naming import nearest

__all__ = ["fits", "kind_names", "misfits", "tool_schema"]

_COMMON = Path(__file__).with_name("schema.json")
_MOST = 50
_MOST_NAMES = 20


_RULES: tuple[tuple[KeyPath, str], ...] = (
    (("name",), "name"),
    (("description",), "description"),
    (("version",), "version"),
    (("approval", "reason"), "approval-reason"),
    (("inputs", "schema"), "input-schema"),
    (("outputs", "schema"), "output-schema"),
)
"""Rules for the values at or below a path."""

_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}


@cache
def tool_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of `tool.yml`: the common part, and that of each kind in use."""
    import orjson

    schema: dict[str, Any] = orjson.loads(_COMMON.read_bytes())
    block, names = schema["properties"]["exec"], []
    for kind in manifest_kinds():
        assert kind.schema is not None
        part = orjson.loads(kind.schema.read_bytes())
        parts = {kind.name: part, **part.pop("$defs", {})}
        if clash := schema["$defs"].keys() & parts.keys():
            raise ConfigError(f"the JSON Schema of the kind {kind.name} defines {', '.join(clash)} again")
        schema["$defs"] |= parts
        block["properties"][kind.name] = {"$ref": f"#/$defs/{kind.name}"}
        names.append(kind.name)
    schema["properties"]["kind"]["enum"] = names
    block["description"] = block["description"].format(kinds=", ".join(names))
    return schema


def kind_names() -> list[str]:
    """Return the names of the kinds in the schema."""
    return list(tool_schema()["properties"]["exec"]["properties"])


def fits(data: Any) -> bool:
    """Return True if data have the form of a manifest. Raises ConfigError for a broken kind of a package."""
    return bool(_is_valid()(data) or (_extend(data) and _is_valid()(data)))


def _extend(data: Any) -> bool:
    """Take the kind that data name into the schema, if it comes from an installed package."""
    name = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(name, str) or KINDS.is_builtin(name) or name in kind_names():
        return False
    kind = KINDS.get(name)
    if kind is None or kind.schema is None:
        return False
    for made in (tool_schema, _validator, _is_valid):
        made.cache_clear()
    return True


def misfits(document: Document) -> list[Diagnostic]:
    """Return every misfit of a document, in the order of the file."""
    if not isinstance(document.data, dict):
        return [_not_a_mapping(document)]
    found: list[Diagnostic] = []
    for error in _validator().iter_errors(document.data):
        found.extend(_explain(error, document))
        if len(found) >= _MOST:
            break
    unique = {(finding.line, finding.column, finding.rule, finding.message): finding for finding in found}
    return sorted(unique.values(), key=lambda finding: (finding.line, finding.column))


@cache
def _validator() -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(tool_schema(), offline=True)


@cache
def _is_valid() -> Callable[[Any], bool]:
    check: Callable[[Any], bool] = _validator().is_valid
    return check


def _not_a_mapping(document: Document) -> Diagnostic:
    hint = "a manifest begins with `name: …`, `description: …`, `kind: …`"
    if document.data is None:
        return document.diagnostic("not-a-mapping", "the manifest is empty", at=(1, 1), hint=hint)
    what = "a list" if isinstance(document.data, list) else "a single value"
    return document.diagnostic("not-a-mapping", f"the manifest is {what} instead of a mapping", hint=hint)


def _explain(error: Any, document: Document) -> Iterator[Diagnostic]:
    path: KeyPath = tuple(error.instance_path)
    keyword = error.kind.name
    facts = error.kind.as_dict()
    if keyword == "additionalProperties":
        names = facts["unexpected"]
        for name in names[:_MOST_NAMES]:
            yield _unknown(document, path, name, error)
        if len(names) > _MOST_NAMES:
            explanation = f"and {len(names) - _MOST_NAMES} more unknown keys"
            yield document.diagnostic("unknown-key", explanation, path, key=True)
    elif keyword == "required":
        yield _missing(document, path, facts["property"])
    elif keyword == "propertyNames":
        yield _bad_name(document, path, facts["error"])
    elif path == ("exec",) and keyword in ("minProperties", "maxProperties"):
        explanation = f"`exec` must hold exactly one of {', '.join(kind_names())}"
        yield document.diagnostic("exec-kind", explanation, path, key=True)
    else:
        yield _misfit(document, path, keyword, facts, error)


def _unknown(document: Document, parent: KeyPath, name: str, error: Any) -> Diagnostic:
    path = (*parent, name)
    rule = _rule_at(tool_schema(), tuple(error.schema_path)[:-1])
    known = list(rule.get("properties", {}))
    inside = f" in `{_dotted(parent)}`" if parent else ""
    close = nearest(name, known)
    elsewhere = _elsewhere(name) if close is None else None
    if close is not None:
        hint = f"did you mean `{close}`?"
    elif elsewhere is not None:
        hint = f"did you mean `{elsewhere}`?"
    else:
        hint = f"known here: {', '.join(known)}"
    return document.diagnostic(
        "unknown-key", f"unknown key {quoted(name)}{inside}", path, key=True, hint=hint
    )


def _missing(document: Document, parent: KeyPath, name: str) -> Diagnostic:
    path = (*parent, name)
    rule = _own_rule(path) or _misfit_of_kind(path, "required").rule or "missing-key"
    what = f"`{_dotted(parent)}`" if parent else "the manifest"
    explanation: str
    hint: str | None
    if path == ("approval", "reason"):
        explanation, hint = (
            "`approval.required` is true, but there is no `reason`",
            "add `reason:`, which the person asked sees",
        )
    elif parent == ("permissions", "network"):
        explanation, hint = "a mapping here must hold `allow`", "write `network: {allow: [api.example.com]}`"
    elif path == ("inputs", "schema", "type"):
        explanation, hint = "the schema of the arguments must say `type: object`", "add `type: object`"
    else:
        explanation, hint = f"{what} needs the key `{name}`", _meaning(path)
    return document.diagnostic(rule, explanation, parent, key=True, hint=hint)


def _bad_name(document: Document, parent: KeyPath, inner: Any) -> Diagnostic:
    name = str(inner.instance)
    message = _rule_at(tool_schema(), tuple(inner.schema_path)[:-1]).get("patternErrorMessage", "")
    if not message:
        message = _rule_at(tool_schema(), ("$defs", "variable"))["patternErrorMessage"]
    explanation = f"the key {quoted(name)} {message}"
    return document.diagnostic("wrong-value", explanation, (*parent, name), key=True)


def _misfit(document: Document, path: KeyPath, keyword: str, facts: dict[str, Any], error: Any) -> Diagnostic:
    label = f"`{_dotted(path)}`" if path else "the manifest"
    value = error.instance
    rule = _own_rule(path) or ("wrong-type" if keyword == "type" else "wrong-value")
    hint: str | None = None
    if keyword == "type":
        wanted = " or ".join(_TYPES[name] for name in facts["types"])
        explanation = f"{label} must be {wanted}, not {_what(value)}"
        hint = _type_hint(path, facts["types"], value)
    elif keyword in ("enum", "const"):
        options = facts["options"] if keyword == "enum" else [facts["expected_value"]]
        known = [str(option) for option in options]
        one_of = "one of " if len(known) > 1 else ""
        explanation = f"{label} must be {one_of}{', '.join(known)}, not {quoted(value)}"
        close = nearest(value, known) if isinstance(value, str) else None
        hint = f"did you mean `{close}`?" if close else None
    elif keyword == "pattern":
        message = _rule_at(tool_schema(), tuple(error.schema_path)[:-1]).get("patternErrorMessage")
        explanation = f"{label} {message or 'has a form that is not allowed'}"
    else:
        explanation = f"{label} {_bound(keyword, facts)}"
    own = _misfit_of_kind(path, keyword)
    return document.diagnostic(own.rule or rule, explanation, path, hint=own.hint or hint)


def _misfit_of_kind(path: KeyPath, keyword: str) -> Misfit:
    """Return the rule and hint that the kind has for a value in its block."""
    if path[:1] == ("exec",) and len(path) > 2:
        for one in KINDS[str(path[1])].misfits:
            if path[2 : 2 + len(one.path)] == one.path and one.keyword in (None, keyword):
                return one
    return Misfit(())


def _bound(keyword: str, facts: dict[str, Any]) -> str:
    limit = facts.get("limit")
    bounds = {
        "minimum": f"must be at least {limit}",
        "maximum": f"must be at most {limit}",
        "minItems": f"must have at least {limit} item" + ("" if limit == 1 else "s"),
        "uniqueItems": "holds the same item twice",
        "minLength": "must not be empty",
    }
    return bounds.get(keyword, "is not as the format says")


def _type_hint(path: KeyPath, wanted: list[str], value: Any) -> str | None:
    if path == ("permissions", "secrets") and isinstance(value, list):
        return "write each name as a key: `NAME: {type: string, required: true}`"
    if path[:2] == ("permissions", "secrets"):
        return "write `{type: string, required: true}`"
    if "string" in wanted and isinstance(value, int | float) and not isinstance(value, bool):
        return f'put it in quotes: "{value}"'
    if "string" in wanted and isinstance(value, bool):
        return f'put it in quotes: "{"true" if value else "false"}"'
    if wanted == ["boolean"] and isinstance(value, str) and value.lower() in ("yes", "no", "on", "off"):
        return (
            f"write `{'true' if value.lower() in ('yes', 'on') else 'false'}`: in YAML 1.2 `{value}` is text"
        )
    if value is None:
        return "remove the key, or give it a value"
    if wanted == ["array"] and not isinstance(value, dict):
        return "write it as a list: `[…]`"
    return None


def _own_rule(path: KeyPath) -> str | None:
    """Return the rule of a place that has one of its own."""
    return next((rule for start, rule in _RULES if path[: len(start)] == start), None)


def _what(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    if isinstance(value, bool) or value is None or isinstance(value, list | dict):
        return quoted(value)
    return f"the number {value}"


def _meaning(path: KeyPath) -> str | None:
    """Return the description of a key in the schema."""
    rule: Any = tool_schema()
    for step in path:
        rule = _followed(rule).get("properties", {}).get(step)
        if rule is None:
            return None
    meaning = rule.get("description")
    return f"{path[-1]}: {meaning}" if isinstance(meaning, str) else None


def _elsewhere(name: str) -> str | None:
    """Return the only other place of the format that has this key, if there is one."""
    places: list[str] = []
    waiting: list[tuple[KeyPath, Any]] = [((), tool_schema())]
    while waiting:
        path, rule = waiting.pop()
        for key, inner in _followed(rule).get("properties", {}).items():
            waiting.append(((*path, key), inner))
            if key == name and path != ("inputs", "schema"):
                places.append(_dotted((*path, key)))
    return places[0] if len(places) == 1 else None


def _followed(rule: Any) -> dict[str, Any]:
    target = rule.get("$ref") if isinstance(rule, dict) else None
    if isinstance(target, str):
        return {**_rule_at(tool_schema(), tuple(target.removeprefix("#/").split("/"))), **rule}
    return rule if isinstance(rule, dict) else {}


def _rule_at(schema: Any, steps: KeyPath) -> dict[str, Any]:
    rule: Any = schema
    for step in steps:
        try:
            rule = rule[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return rule if isinstance(rule, dict) else {}


def _dotted(path: KeyPath) -> str:
    out = ""
    for step in path:
        out += f"[{step}]" if isinstance(step, int) else (f".{step}" if out else step)
    return out
