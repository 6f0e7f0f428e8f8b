"""A URL template: only its author sets scheme and port, and the host unless the permission names hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from toolcrib.errors import ManifestError
from toolcrib.spec import ABSENT, Choice, Spelling
from toolcrib.spec.record import record
from toolcrib.template.parser import Namespaces, parse_conditional, parse_text
from toolcrib.template.render import Styles, render_path_segment, render_query_value
from toolcrib.template.spellings import TemplateProblem
from toolcrib.template.styles import styled_pairs
from toolcrib.template.tree import (
    Branch,
    ConditionalText,
    ConditionNode,
    LiteralText,
    Reference,
    Text,
    TextTemplate,
)
from toolcrib.template.values import MISSING, Values, bad_value, literal_text

Query = tuple[tuple[str, Text | None], ...]
"""Entries of a query in order: the encoded name, and the value (None for a bare name)."""

_PATH_SAFE = "%:@!$&'()*+,;=~"
_QUERY_SAFE = "%:@!$'()*+,;=~/?"
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# No `@`, `:`, `/`, `?`, `#` or `\`: any of them could send the request to another host.
_HOST_VALUE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_SCHEME = re.compile(r"(https?)://", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_NO_STYLES: Styles = {}


@record
class UrlTemplate:
    """A parsed URL template; literals in path and query are percent-encoded already."""

    scheme: str
    host: TextTemplate
    port: int
    segments: tuple[TextTemplate, ...] = ()
    query: Query = ()

    @property
    def literal_host(self) -> str | None:
        """The host as written, lower case, or None when it contains a placeholder."""
        literal = self.host.literal
        return None if literal is None else literal.lower()


def parse_url(text: str, namespaces: Namespaces, *, host_placeholders: bool = False) -> UrlTemplate:
    """Parse `text`; with `host_placeholders` its host may have values, as the permission names the hosts.

    Raises ManifestError (with `details` path, offset, length) for anything but http and https, userinfo, a
    fragment, a bad port, and placeholders in scheme, port, a query's names or an unnamed host.
    """
    template = parse_text(text, namespaces)
    first = template.parts[0] if template.parts else LiteralText("")
    scheme = _SCHEME.match(first.text) if isinstance(first, LiteralText) else None
    if scheme is None or isinstance(first, Reference):
        reason = (
            "a URL begins with `http://` or `https://`, written out: no placeholder is allowed in the scheme"
        )
        raise TemplateProblem(reason, (), 0, len(text)).error()
    rest = TextTemplate((LiteralText(first.text[scheme.end() :], scheme.end()), *template.parts[1:]))
    # In this order (RFC 3986, 3): `?` has no meaning after `#`, nor `/` after `?`.
    rest, fragment, _ = rest.cut("#")
    if fragment:
        raise TemplateProblem("a URL cannot have a fragment (`#…`)", (), text.find("#"), 1).error()
    rest, _, query = rest.cut("?")
    authority, slash, path = rest.cut("/")
    host, port = _authority(authority, scheme.group(1).lower(), host_placeholders=host_placeholders)
    return UrlTemplate(
        scheme.group(1).lower(),
        host,
        port,
        tuple(_encoded(segment, _PATH_SAFE) for segment in path.split("/")) if slash else (),
        tuple(_pair(pair) for pair in query.split("&") if pair.parts),
    )


def parse_query(entries: Mapping[str, Any], namespaces: Namespaces) -> Query:
    """Parse a query mapping: its values are strings, numbers, booleans, or lists of them (repeated)."""
    out: list[tuple[str, Text | None]] = []
    for name, value in entries.items():
        if "${" in name or (namespaces.spelling is Spelling.DOUBLE_BRACE and "{{" in name):
            raise TemplateProblem(
                "a placeholder is not allowed in the name of a query entry", (name,)
            ).error()
        for item in _items(value):
            if item is None:
                continue
            if isinstance(item, Mapping | list | tuple):
                raise TemplateProblem("a query value is a string, a number or a boolean", (name,)).error()
            text = item if isinstance(item, Choice) else literal_text(item)
            out.append((quote(name, safe=""), _quoted(text, namespaces, name)))
    return tuple(out)


def _items(value: Any) -> list[Any]:
    """Return the entries of one name: the items of a list; those of a choice between lists are choices."""
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, Choice):
        return [value]
    branches = [(test, _items(inner)) for test, inner in value.branches]
    return [
        Choice(tuple((test, items[at] if at < len(items) else ABSENT) for test, items in branches))
        for at in range(max(len(items) for _, items in branches))
    ]


def render_query(entries: Query, values: Values, styles: Styles = _NO_STYLES) -> str:
    """Return the encoded query (`a=1&b=2`) without entries whose value is absent."""
    out: list[str] = []
    for name, template in entries:
        lone = template.lone if styles and template is not None else None
        if template is None:
            out.append(name)
        elif lone is not None and lone.namespace == "argument" and lone.name in styles:
            value = values.get(lone)
            if value is not MISSING and value is not None:
                others = {other for other, item in entries if item is not template}
                pairs = styled_pairs(styles[lone.name], name, lone, value, others)
                out.extend(f"{key}={text}" for key, text in pairs)
        elif (text := render_query_value(template, values)) is not None:
            out.append(f"{name}={text}")
    return "&".join(out)


def render_url(url: UrlTemplate, values: Values, query: Query = (), styles: Styles = _NO_STYLES) -> str:
    """Return the URL with its own query, then `query`. The scheme's own port is left out."""
    host = url.literal_host or _host(url.host, values)
    authority = host if url.port == _PORTS[url.scheme] else f"{host}:{url.port}"
    path = "/" + "/".join(render_path_segment(segment, values, styles) for segment in url.segments)
    encoded = render_query((*url.query, *query), values, styles)
    return f"{url.scheme}://{authority}{path}" + (f"?{encoded}" if encoded else "")


def _host(template: TextTemplate, values: Values) -> str:
    out: list[str] = []
    for part in template.parts:
        if isinstance(part, LiteralText):
            out.append(part.text)
            continue
        text = values.text(part)
        if text is MISSING:
            raise bad_value(part, "it is needed here and was not given")
        if not _HOST_VALUE.fullmatch(text):
            raise bad_value(part, "a host name has letters, digits, `-` and single dots only")
        out.append(text)
    return "".join(out).lower()


def _authority(authority: TextTemplate, scheme: str, *, host_placeholders: bool) -> tuple[TextTemplate, int]:
    _, userinfo, _ = authority.cut("@")
    # `https://known.example@other.example` looks like the one host and calls the other.
    if userinfo:
        message = "a URL cannot contain a user name or password (`user@`)"
        raise ManifestError(message, hint="use a header and a secret")
    bracket = authority.literals.startswith("[")
    inner, closed, rest = authority.cut("]") if bracket else (TextTemplate(()), "", authority)
    # An IPv6 address is in brackets; only a colon after them begins the port.
    before, colon, digits = rest.cut(":")
    host = TextTemplate((*inner.parts, LiteralText("]"))) if closed and not before.parts else before
    for reference in digits.references:
        message = "a placeholder is not allowed in the port"
        raise TemplateProblem(message, (), reference.offset, reference.length).error()
    for reference in host.references:
        if not host_placeholders or bracket:
            message = (
                "a placeholder is allowed in the host only where permissions.network.allow names the hosts"
            )
            raise TemplateProblem(message, (), reference.offset, reference.length).error()
    # Some parsers read `\` as `/`, and would see another host than the one that was checked.
    if not host.parts or any(char <= " " or char in "\\%\x7f" for char in host.literals):
        raise ManifestError("the URL has no host, or one with characters that no host has")
    number = digits.literal or ""
    if colon and not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise ManifestError(f"`{number}` is not a port (1 to 65535)")
    return host, int(number) if colon else _PORTS[scheme]


def _pair(pair: TextTemplate) -> tuple[str, TextTemplate | None]:
    name, equals, value = pair.cut("=")
    for reference in name.references:
        message = "a placeholder is not allowed in the name of a query entry"
        raise TemplateProblem(message, (), reference.offset, reference.length).error()
    return _encode(name.literal or "", _QUERY_SAFE), _encoded(value, _QUERY_SAFE) if equals else None


def _quoted(text: str | Choice, namespaces: Namespaces, name: str) -> Text:
    try:
        template = parse_conditional(text, namespaces)
    except ManifestError as error:
        error.details["path"] = [name]
        raise
    changed: Text = _changed(template, lambda literal: quote(literal, safe=""))
    return changed


def _encoded(template: TextTemplate, safe: str) -> TextTemplate:
    changed: TextTemplate = _changed(template, lambda literal: _encode(literal, safe))
    return changed


def _encode(text: str, safe: str) -> str:
    # A `%` of an escape stays; any other would be read as one.
    return quote(_STRAY_PERCENT.sub("%25", text), safe=safe)


def _changed(part: Any, change: Callable[[str], str]) -> Any:
    """Return a text, or a part of one, with all its literals changed, those in branches too."""
    if isinstance(part, LiteralText):
        return replace(part, text=change(part.text))
    if isinstance(part, TextTemplate | ConditionalText):
        return replace(part, parts=tuple(_changed(inner, change) for inner in part.parts))
    if isinstance(part, ConditionNode):
        return replace(part, branches=tuple(_changed(branch, change) for branch in part.branches))
    if isinstance(part, Branch):
        return replace(part, then=_changed(part.then, change))
    return part
