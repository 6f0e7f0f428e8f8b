"""Binds an HTTP tool's manifest to templates, once: method, URL, host policy, headers, query and body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from toolcrib.errors import ManifestError
from toolcrib.template import (
    MISSING,
    Constant,
    ListTemplate,
    Namespaces,
    Query,
    Template,
    TextTemplate,
    Values,
    literal_text,
    parse,
    parse_query,
    parse_text,
    render_query,
    render_text,
    render_value,
)

__all__ = [
    "Body",
    "Header",
    "bind_body",
    "bind_headers",
    "bind_method",
    "holds_secret",
    "placed",
]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Header:
    """One header of the request."""

    name: str
    value: TextTemplate
    secret: bool


@dataclass(frozen=True, slots=True)
class Body:
    """The body of the request: `json` and `text` from a template, `form` from entries."""

    mode: Literal["json", "text", "form"]
    template: Template | None = None
    form: Query = ()
    secret: bool = False
    default_type: str | None = None
    """Content type to send when the manifest gives none."""

    def render(self, values: Values) -> bytes | None:
        """The bytes to send; None when the whole body is one absent value."""
        if self.mode == "form":
            return render_query(self.form, values).encode()
        if self.mode == "text" and isinstance(self.template, TextTemplate):
            text = render_text(self.template, values)
            return None if text is MISSING else text.encode()
        value = None if self.template is None else render_value(self.template, values)
        return None if value is MISSING else _dump(value)


@contextmanager
def placed(*path: str) -> Iterator[None]:
    """Give a ManifestError raised inside its place in the manifest (`details["path"]`)."""
    try:
        yield
    except ManifestError as error:
        inner = error.details.get("path", [])
        error.details["path"] = ["exec", "http", *path, *inner]
        raise


def bind_method(method: str) -> str:
    """The method in capitals; ManifestError names the allowed ones."""
    upper = method.upper()
    if upper not in METHODS:
        raise ManifestError(f"`{method}` is not a method of HTTP tools", hint="one of " + ", ".join(METHODS))
    return upper


def bind_headers(headers: Mapping[str, Any], names: Namespaces) -> tuple[Header, ...]:
    """The headers; ManifestError for a bad or repeated name and for those the client itself sets."""
    out: list[Header] = []
    seen: set[str] = set()
    for name, value in headers.items():
        with placed("headers", name):
            lower = name.lower()
            if not _TOKEN.fullmatch(name):
                raise ManifestError(f"`{name}` is not a header name")
            if lower in _OURS:
                raise ManifestError(f"the header {name} is set by the client itself and cannot be given")
            if lower in seen:
                raise ManifestError(f"the header {name} is there twice")
            seen.add(lower)
            if value is None:
                continue
            if isinstance(value, dict | list | tuple):
                raise ManifestError("a header is a string, a number or a boolean")
            text = literal_text(value)
            if _CONTROL.search(text):
                raise ManifestError("a header cannot hold line breaks or other control characters")
            template = parse_text(text, names)
            out.append(Header(name, template, holds_secret(template)))
    return tuple(out)


def bind_body(body: Any, headers: tuple[Header, ...], names: Namespaces) -> Body | None:
    """The body by its content type (see docs/http-tools.md); None when there is none.

    ManifestError for text of a structured type with a placeholder inside it: there a value could become
    structure.
    """
    if body is None:
        return None
    declared = next((header.value for header in headers if header.name.lower() == "content-type"), None)
    media = None if declared is None else (declared.literal or "").partition(";")[0].strip().lower()
    if media == _FORM and isinstance(body, Mapping):
        form = parse_query(body, names)
        secret = any(value is not None and holds_secret(value) for _, value in form)
        return Body("form", form=form, secret=secret)
    if isinstance(body, str):
        return _text_body(body, media, names)
    if media is not None and not _is_json(media):
        raise ManifestError(
            f"a body of type {media or 'unknown'} must be text", hint="give the body as a string"
        )
    template = parse(body, names)
    return Body("json", template, secret=holds_secret(template), default_type="application/json")


def holds_secret(template: Template) -> bool:
    """Whether any placeholder in it is a secret."""
    if isinstance(template, TextTemplate):
        return any(reference.namespace == "secret" for reference in template.references)
    if isinstance(template, Constant):
        return False
    items = (
        template.items if isinstance(template, ListTemplate) else tuple(item for _, item in template.items)
    )
    return any(holds_secret(item) for item in items)


def _text_body(body: str, media: str | None, names: Namespaces) -> Body:
    template = parse_text(body, names)
    secret = holds_secret(template)
    if template.lone is not None and (media is None or _is_json(media)):
        return Body("json", template, secret=secret, default_type="application/json")
    if media is None or _is_json(media):
        value = _json_text(body)
        if value is not None and template.references:
            return Body("json", parse(value, names), secret=secret, default_type="application/json")
        if value is not None and media is None:
            return Body("text", template, default_type="application/json")
    structured = media not in (None, "text/plain") or body.lstrip().startswith(("{", "[", "<"))
    if template.references and template.lone is None and structured:
        raise ManifestError(
            "a placeholder cannot stand inside a text that has a structure (JSON, XML, a form)",
            hint="give the body as a mapping, or the whole body as one placeholder",
        )
    return Body("text", template, secret=secret, default_type="text/plain; charset=utf-8")


def _json_text(text: str) -> Any:
    """The object or array that `text` is, or None."""
    import orjson

    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _is_json(media: str) -> bool:
    return media == "application/json" or media.endswith("+json")


def _dump(value: Any) -> bytes:
    import orjson

    try:
        return orjson.dumps(value)
    except TypeError:
        import json

        # Integers beyond 64 bits, which orjson does not write.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
