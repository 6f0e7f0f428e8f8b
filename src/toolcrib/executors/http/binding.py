"""Binds an HTTP tool's manifest to templates, once: method, headers, cookies and auth."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from toolcrib.errors import ManifestError, UnavailableError
from toolcrib.manifest.requests import signed
from toolcrib.spec import Choice, Tool
from toolcrib.spec.record import record
from toolcrib.template import (
    MISSING,
    Namespaces,
    Reference,
    Styles,
    Template,
    Text,
    TextTemplate,
    Values,
    literal_text,
    parse_conditional,
    parse_text,
    render_parts,
)
from toolcrib.template.styles import styled_cookies
from toolcrib.template.tree import references_in
from toolcrib.template.values import bad_value

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]*")
"""`cookie-octet` of RFC 6265, 4.1.1."""


@record
class Header:
    """One header of the request."""

    name: str
    value: Text
    secret: bool


@record
class Basic:
    """HTTP Basic (RFC 7617): the names of the secrets with user name and password."""

    username: str
    password: str | None

    def header(self, secrets: Mapping[str, str]) -> str | None:
        """Return the value of `Authorization`; None without the user name's secret."""
        user = secrets.get(self.username)
        if user is None:
            return None
        if ":" in user:
            raise UnavailableError(f"the secret `{self.username}` cannot be a user name: it contains a colon")
        password = secrets.get(self.password or "", "")
        return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@record
class Cookie:
    """One cookie of the request."""

    name: str
    value: TextTemplate


@contextmanager
def placed(*path: str) -> Iterator[None]:
    """Add its position in the manifest (`details["path"]`) to a ManifestError raised inside."""
    try:
        yield
    except ManifestError as error:
        inner = error.details.get("path", [])
        error.details["path"] = ["exec", "http", *path, *inner]
        raise


def bind_method(method: str) -> str:
    """Return the method in capitals. Raises ManifestError for one that HTTP tools do not support."""
    upper = method.upper()
    if upper not in METHODS:
        raise ManifestError(
            f"HTTP tools do not support the method `{method}`", hint="one of " + ", ".join(METHODS)
        )
    return upper


def bind_headers(headers: Mapping[str, Any], names: Namespaces) -> tuple[Header, ...]:
    """Return the headers, whose names and texts are checked. ManifestError for a value that is not text."""
    out: list[Header] = []
    for name, value in headers.items():
        with placed("headers", name):
            if value is None:
                continue
            if isinstance(value, dict | list | tuple):
                raise ManifestError("a header must be a string, a number or a boolean")
            text = value if isinstance(value, Choice) else literal_text(value)
            template = parse_conditional(text, names)
            out.append(Header(name, template, holds_secret(template)))
    return tuple(out)


def bind_cookies(cookies: Mapping[str, Any], names: Namespaces) -> tuple[Cookie, ...]:
    """Return the cookies, in the order of the manifest."""
    out: list[Cookie] = []
    for name, value in cookies.items():
        with placed("cookies", name):
            if value is not None:
                out.append(Cookie(name, parse_text(literal_text(value), names)))
    return tuple(out)


def render_cookies(cookies: tuple[Cookie, ...], values: Values, styles: Styles) -> str | None:
    """Return the value of the header `Cookie` (RFC 6265, 5.4); None if no cookie has a value.

    Arguments are percent-encoded; a secret is sent as it is, and one that would end its cookie is refused.
    """
    pairs: list[tuple[str, str]] = []
    for cookie in cookies:
        lone = cookie.value.lone
        style = styles.get(lone.name) if lone is not None and lone.namespace == "argument" else None
        if lone is not None and style is not None:
            value = values.get(lone)
            if value is not MISSING and value is not None:
                others = {other.name for other in cookies if other is not cookie}
                pairs += styled_cookies(style, cookie.name, lone, value, others)
        elif (text := render_parts(cookie.value, values, _cookie)) is not None:
            pairs.append((cookie.name, text))
    return "; ".join(f"{name}={text}" for name, text in pairs) or None


def _cookie(part: Reference, text: str) -> str:
    # A secret is made for its server as it is; encoding it would make another one.
    if part.namespace != "secret":
        return quote(text, safe="")
    if _COOKIE_VALUE.fullmatch(text):
        return text
    raise bad_value(part, "a cookie cannot contain spaces, quotes, commas, semicolons or backslashes")


def bind_auth(tool: Tool) -> tuple[dict[str, str], dict[str, str], dict[str, str], tuple[Basic, ...]]:
    """Return the parts of the request for `auth`: headers, query, cookies (as templates), and Basic."""
    headers: dict[str, str] = {}
    places = {"header": headers, "query": {}, "cookie": {}}
    basic: list[Basic] = []
    for auth in tool.auth:
        if auth.type == "basic" and auth.username_secret is not None:
            basic.append(Basic(auth.username_secret, auth.secret))
        elif (added := signed(auth)) is not None:
            place, name, value = added
            places[place][name] = value
    return headers, places["query"], places["cookie"], tuple(basic)


def holds_secret(template: Template | None) -> bool:
    """Return True if any placeholder in the template is a secret."""
    return any(reference.namespace == "secret" for reference in references_in(template))
