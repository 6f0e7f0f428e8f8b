"""The form of Vega's definitions: their keys and types, and the JSON Schema of their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from toolcrib.manifest.dialects import durations
from toolcrib.manifest.dialects.fields import Field, Fields, known
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Choice
from toolcrib.spec.naming import nearest

__all__ = [
    "FIELDS",
    "PASSED",
    "TYPES",
    "form_faults",
    "is_duration",
    "milliseconds",
    "parameter_schema",
    "params_of",
]

TYPES = ("string", "integer", "number", "boolean", "array", "object")
PASSED = (
    "default", "enum", "format", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum",
    "pattern",
)  # fmt: skip
"""Keys of a parameter with the same meaning in JSON Schema."""
FIELDS: Fields = {
    "": {
        "name": Field("text", "required", "`name`"),
        "description": Field("text", "required", "`description`"),
        "params": Field("list", "no arguments", "`inputs.schema`, which allows no others."),
        "implementation": Field("mapping", "required", "`kind` and `exec`, by the fields below."),
    },
    "params[]": {
        "name": Field("text", "required", "The argument."),
        "type": Field(", ".join(f"`{name}`" for name in TYPES), "`string`", "`type`"),
        "description": Field("text", "", "`description`"),
        "required": Field("true or false", "`false`", "`true`: it is in `required`."),
        "properties": Field("mapping, or list with `name`", "", "`properties`, by these same fields."),
        "items": Field("mapping", "", "`items`, by these same fields but `name`."),
        **{key: Field("as in JSON Schema", "", f"`{key}`") for key in PASSED},
    },
    "implementation": {
        "type": Field("`http`, `exec`, `file_read`, `file_write` or `builtin`", "required", "`kind`"),
        "timeout": Field(
            "duration, or seconds", "the project's limit", "`timeout_ms`: `30s`, `1m30s`, `500ms`."
        ),
        "retry": Field("mapping", "one attempt", "`retry`, by the fields below."),
    },
    "implementation.retry": {
        "attempts": Field("whole number", "`1`", "`retry.max_attempts`: all tries, 1 to 100."),
        "backoff": Field("duration, or seconds", "at once", "`retry.backoff_ms`"),
    },
    "implementation (http)": {
        "method": Field("text", "`GET`", "`exec.http.method`"),
        "url": Field(
            "text", "required", "`exec.http.url`; its host, which must be literal, is `permissions.network`."
        ),
        "headers": Field("mapping", "", "`exec.http.headers`; entries may be conditional."),
        "query": Field("mapping", "", "`exec.http.query`; entries may be conditional."),
        "body": Field("any", "", "`exec.http.body`; entries may be conditional."),
    },
    "implementation (exec)": {
        "command": Field(
            "text", "required", "A [shell line](vega.md#shell-lines), which manifests do not have."
        ),
        "env": Field("mapping", "", "`exec.command.env`; entries may be conditional."),
        "allow_dash": Field("list of texts", "", "Arguments that may begin with `-`."),
        "allow_code": Field("true or false", "`false`", "`exec.command.allow_code`"),
    },
    "implementation (file_read)": {
        "path": Field("text", "required", "`exec.file.path`, with `action: read`."),
        "encoding": Field("`utf-8`, `base64`, `binary`", "`utf-8`", "`exec.file.encoding`"),
    },
    "implementation (file_write)": {
        "path": Field("text", "required", "`exec.file.path`, with `action: write`."),
        "content": Field("text", "required", "`exec.file.content`"),
        "encoding": Field("`utf-8`, `base64`, `binary`", "`utf-8`", "`exec.file.encoding`"),
        "mode": Field("octal digits", "`0644`", "`exec.file.mode`; `0644` and `0o644` are the same."),
        "mkdir": Field("true or false", "`false`", "`exec.file.mkdir`"),
    },
    "implementation (builtin)": {
        "function": Field("text", "required", "The name of a registered function."),
    },
}
"""Every field of a definition; any other is an error."""
_LONGEST_DURATION = 40
_DAY = 86_400_000
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_ENCODINGS = ("utf-8", "base64", "binary")
_MODE = re.compile(r"0?o?[0-7]{3,4}")
_MODE_LINE = re.compile(r"^\s*mode\s*:\s*(\S+)", re.MULTILINE)
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
    rule |= {key: param[key] for key in PASSED if key in param}
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


def milliseconds(text: Any) -> int | None:
    """Return the milliseconds of a Go duration (`1m30s`, `500ms`), or of seconds; None for 0 or none."""
    if text is None or isinstance(text, bool):
        return None
    if isinstance(text, int | float):
        return int(text * 1000) or None
    return durations.milliseconds(text) or None


def is_duration(text: Any) -> bool:
    """Return True if it is a duration of at most a day."""
    if isinstance(text, str):
        found = durations.milliseconds(text) if len(text) < _LONGEST_DURATION else None
        return found is not None and found <= _DAY
    return isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text <= 86_400


def form_faults(document: Document) -> Iterator[Diagnostic]:
    """Yield every violation of the form of a definition."""
    data = document.data
    if not isinstance(data, dict):
        yield document.diagnostic(
            "not-a-mapping",
            "the file is not a mapping",
            hint="write the fields of a tool: name, description, …",
        )
        return
    form = _Form(document)
    yield from form.unknown(data, (), known(FIELDS[""]))
    yield from form.texts(data, (), ("name", "description"))
    yield from form.choices(data)
    if "params" in data and data["params"] is not None and not isinstance(data["params"], list):
        yield document.diagnostic("wrong-type", "`params` must be a list", ("params",), key=True)
    else:
        yield from form.parameters(params_of(data))
    yield from form.implementation(data.get("implementation"))


class _Form:
    def __init__(self, document: Document) -> None:
        self._document = document

    def _finding(
        self, rule: str, message: str, path: KeyPath, hint: str | None = None, *, key: bool = False
    ) -> Diagnostic:
        return self._document.diagnostic(rule, message, path, key=key, hint=hint)

    def unknown(self, block: dict[str, Any], path: KeyPath, known: tuple[str, ...]) -> Iterator[Diagnostic]:
        for key in block:
            if key not in known:
                close = nearest(key, known)
                hint = f"did you mean `{close}`?" if close else f"allowed are {', '.join(known)}"
                yield self._finding(
                    "unknown-key", f"the key {quoted(key)} is not allowed here", (*path, key), hint, key=True
                )

    def texts(self, block: dict[str, Any], path: KeyPath, names: tuple[str, ...]) -> Iterator[Diagnostic]:
        """Require these keys to be texts that are not empty."""
        for name in names:
            if name not in block:
                rule = "name" if (name, path) == ("name", ()) else "missing-key"
                rule = "description" if (name, path) == ("description", ()) else rule
                yield self._finding(rule, f"`{name}` is missing", path)
            elif not isinstance(block[name], str) or not block[name].strip():
                yield self._finding("wrong-type", f"`{name}` must be a text", (*path, name))

    def choices(self, data: dict[str, Any]) -> Iterator[Diagnostic]:
        """Refuse conditions where they could change the tool itself."""
        for path in _choices(data, ()):
            where = path[1] if len(path) > 1 else None
            flat = where in ("headers", "query", "env") and len(path) > 3
            if path[0] != "implementation" or where not in _CHOOSING or len(path) < 3 or flat:
                message = "a condition is not allowed here"
                hint = f"it is allowed around entries of {', '.join(_CHOOSING)}"
                yield self._finding("condition", message, path, hint, key=True)

    def parameters(self, params: list[Any]) -> Iterator[Diagnostic]:
        seen: set[str] = set()
        for at, param in enumerate(params):
            path: KeyPath = ("params", at)
            if not isinstance(param, dict):
                yield self._finding("wrong-type", "a parameter must be a mapping", path)
                continue
            yield from self.texts(param, path, ("name",))
            name = param.get("name")
            if isinstance(name, str):
                if name in seen:
                    yield self._finding(
                        "wrong-value", f"the parameter {quoted(name)} is defined twice", (*path, "name")
                    )
                seen.add(name)
            yield from self._parameter(param, path)

    def _parameter(self, param: Any, path: KeyPath, depth: int = 0) -> Iterator[Diagnostic]:
        if not isinstance(param, dict):
            yield self._finding("wrong-type", "a parameter must be a mapping", path)
            return
        if depth > 20:
            yield self._finding("wrong-value", "parameters are nested too deeply", path)
            return
        yield from self.unknown(param, path, known(FIELDS["params[]"]))
        kind = param.get("type", "string")
        if not isinstance(kind, str) or kind not in TYPES:
            close = nearest(str(kind), TYPES)
            hint = f"did you mean `{close}`?" if close else f"one of {', '.join(TYPES)}"
            yield self._finding("wrong-value", f"{quoted(kind)} is not a type", (*path, "type"), hint)
        for name, right in (("required", bool), ("description", str), ("enum", list)):
            if name in param and not isinstance(param[name], right):
                yield self._finding("wrong-type", f"`{name}` is of the wrong type", (*path, name))
        if "items" in param:
            yield from self._parameter(param["items"], (*path, "items"), depth + 1)
        yield from self._properties(param.get("properties"), path, depth)

    def _properties(self, inner: Any, path: KeyPath, depth: int) -> Iterator[Diagnostic]:
        if isinstance(inner, dict):
            for name, entry in inner.items():
                yield from self._parameter(entry, (*path, "properties", name), depth + 1)
        elif isinstance(inner, list):
            for at, entry in enumerate(inner):
                if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                    yield self._finding("missing-key", "`name` is missing", (*path, "properties", at))
                else:
                    yield from self._parameter(entry, (*path, "properties", at), depth + 1)
        elif inner is not None:
            yield self._finding("wrong-type", "`properties` must be a mapping", (*path, "properties"))

    def implementation(self, block: Any) -> Iterator[Diagnostic]:
        path: KeyPath = ("implementation",)
        if not isinstance(block, dict):
            yield self._finding("missing-key", "`implementation` is missing or not a mapping", path, key=True)
            return
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in _KINDS:
            close = nearest(str(kind), _KINDS)
            hint = f"did you mean `{close}`?" if close else f"one of {', '.join(_KINDS)}"
            message = (
                f"{quoted(kind)} is not a type of implementation" if kind is not None else "`type` is missing"
            )
            yield self._finding("exec-kind", message, (*path, "type"), hint)
            return
        own = FIELDS[f"implementation ({kind})"]
        needed = tuple(key for key, field in own.items() if field.default == "required" and key != "content")
        yield from self.unknown(block, path, (*known(FIELDS["implementation"]), *own))
        yield from self.texts(block, path, needed)
        yield from self._common(block, path)
        yield from _KINDS[kind](self, block, path)

    def _common(self, block: dict[str, Any], path: KeyPath) -> Iterator[Diagnostic]:
        hint = "write it as Go does: 30s, 1m30s, 500ms"
        if "timeout" in block and not is_duration(block["timeout"]):
            message = f"{quoted(block['timeout'])} is not a duration up to a day"
            yield self._finding("wrong-value", message, (*path, "timeout"), hint)
        retry = block.get("retry")
        if retry is None:
            return
        at = (*path, "retry")
        if not isinstance(retry, dict):
            yield self._finding("wrong-type", "`retry` must be a mapping", at, key=True)
            return
        yield from self.unknown(retry, at, known(FIELDS["implementation.retry"]))
        attempts = retry.get("attempts", 1)
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= 100:
            yield self._finding(
                "wrong-value", "`attempts` must be a whole number from 1 to 100", (*at, "attempts")
            )
        if "backoff" in retry and not is_duration(retry["backoff"]):
            yield self._finding(
                "wrong-value", f"{quoted(retry['backoff'])} is not a duration", (*at, "backoff"), hint
            )

    def http(self, block: dict[str, Any], path: KeyPath) -> Iterator[Diagnostic]:
        method = block.get("method", "GET")
        if not isinstance(method, str) or method.upper() not in _METHODS:
            message = f"{quoted(method)} is not a method"
            yield self._finding("wrong-value", message, (*path, "method"), f"one of {', '.join(_METHODS)}")
        for name in ("headers", "query"):
            yield from self._mapping(block, path, name)
        url = block.get("url")
        if isinstance(url, str) and "{" in re.sub(r"^\w+://([^/?#]*).*", r"\1", url, flags=re.DOTALL):
            message = "the host of `url` must be literal: it decides which host the tool may reach"
            yield self._finding("url", message, (*path, "url"))

    def exec(self, block: dict[str, Any], path: KeyPath) -> Iterator[Diagnostic]:
        yield from self._mapping(block, path, "env")
        allowed = block.get("allow_dash", [])
        if not isinstance(allowed, list) or not all(isinstance(name, str) for name in allowed):
            yield self._finding(
                "wrong-type", "`allow_dash` must be a list of parameters", (*path, "allow_dash")
            )
        if not isinstance(block.get("allow_code", False), bool):
            yield self._finding("wrong-type", "`allow_code` must be true or false", (*path, "allow_code"))

    def file(self, block: dict[str, Any], path: KeyPath) -> Iterator[Diagnostic]:
        encoding = block.get("encoding", "utf-8")
        if encoding not in _ENCODINGS:
            message = f"{quoted(encoding)} is not an encoding"
            yield self._finding(
                "wrong-value", message, (*path, "encoding"), f"one of {', '.join(_ENCODINGS)}"
            )
        if "content" in block and not isinstance(block["content"], str):
            yield self._finding("wrong-type", "`content` must be a text", (*path, "content"))
        if not isinstance(block.get("mkdir", False), bool):
            yield self._finding("wrong-type", "`mkdir` must be true or false", (*path, "mkdir"))
        mode = block.get("mode", "0644")
        written = _MODE_LINE.search(self._document.text)
        octal = written is not None and written.group(1).lower().startswith("0o")
        if not (octal if isinstance(mode, int) else isinstance(mode, str) and _MODE.fullmatch(mode.lower())):
            message = f"{quoted(mode)} is not a file mode"
            yield self._finding("wrong-value", message, (*path, "mode"), "write it in octal, as 0644")
        if block.get("type") == "file_write" and "content" not in block:
            yield self._finding("missing-key", "`content` is missing", path, key=True)

    def builtin(self, block: dict[str, Any], path: KeyPath) -> Iterator[Diagnostic]:  # noqa: ARG002
        yield from ()

    def _mapping(self, block: dict[str, Any], path: KeyPath, name: str) -> Iterator[Diagnostic]:
        value = block.get(name)
        if value is None:
            return
        if not isinstance(value, dict):
            yield self._finding("wrong-type", f"`{name}` must be a mapping", (*path, name), key=True)
            return
        for key, item in value.items():
            for one in _flat(item):
                if isinstance(one, dict) or (isinstance(one, list) and name != "query"):
                    message = f"`{name}.{key}` must be a text, a number, true or false"
                    yield self._finding("wrong-type", message, (*path, name, key))
                    break


_KINDS: dict[str, Callable[[_Form, dict[str, Any], KeyPath], Iterator[Diagnostic]]] = {
    "http": _Form.http,
    "exec": _Form.exec,
    "file_read": _Form.file,
    "file_write": _Form.file,
    "builtin": _Form.builtin,
}
"""Further checks by type."""


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
