"""FlexiGPT's `tool.json`: one record a file, `go` (a registered Python callable) or `http`."""

from __future__ import annotations

import re
import unicodedata
from typing import Any
from urllib.parse import parse_qsl

from toolcrib.manifest.dialects.base import Draft, arguments_of, json_template
from toolcrib.manifest.dialects.flexigpt.dialect import BASE_MS
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.schema import SchemaCheck

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
_KEPT = (
    "schemaVersion", "bundleID", "id", "toolID", "displayName", "isEnabled", "isBuiltIn", "createdAt",
    "modifiedAt", "translations",
)  # fmt: skip
"""Keys without a meaning in a manifest: they are kept, and not reported."""
_READ = ("slug", "version", "description", "type", "argSchema", "outputSchema", "impl", "tags")
_RULES = ("auth", "retry", "limits")
_DELAYS = {"jitter", "backoff_ms", "base_ms"}
_TEXT, _MAP = {"type": "string"}, {"type": "object"}
_FORM = SchemaCheck({
    "type": "object",
    "required": ["slug", "version", "type", "impl"],
    "properties": {
        **dict.fromkeys(("slug", "version", "description", "displayName"), _TEXT),
        "type": {"enum": ["go", "http"]},
        "isEnabled": {"type": "boolean"},
        "argSchema": _MAP,
        "outputSchema": {"type": ["object", "boolean"]},
        "tags": {"type": ["array", "null"], "items": _TEXT},
        "impl": {
            "type": "object",
            "properties": {
                **dict.fromkeys(("goFunc", "method", "urlTemplate", "bodyTemplate", "extractExpr"), _TEXT),
                "headers": {"type": ["object", "null"], "additionalProperties": _TEXT},
                "successCodes": {"type": ["array", "null"], "items": {"type": "integer"}},
                "timeoutMs": {"type": "integer", "minimum": 0},
                "responseEncoding": {"enum": ["json", "text", ""]},
                "errorMode": {"type": "string", "pattern": "^([fF][aA][iI][lL]|[eE][mM][pP][tT][yY])?$"},
                # In the shape of a native manifest, which is checked with it.
                "auth": {"type": ["array", "object", "null"]},
                **dict.fromkeys(("retry", "limits"), _MAP | {"type": ["object", "null"]}),
            },
        },
    },
})  # fmt: skip
_LONGEST = 64
_TOKEN_URLS = ("token_url", "device_url")
_SECRETS = ("secret", "username_secret", "refresh_secret")


def drafts(document: Document) -> list[Draft]:
    """Return the one tool of a record."""
    draft = Draft(document, "flexigpt")
    record = document.data
    if not draft.fits(record, _FORM):
        return [draft]
    _identity(draft, record)
    draft.keep(record, _READ, _KEPT)
    draft.enabled = record.get("isEnabled") is not False
    arguments = record.get("argSchema") or {"type": "object"}
    draft.put(("inputs", "schema"), arguments, ("argSchema",))
    if record.get("outputSchema"):
        draft.put(("outputs", "schema"), record["outputSchema"], ("outputSchema",))
        draft.put(("outputs", "on_violation"), "fail")
    impl = record["impl"]
    for key in _RULES:
        if impl.get(key):
            draft.put((key,), impl[key], ("impl", key))
    if isinstance(impl.get("retry"), dict) and not impl["retry"].keys() & _DELAYS:
        draft.put(("retry",), {**impl["retry"], "base_ms": BASE_MS}, ("impl", "retry"))
    if record["type"] == "go":
        _go(draft, impl)
    else:
        _http(draft, impl, arguments)
    return [draft]


def _identity(draft: Draft, record: dict[str, Any]) -> None:
    for key, dot in (("slug", False), ("version", True)):
        value = record[key]
        wrong = _bad_label(value, dot=dot)
        if wrong is not None:
            draft.fault(f"`{key}` {wrong}", (key,))
        draft.put(("name",) if key == "slug" else ("version",), value, (key,))
    for key in ("bundleID", "toolID", "id"):
        value = record.get(key)
        if value is not None and not (isinstance(value, str) and _UUID7.fullmatch(value)):
            draft.fault(f"`{key}` is not a UUID of version 7", (key,))
    described = "description" if record.get("description") else "displayName"
    draft.put(("description",), record.get(described, ""), (described,))
    if record.get("tags"):
        draft.put(("tags",), record["tags"], ("tags",))


def _bad_label(value: str, *, dot: bool) -> str | None:
    """Return the reason that a text is not a slug (or version, with `dot`), or None."""
    if not 1 <= len(value) <= _LONGEST:
        return f"must have 1 to {_LONGEST} characters"
    for char in value:
        if not (char == "-" or (dot and char == ".") or unicodedata.category(char)[0] == "L"
                or unicodedata.category(char) == "Nd"):  # fmt: skip
            allowed = "letters, digits, dots and dashes" if dot else "letters, digits and dashes"
            return f"contains U+{ord(char):04X}: only {allowed} are allowed"
    return None


def _go(draft: Draft, impl: dict[str, Any]) -> None:
    draft.put(("kind",), "function", ("type",))
    draft.put(("exec", "function", "reference"), impl.get("goFunc"), ("impl", "goFunc"))
    _keep_rest(draft, impl, {"goFunc", *_RULES})


def _http(draft: Draft, impl: dict[str, Any], arguments: Any) -> None:
    at: KeyPath = ("exec", "http")
    draft.put(("kind",), "http", ("type",))
    url = impl.get("urlTemplate")
    draft.put((*at, "method"), impl.get("method", "GET"), ("impl", "method"))
    draft.put((*at, "url"), url, ("impl", "urlTemplate"))
    for key, theirs in (("headers", "headers"), ("success_codes", "successCodes"),
                        ("timeout_ms", "timeoutMs"), ("error_mode", "errorMode")):  # fmt: skip
        if impl.get(theirs):
            value = impl[theirs].lower() if theirs == "errorMode" else impl[theirs]
            draft.put((*at, key), value, ("impl", theirs))
    if impl.get("bodyTemplate"):
        if str(impl.get("method", "GET")).upper() in ("GET", "HEAD"):
            hint = "remove it, or use another method"
            draft.fault("`bodyTemplate` is never sent by this method", ("impl", "bodyTemplate"), hint=hint)
        _body(draft, impl)
    if impl.get("responseEncoding") == "text":
        draft.put(("outputs", "format"), "text", ("impl", "responseEncoding"))
    if impl.get("extractExpr"):
        key, expression = extraction(str(impl["extractExpr"]))
        draft.put((*at, "response", key), expression, ("impl", "extractExpr"))
    entries = impl.get("auth") or []
    auth = [one for one in (entries if isinstance(entries, list) else [entries]) if isinstance(one, dict)]
    tokens = [one["oauth2"] for one in auth if isinstance(one.get("oauth2"), dict)]
    draft.grant_hosts(
        [url, *(one.get(key) for one in tokens for key in _TOKEN_URLS)], ("impl", "urlTemplate")
    )
    named = [one.get(key) for one in (*auth, *tokens) for key in _SECRETS]
    draft.grant_secrets(draft.manifest["exec"], arguments_of(arguments), ("impl",), also=named)
    _keep_rest(draft, impl, _FORM.schema["properties"]["impl"]["properties"].keys() - {"goFunc"})


def _keep_rest(draft: Draft, impl: dict[str, Any], known: set[str]) -> None:
    rest = {key: value for key, value in impl.items() if key not in known}
    for key in rest:
        draft.unmapped(("impl", key))
    if rest:
        draft.kept["impl"] = rest


_LITERAL = re.compile(r"/(.+)/([imsgu]*)", re.DOTALL)
"""A regular expression as JavaScript writes it. `g` and `u` change nothing here."""


def extraction(expression: str) -> tuple[str, str]:
    """Return `extractExpr` as key and value: JSONPath if it begins with `$`, else a regex (`re:…`, `/…/`)."""
    if expression.startswith("$"):
        return "jsonpath", expression
    if expression.startswith("re:"):
        return "regex", expression[3:]
    if (literal := _LITERAL.fullmatch(expression)) is not None:
        flags = "".join(dict.fromkeys(flag for flag in literal[2] if flag in "ims"))
        return "regex", f"(?{flags}){literal[1]}" if flags else literal[1]
    return "regex", expression


def _body(draft: Draft, impl: dict[str, Any]) -> None:
    """Read a body template as JSON or a form if possible, so that values cannot change its structure."""
    text = impl["bodyTemplate"]
    at: KeyPath = ("exec", "http", "body")
    origin: KeyPath = ("impl", "bodyTemplate")
    headers: dict[str, str] = impl.get("headers") or {}
    content = next(
        (str(value).lower() for name, value in headers.items() if name.lower() == "content-type"), ""
    )
    if content.startswith("application/x-www-form-urlencoded"):
        pairs = parse_qsl(text, keep_blank_values=True)
        if len(dict(pairs)) != len(pairs):
            draft.fault("the form in `bodyTemplate` has a duplicate key", origin)
        draft.put(at, dict(pairs), origin)
        draft.put((*at[:-1], "body_format"), "form")
        return
    try:
        # As JSON each value stays inside its own string; as text it could add keys.
        value = json_template(text)
    except ValueError:
        if content.startswith("application/json"):
            draft.fault("`bodyTemplate` is not JSON, but the content type is JSON", origin)
            return
        draft.put(at, text, origin)
        draft.put((*at[:-1], "body_format"), "text")
        return
    draft.put(at, value, origin)
    if not isinstance(value, dict | list):
        draft.put((*at[:-1], "body_format"), "json")
