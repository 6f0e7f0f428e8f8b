"""Check data against the JSON Schema of its format, and explain each misfit at its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document, value_at
from toolcrib.spec.naming import did_you_mean, dotted, nearest

_MOST = 50
_MOST_NAMES = 20
_DEEPEST = 8
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


class Misfit(NamedTuple):
    """A rule, a hint or a message of its own, for data that do not fit the schema."""

    path: tuple[str, ...]
    """Keys from the top down. What is below counts too."""
    keyword: str | None = None
    """The keyword of JSON Schema that is violated; None: any."""
    rule: str | None = None
    hint: str | None = None
    message: str | None = None


class Form:
    """The JSON Schema of a format. Of its `known` misfits, the first that matches counts."""

    def __init__(self, schema: dict[str, Any], known: Sequence[Misfit] = ()) -> None:
        import jsonschema_rs

        self._schema = schema
        self._known = known
        self._validator = jsonschema_rs.Draft202012Validator(schema, offline=True)
        self.fits: Callable[[Any], bool] = self._validator.is_valid
        """Return True if data have this form."""

    def misfits(self, document: Document, data: Any) -> list[Diagnostic]:
        """Return every misfit of the data of a document, in the order of the file."""
        if not isinstance(data, dict):
            return [_not_a_mapping(document, data)]
        found: list[Diagnostic] = []
        for error in self._validator.iter_errors(data):
            found.extend(self._explain(error, document))
            if len(found) >= _MOST:
                break
        unique = {(finding.line, finding.column, finding.rule, finding.message): finding for finding in found}
        return sorted(unique.values(), key=lambda finding: (finding.line, finding.column))

    def _explain(self, error: Any, document: Document) -> Iterator[Diagnostic]:
        path: KeyPath = tuple(error.instance_path)
        keyword, facts = error.kind.name, error.kind.as_dict()
        # One error names all unknown keys, but each is reported at its own place.
        if keyword == "additionalProperties":
            names = facts["unexpected"]
            for name in names[:_MOST_NAMES]:
                yield self._unknown(document, path, name, error)
            if len(names) > _MOST_NAMES:
                explanation = f"and {len(names) - _MOST_NAMES} more unknown keys"
                yield document.diagnostic("unknown-key", explanation, path, key=True)
        elif keyword == "required":
            yield self._missing(document, path, facts["property"])
        elif keyword == "propertyNames":
            yield self._bad_name(document, path, facts["error"])
        elif keyword == "anyOf" and self._own(path, keyword) == Misfit(()) and (meant := _meant(error)):
            for one in meant:
                yield from self._explain(one, document)
        else:
            yield self._misfit(document, path, keyword, facts, error)

    def _own(self, path: KeyPath, keyword: str) -> Misfit:
        """Return what the format itself says about a misfit."""
        for one in self._known:
            if path[: len(one.path)] == one.path and one.keyword in (None, keyword):
                return one
        return Misfit(())

    def _unknown(self, document: Document, parent: KeyPath, name: str, error: Any) -> Diagnostic:
        known = list(self._at(tuple(error.schema_path)[:-1]).get("properties", {}))
        inside = f" in `{dotted(parent)}`" if parent else ""
        hint = self._own((*parent, name), "additionalProperties").hint
        if hint is None and parent and name in self._schema.get("properties", {}):
            hint = f"`{name}` stands at the top level of the file, not{inside}"
        if hint is None:
            meant = nearest(name, known) or self._elsewhere(name)
            hint = f"did you mean `{meant}`?" if meant is not None else f"known here: {', '.join(known)}"
        message = f"unknown key {quoted(name)}{inside}"
        return document.diagnostic("unknown-key", message, (*parent, name), key=True, hint=hint)

    def _missing(self, document: Document, parent: KeyPath, name: str) -> Diagnostic:
        path = (*parent, name)
        own = self._own(path, "required")
        message = own.message or f"{_label(parent)} needs the key `{name}`"
        hint = own.hint or self._meaning(path)
        return document.diagnostic(own.rule or "missing-key", message, parent, key=True, hint=hint)

    def _bad_name(self, document: Document, parent: KeyPath, inner: Any) -> Diagnostic:
        name = str(inner.instance)
        message = self._at(tuple(inner.schema_path)[:-1]).get("patternErrorMessage")
        message = message or self._at(("$defs", "variable")).get("patternErrorMessage", "is not allowed")
        path = (*parent, name)
        return document.diagnostic("wrong-value", f"the key {quoted(name)} {message}", path, key=True)

    def _misfit(
        self, document: Document, path: KeyPath, keyword: str, facts: dict[str, Any], error: Any
    ) -> Diagnostic:
        value, hint = error.instance, None
        if keyword == "type":
            wanted = [name for name in facts["types"] if name != "null"]
            explanation = f"must be {' or '.join(_TYPES[name] for name in wanted)}, not {_what(value)}"
            hint = _type_hint(wanted, value)
        elif keyword in ("enum", "const"):
            options = facts["options"] if keyword == "enum" else [facts["expected_value"]]
            known = [str(option) for option in options]
            one_of = "one of " if len(known) > 1 else ""
            explanation = f"must be {one_of}{', '.join(known)}, not {quoted(value)}"
            hint = did_you_mean(value, known) if isinstance(value, str) else None
        elif keyword == "pattern":
            own_message = self._at(tuple(error.schema_path)[:-1]).get("patternErrorMessage")
            explanation = own_message or "has a form that is not allowed"
        else:
            explanation = _bound(keyword, facts.get("limit"))
        own = self._own(path, keyword)
        rule = own.rule or ("wrong-type" if keyword == "type" else "wrong-value")
        message = own.message or f"{_label(path)} {explanation}"
        return document.diagnostic(
            rule, message, path, key=keyword.endswith("Properties"), hint=own.hint or hint
        )

    def _meaning(self, path: KeyPath) -> str | None:
        """Return the description of a key in the schema."""
        rule: Any = self._schema
        for step in path:
            rule = self._followed(rule).get("properties", {}).get(step)
            if rule is None:
                return None
        meaning = rule.get("description") if isinstance(rule, dict) else None
        return f"{path[-1]}: {meaning}" if isinstance(meaning, str) else None

    def _elsewhere(self, name: str) -> str | None:
        """Return the only other place of the format that has this key, if there is one."""
        places: list[str] = []
        waiting: list[tuple[KeyPath, Any]] = [((), self._schema)]
        while waiting:
            path, rule = waiting.pop()
            for key, inner in self._followed(rule).get("properties", {}).items():
                if len(path) < _DEEPEST:
                    waiting.append(((*path, key), inner))
                if key == name and path != ("inputs", "schema"):
                    places.append(dotted((*path, key)))
        return places[0] if len(places) == 1 else None

    def _followed(self, rule: Any) -> dict[str, Any]:
        target = rule.get("$ref") if isinstance(rule, dict) else None
        if isinstance(target, str):
            return {**self._at(tuple(target.removeprefix("#/").split("/"))), **rule}
        return rule if isinstance(rule, dict) else {}

    def _at(self, steps: KeyPath) -> dict[str, Any]:
        rule = value_at(self._schema, steps)
        return rule if isinstance(rule, dict) else {}


def _not_a_mapping(document: Document, data: Any) -> Diagnostic:
    hint = "write the fields of a tool: `name: …`, `description: …`"
    what = "a list" if isinstance(data, list) else "a single value"
    message = "the file is empty" if data is None else f"the file is {what} instead of a mapping"
    return document.diagnostic("not-a-mapping", message, at=(1, 1) if data is None else None, hint=hint)


def _meant(error: Any) -> list[Any]:
    """Return the errors of the one alternative that takes such a value; empty if it is not exactly one."""

    def is_other(one: Any) -> bool:
        if one.instance_path != error.instance_path:
            return False
        return not _meant(one) if one.kind.name == "anyOf" else one.kind.name in ("type", "enum", "const")

    branches: list[list[Any]] = [
        branch for branch in error.kind.as_dict()["context"] if not any(map(is_other, branch))
    ]
    return branches[0] if len(branches) == 1 else []


def _label(path: KeyPath) -> str:
    return f"`{dotted(path)}`" if path else "the manifest"


def _bound(keyword: str, limit: Any) -> str:
    bounds = {
        "minimum": f"must be at least {limit}",
        "maximum": f"must be at most {limit}",
        "exclusiveMinimum": f"must be greater than {limit}",
        "minItems": f"must have at least {limit} item" + ("" if limit == 1 else "s"),
        "uniqueItems": "has the same item twice",
        "minLength": "must not be empty",
    }
    return bounds.get(keyword, "is not as the format says")


def _type_hint(wanted: list[str], value: Any) -> str | None:
    if "string" in wanted and isinstance(value, float):
        return "put it in quotes, as it is written"  # `1.10` is 1.1 by now.
    if "string" in wanted and isinstance(value, int):
        return f'put it in quotes: "{str(value).lower() if isinstance(value, bool) else value}"'
    if wanted == ["boolean"] and isinstance(value, str) and value.lower() in ("yes", "no", "on", "off"):
        meant = "true" if value.lower() in ("yes", "on") else "false"
        # YAML 1.1 reads these words as booleans, so many authors use them.
        return f"write `{meant}`: in YAML 1.2 `{value}` is text"
    if value is None:
        return "remove the key, or give it a value"
    if wanted == ["array"] and not isinstance(value, dict):
        return "write it as a list: `[…]`"
    if wanted == ["object"] and isinstance(value, str):
        return "write it as a mapping: `{key: value}`"
    return None


def _what(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    if isinstance(value, bool) or value is None or isinstance(value, list | dict):
        return quoted(value)
    return f"the number {value}"
