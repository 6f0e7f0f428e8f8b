"""The body of an HTTP tool's request, bound once: JSON, text, form, multipart or bytes."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from toolcrib.egress import MAX_REQUEST_BYTES
from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.executors.http.binding import Header, holds_secret
from toolcrib.spec import BodyPart, HttpExec, ParameterStyle
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
    parse,
    parse_conditional,
    parse_text,
    render_header,
    render_text,
    render_value,
)
from toolcrib.template.styles import styled_pairs
from toolcrib.template.url import parse_query, render_query
from toolcrib.template.values import bad_value, scalar_text

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
_BINARY = "application/octet-stream"
_EACH = ParameterStyle("form", explode=True)
_QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
"""Escapes of a name in a part's head (WHATWG HTML, multipart/form-data encoding algorithm)."""

ReadFile = Callable[[str], bytes]
"""Returns the content of a file that the tool may read, by its path."""
Sent = tuple[bytes | None, str | None]
"""Bytes, None for no body; and their content type, None for plain text like browsers send it."""
_NOTHING: Sent = (None, None)


@record
class RequestBody:
    """The body of the request."""

    render: Callable[[Values, Styles], Sent]
    """Returns what to send for these values: nothing if the whole body is one absent value."""
    secret: bool
    """True if any placeholder in it is a secret."""


@record
class Part:
    """One field of a multipart body; a list has one part for each item."""

    name: str
    template: Template
    rule: BodyPart
    filename: TextTemplate | None = None
    read_file: ReadFile | None = None

    def render(self, values: Values) -> Iterator[tuple[bytes, bytes]]:
        """Yield head and content of each part; none for an absent value."""
        lone = self.template.lone if isinstance(self.template, TextTemplate) else None
        yield from self.pieces(render_value(self.template, values), lone, values)

    def pieces(self, value: Any, lone: Reference | None, values: Values) -> Iterator[tuple[bytes, bytes]]:
        """Yield head and content of each part for a value that is known; none for null."""
        if value is MISSING or value is None:
            return
        name = None if self.filename is None else render_header(self.filename, values)
        if name is None and self.rule.encoding == "base64":
            name = self.name
        whole = self.rule.encoding == "json" or not isinstance(value, list)
        for item in [value] if whole else value:
            if item is None:
                continue
            if self.rule.encoding == "file" and self.read_file is not None:
                if not isinstance(item, str):
                    raise bad_value(lone or Reference("body"), "a file must be given by its path")
                media = self.rule.content_type or _type_of(item)
                yield _head(self.name, name or PurePath(item).name, media), self.read_file(item)
                continue
            content, kind = _content(item, self.rule, lone)
            yield _head(self.name, name, self.rule.content_type or kind), content


def bind_body(
    config: HttpExec, headers: tuple[Header, ...], names: Namespaces, read_file: ReadFile | None
) -> RequestBody | None:
    """Return the body by its format or content type (see docs/http-tools.md); None if there is none.

    Raises ManifestError for a placeholder inside text of a structured type: its value could become structure.
    """
    body, mode = config.body, config.body_format
    if body is None:
        return None
    declared = next((header.value for header in headers if header.name.lower() == "content-type"), None)
    media = None if declared is None else (declared.literal or "").partition(";")[0].strip().lower()
    if mode == "form" or (mode is None and media == _FORM and isinstance(body, Mapping)):
        return _form(body, names)
    if mode == "multipart":
        return _multipart(body, config.parts, names, read_file)
    if mode == "file" and read_file is not None:
        return _one_text(parse_text(body, names), lambda path: (read_file(path), _type_of(path)))
    if mode == "binary":
        template = parse_text(body, names)
        return _one_text(template, lambda text: (_decoded(template.lone, text), _BINARY))
    if isinstance(body, str) and mode != "json":
        return _text_body(body, "text/plain" if mode == "text" and media is None else media, names)
    if mode is None and media is not None and not _is_json(media):
        raise ManifestError(
            f"a body of type {media or 'unknown'} must be text", hint="give the body as a string"
        )
    return _json_body(parse(body, names))


def _one_text(template: Text, send: Callable[[str], Sent]) -> RequestBody:
    """Return a body that is made of one text."""

    def render(values: Values, _: Styles) -> Sent:
        text = render_text(template, values)
        return _NOTHING if text is MISSING else send(text)

    return RequestBody(render, holds_secret(template))


def _json_body(template: Template) -> RequestBody:
    def render(values: Values, _: Styles) -> Sent:
        value = render_value(template, values)
        return _NOTHING if value is MISSING else (_dump(value), _JSON)

    return RequestBody(render, holds_secret(template))


def _form(body: Any, names: Namespaces) -> RequestBody:
    whole = parse_text(body, names) if isinstance(body, str) else None
    entries = () if whole is not None else parse_query(body, names)

    def render(values: Values, styles: Styles) -> Sent:
        text = render_query(entries, values, styles) if whole is None else _spread(whole, values)
        return _NOTHING if text is None else (text.encode(), _FORM)

    return RequestBody(render, any(map(holds_secret, (whole, *(value for _, value in entries)))))


def _multipart(
    body: Any, rules: Mapping[str, BodyPart], names: Namespaces, read_file: ReadFile | None
) -> RequestBody:
    """Return a body of several parts. Of one that is an argument as a whole, `rules` name some parts."""
    whole = parse_text(body, names) if isinstance(body, str) else None
    parts: dict[str, Part] = {}
    for name in rules if isinstance(body, str) else body:
        rule = rules.get(name) or BodyPart()
        filename = None if rule.filename is None else parse_text(rule.filename, names)
        parts[name] = Part(name, whole or parse(body[name], names), rule, filename, read_file)

    def render(values: Values, _: Styles) -> Sent:
        if whole is None:
            return _joined(piece for part in parts.values() for piece in part.render(values))
        lone, value = _object(whole, values)
        if lone is None:
            return _NOTHING
        named = {key: parts.get(key) or Part(scalar_text(lone, key), whole, BodyPart()) for key in value}
        return _joined(
            piece for key, item in value.items() for piece in named[key].pieces(item, lone, values)
        )

    templates = (whole, *(one for part in parts.values() for one in (part.template, part.filename)))
    return RequestBody(render, any(map(holds_secret, templates)))


def _joined(parts: Iterable[tuple[bytes, bytes]]) -> Sent:
    """Return one multipart body of heads and contents. Raises InvalidInput before it reads too much."""
    pieces, total = [], 0
    for part in parts:
        total += len(part[1])
        if total > MAX_REQUEST_BYTES:
            message = f"the request is larger than {MAX_REQUEST_BYTES:,} bytes, the most that is sent"
            raise InvalidInput(message)
        pieces.append(part)
    boundary = secrets.token_hex(24)
    # The content is the caller's: a boundary inside it would begin a part of its own.
    while any(boundary.encode() in content for _, content in pieces):
        boundary = secrets.token_hex(24)
    mark = b"--" + boundary.encode()
    lines = [line for head, content in pieces for line in (mark, head, b"", content)]
    return b"\r\n".join([*lines, mark + b"--", b""]), f"multipart/form-data; boundary={boundary}"


def _text_body(body: str, media: str | None, names: Namespaces) -> RequestBody:
    template = parse_conditional(body, names)
    media_type = "text/plain; charset=utf-8"
    if media is None or _is_json(media):
        if template.lone is not None:
            return _json_body(template)
        value = _json_text(body)
        if value is not None and template.references:
            return _json_body(parse(value, names))
        if value is not None and media is None:
            media_type = _JSON
    structured = media not in (None, "text/plain") or body.lstrip().startswith(("{", "[", "<"))
    # A value with a quote or a `<` would end its place in the text and continue as structure.
    if template.references and template.lone is None and structured:
        raise ManifestError(
            "a placeholder cannot be used inside structured text (JSON, XML, a form)",
            hint="give the body as a mapping, or the whole body as one placeholder",
        )
    return _one_text(template, lambda text: (text.encode(), media_type))


def _spread(template: Template, values: Values) -> str | None:
    """Return a form made from one object: a field for each key."""
    lone, value = _object(template, values)
    if lone is None:
        return None
    pairs = styled_pairs(_EACH, "", lone, {k: v for k, v in value.items() if not isinstance(v, list)})
    for key, item in value.items():
        if isinstance(item, list):
            pairs += styled_pairs(_EACH, quote(scalar_text(lone, key), safe=""), lone, item)
    return "&".join(f"{key}={text}" for key, text in pairs)


def _object(template: Template, values: Values) -> tuple[Reference | None, dict[str, Any]]:
    lone = template.lone if isinstance(template, TextTemplate) else None
    value = MISSING if lone is None else values.get(lone)
    if lone is None or value is MISSING or value is None:
        return None, {}
    if not isinstance(value, dict):
        raise bad_value(lone, "the body must be an object: its keys are the fields")
    return lone, value


def _content(value: Any, rule: BodyPart, lone: Reference | None) -> tuple[bytes, str | None]:
    """Return the bytes of one part and their content type; none for plain text, like browsers."""
    reference = lone or Reference("body")
    if rule.encoding == "base64":
        if not isinstance(value, str):
            raise bad_value(reference, "a file must be base64 text")
        return _decoded(reference, value), _BINARY
    if rule.encoding == "json" or isinstance(value, dict | list):
        return _dump(value), _JSON
    return scalar_text(reference, value).encode(), None


def _head(name: str, filename: str | None, content_type: str | None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name.translate(_QUOTED)}"'
    if filename is not None:
        head += f'; filename="{filename.translate(_QUOTED)}"'
    if content_type is not None:
        head += f"\r\nContent-Type: {content_type}"
    return head.encode()


def _type_of(path: str) -> str:
    return mimetypes.guess_type(path)[0] or _BINARY


def _decoded(reference: Reference | None, text: str) -> bytes:
    """Return the bytes of base64 text, standard or URL-safe, with or without line breaks and padding."""
    # Models and programs write base64 in each of its forms; they can be told apart by nothing but these
    # signs.
    plain = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise bad_value(reference or Reference("body"), "it is not base64") from None


def _json_text(text: str) -> Any:
    """Return the object or array that `text` is as JSON, or None."""
    import orjson

    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _is_json(media: str) -> bool:
    return media == _JSON or media.endswith("+json")


def _dump(value: Any) -> bytes:
    import orjson

    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers beyond 64 bits, which orjson does not write.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
