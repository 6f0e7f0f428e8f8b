"""The form of Vega's definitions: their keys and types, and the JSON Schema of their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib.manifest.dialects.base import milliseconds
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.form import Form, Misfit
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Choice

_PASSED = (
    "default", "enum", "format", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum",
    "pattern",
)  # fmt: skip
"""Keys of a parameter with the same meaning in JSON Schema."""
_KNOWN = (
    Misfit(("name",), "required", rule="name"),
    Misfit(("description",), "required", rule="description"),
    Misfit(("implementation", "type"), rule="exec-kind"),
    Misfit(("implementation", "method"), rule="wrong-value"),
    Misfit(("implementation", "retry", "attempts"), rule="wrong-value"),
    Misfit((), "pattern", rule="wrong-type"),
)
_LONGEST_DURATION = 40
_DAY = 86_400_000
_MODE = re.compile(r"0?o?[0-7]{3,4}")
_CHOOSING = ("headers", "query", "body", "env")
"""The keys whose entries may be conditional."""


def params_of(data: Any) -> list[dict[str, Any]]:
    """Return the parameters of a definition; none if there is no list of them."""
    params = data.get("params") if isinstance(data, dict) else None
    return params if isinstance(params, list) else []


def parameter_schema(params: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the input schema: an object of these parameters and no others."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {param["name"]: _rule(param) for param in params},
        "additionalProperties": False,
    }
    required = [param["name"] for param in params if param.get("required") is True]
    if required:
        schema["required"] = required
    return schema


def _rule(param: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"type": param.get("type", "string")}
    if "description" in param:
        rule["description"] = param["description"]
    rule |= {key: param[key] for key in _PASSED if key in param}
    if "items" in param:
        rule["items"] = _rule(param["items"])
    inner = param.get("properties")
    if isinstance(inner, list):
        inner = {entry["name"]: entry for entry in inner}
    if inner:
        rule["properties"] = {name: _rule(entry) for name, entry in inner.items()}
        required = [name for name, entry in inner.items() if entry.get("required") is True]
        if required:
            rule["required"] = required
    return rule


def is_duration(value: Any) -> bool:
    """Return True if it is a duration of at most a day."""
    found = milliseconds(value) if len(str(value)) < _LONGEST_DURATION else None
    return found is not None and 0 <= found <= _DAY


def form_faults(document: Document) -> Iterator[Diagnostic]:
    """Yield every violation of the form of a definition."""
    data = document.data
    yield from _form().misfits(document, _unconditional(data))
    if not isinstance(data, dict):
        return
    yield from _conditions(document)
    yield from _repeated(document)
    block = data.get("implementation")
    if isinstance(block, dict):
        yield from _durations(document)
        for name in ("headers", "query", "env"):
            yield from _entries(document, name, block.get(name))
        url, mode = block.get("url"), block.get("mode", "0644")
        if isinstance(url, str) and "{" in re.sub(r"^\w+://([^/?#]*).*", r"\1", url, flags=re.DOTALL):
            message = "the host of `url` must be literal: it decides which host the tool may reach"
            yield document.diagnostic("url", message, ("implementation", "url"))
        place = ("implementation", "mode")
        if not _is_mode(mode, document, place):
            message = f"{quoted(mode)} is not a file mode"
            yield document.diagnostic("wrong-value", message, place, hint="write it in octal, as 0644")


@cache
def _form() -> Form:
    import orjson

    return Form(orjson.loads(Path(__file__).with_name("schema.json").read_bytes()), _KNOWN)


def _unconditional(value: Any) -> Any:
    """Return the data without the entries that are conditional."""
    if isinstance(value, dict):
        return {key: _unconditional(item) for key, item in value.items() if not isinstance(item, Choice)}
    if isinstance(value, list):
        return [_unconditional(item) for item in value if not isinstance(item, Choice)]
    return value


def _conditions(document: Document) -> Iterator[Diagnostic]:
    """Refuse conditions where they could change the tool itself."""
    for path in _choices(document.data, ()):
        where = path[1] if len(path) > 1 else None
        flat = where in ("headers", "query", "env") and len(path) > 3
        if path[0] != "implementation" or where not in _CHOOSING or len(path) < 3 or flat:
            hint = f"it is allowed around entries of {', '.join(_CHOOSING)}"
            yield document.diagnostic(
                "condition", "a condition is not allowed here", path, key=True, hint=hint
            )


def _repeated(document: Document) -> Iterator[Diagnostic]:
    params: list[Any] = [*params_of(document.data)]
    names = [param.get("name") if isinstance(param, dict) else None for param in params]
    for at, name in enumerate(names):
        if isinstance(name, str) and name in names[:at]:
            message = f"the parameter {quoted(name)} is defined twice"
            yield document.diagnostic("wrong-value", message, ("params", at, "name"))


def _durations(document: Document) -> Iterator[Diagnostic]:
    for key, path in (("timeout", ("implementation",)), ("backoff", ("implementation", "retry"))):
        inside = document.value_at(path)
        if isinstance(inside, dict) and key in inside and not is_duration(inside[key]):
            message = f"{quoted(inside[key])} is not a duration up to a day"
            hint = "write it as Go does: 30s, 1m30s, 500ms"
            yield document.diagnostic("wrong-value", message, (*path, key), hint=hint)


def _entries(document: Document, name: str, value: Any) -> Iterator[Diagnostic]:
    """Check that headers, query and environment hold texts, numbers, truth values; a query also lists."""
    for key, item in value.items() if isinstance(value, dict) else ():
        wrong = dict if name == "query" else dict | list
        if any(isinstance(one, wrong) for one in _flat(item)):
            message = f"`{name}.{key}` must be a text, a number, true or false"
            yield document.diagnostic("wrong-type", message, ("implementation", name, key))


def _is_mode(mode: Any, document: Document, place: KeyPath) -> bool:
    """Return True for octal digits; YAML reads `0o644` as a number, and so it does `644`."""
    if isinstance(mode, int):
        line, column = document.locate(place)
        return document.text.splitlines()[line - 1].startswith(("0o", "0O"), column - 1)
    return isinstance(mode, str) and _MODE.fullmatch(mode.lower()) is not None


def _flat(value: Any) -> Iterator[Any]:
    """Yield a value, or all values of a conditional one."""
    if isinstance(value, Choice):
        for _, item in value.branches:
            yield from _flat(item)
    else:
        yield value


def _choices(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, Choice):
        yield path
        for _, item in value.branches:
            if not isinstance(item, Choice):
                yield from _choices(item, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _choices(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _choices(item, (*path, at))
