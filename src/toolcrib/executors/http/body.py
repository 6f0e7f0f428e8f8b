"""The body of an HTTP tool's request, bound once: JSON, text, form, multipart or bytes."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote

from toolcrib.egress import MAX_REQUEST_BYTES
from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.executors.http.binding import Header, holds_secret
from toolcrib.spec import BodyPart, HttpExec, ParameterStyle
from toolcrib.spec.record import record
from toolcrib.template import (
    MISSING,
    ConditionalText,
    Missing,
    Namespaces,
    Query,
    Reference,
    Styles,
    Template,
    TextTemplate,
    Values,
    parse,
    parse_conditional,
    parse_query,
    parse_text,
    render_header,
    render_query,
    render_text,
    render_value,
)
from toolcrib.template.styles import styled_pairs
from toolcrib.template.values import bad_value, scalar_text

_FORM = "application/x-www-form-urlencoded"
_EACH = ParameterStyle("form", explode=True)
_QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
"""Escapes of a name in a part's head (WHATWG HTML, multipart/form-data encoding algorithm)."""

_Mode = Literal["json", "text", "form", "multipart", "binary", "file"]
ReadFile = Callable[[str], bytes]
"""Returns the content of a file that the tool may read, by its path."""
_Sent = tuple[bytes, str | None]


@record
class RequestBody:
    """The body of the request: entries for `form`, parts for `multipart`, else one template.

    Of a multipart body that is one argument, `parts` are the fields with rules of their own.
    """

    mode: _Mode
    template: Template | None = None
    form: Query = ()
    parts: tuple[Part, ...] = ()
    default_type: str | None = None
    """Content type to send if the manifest gives none."""
    read_file: ReadFile | None = None

    @property
    def secret(self) -> bool:
        """True if any placeholder in it is a secret."""
        templates = [
            self.template,
            *(value for _, value in self.form),
            *(part.template for part in self.parts),
            *(part.filename for part in self.parts),
        ]
        return any(map(holds_secret, templates))

    def render(self, values: Values, styles: Styles) -> tuple[bytes | None, str | None]:
        """Return the bytes to send, None if the whole body is one absent value, and their content type."""
        if self.mode == "multipart":
            return self._multipart(values)
        if self.mode == "file":
            assert isinstance(self.template, TextTemplate)
            assert self.read_file is not None
            path = render_text(self.template, values)
            return (None, None) if not isinstance(path, str) else (self.read_file(path), _type_of(path))
        if self.mode == "form":
            text = (
                _spread(self.template, values) if self.template else render_query(self.form, values, styles)
            )
            return (None, None) if text is None else (text.encode(), self.default_type)
        body = self._plain(values)
        return body, None if body is None else self.default_type

    def _plain(self, values: Values) -> bytes | None:
        if self.mode == "binary" and isinstance(self.template, TextTemplate):
            text = render_text(self.template, values)
            return None if text is MISSING else _decoded(self.template.lone, text)
        if self.mode == "text" and isinstance(self.template, TextTemplate | ConditionalText):
            text = render_text(self.template, values)
            return None if text is MISSING else text.encode()
        value = None if self.template is None else render_value(self.template, values)
        return None if value is MISSING else _dump(value)

    def _multipart(self, values: Values) -> tuple[bytes | None, str | None]:
        if self.template is not None:
            lone, value = _object(self.template, values)
            if lone is None:
                return None, None
            rules = {part.name: part for part in self.parts}
            plain = Part("", self.template, BodyPart())
            pieces = _bounded(
                piece
                for key, item in value.items()
                for piece in (rules.get(key) or replace(plain, name=scalar_text(lone, key))).pieces(
                    item, lone, values
                )
            )
        else:
            pieces = _bounded(piece for part in self.parts for piece in part.render(values))
        boundary = secrets.token_hex(24)
        # The content is the caller's: a boundary inside it would begin a part of its own.
        while any(boundary.encode() in content for _, content in pieces):
            boundary = secrets.token_hex(24)
        out = b"".join(
            b"--" + boundary.encode() + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n"
            for head, content in pieces
        )
        body = out + b"--" + boundary.encode() + b"--\r\n"
        return body, f"multipart/form-data; boundary={boundary}"


def _bounded(parts: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the parts. Raises InvalidInput once they are too large, before the next file is read."""
    found, total = [], 0
    for part in parts:
        total += len(part[1])
        if total > MAX_REQUEST_BYTES:
            raise InvalidInput(
                f"the request is larger than {MAX_REQUEST_BYTES:,} bytes, the most that is sent"
            )
        found.append(part)
    return found


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
    config: HttpExec, headers: tuple[Header, ...], names: Namespaces, read_file: ReadFile | None = None
) -> RequestBody | None:
    """Return the body by its format or content type (see docs/http-tools.md); None if there is none.

    Raises ManifestError for a placeholder inside text of a structured type: its value could become structure.
    """
    body, mode = config.body, config.body_format
    if body is None:
        return None
    declared = next((header.value for header in headers if header.name.lower() == "content-type"), None)
    media = None if declared is None else (declared.literal or "").partition(";")[0].strip().lower()
    if mode is None and media == _FORM and isinstance(body, Mapping):
        mode = "form"
    if mode == "form":
        return _form(body, names)
    if mode == "multipart":
        return _parts(body, config.parts, names, read_file)
    if mode == "file":
        return RequestBody("file", parse_text(body, names), read_file=read_file)
    if mode == "binary":
        return RequestBody("binary", parse_text(body, names), default_type="application/octet-stream")
    if isinstance(body, str) and mode != "json":
        return _text_body(body, "text/plain" if mode == "text" and media is None else media, names)
    if mode is None and media is not None and not _is_json(media):
        raise ManifestError(
            f"a body of type {media or 'unknown'} must be text", hint="give the body as a string"
        )
    return RequestBody("json", parse(body, names), default_type="application/json")


def _form(body: Any, names: Namespaces) -> RequestBody:
    if isinstance(body, str):
        return RequestBody("form", parse_text(body, names), default_type=_FORM)
    return RequestBody("form", form=parse_query(body, names), default_type=_FORM)


def _parts(
    body: Any, rules: Mapping[str, BodyPart], names: Namespaces, read_file: ReadFile | None
) -> RequestBody:
    whole = parse_text(body, names) if isinstance(body, str) else None
    parts: list[Part] = []
    for name in rules if isinstance(body, str) else body:
        rule = rules.get(name) or BodyPart()
        filename = None if rule.filename is None else parse_text(rule.filename, names)
        parts.append(Part(name, whole or parse(body[name], names), rule, filename, read_file))
    return RequestBody("multipart", whole, parts=tuple(parts))


def _text_body(body: str, media: str | None, names: Namespaces) -> RequestBody:
    template = parse_conditional(body, names)
    if template.lone is not None and (media is None or _is_json(media)):
        return RequestBody("json", template, default_type="application/json")
    if media is None or _is_json(media):
        value = _json_text(body)
        if value is not None and template.references:
            return RequestBody("json", parse(value, names), default_type="application/json")
        if value is not None and media is None:
            return RequestBody("text", template, default_type="application/json")
    structured = media not in (None, "text/plain") or body.lstrip().startswith(("{", "[", "<"))
    # A value with a quote or a `<` would end its place in the text and go on as structure.
    if template.references and template.lone is None and structured:
        raise ManifestError(
            "a placeholder cannot be used inside structured text (JSON, XML, a form)",
            hint="give the body as a mapping, or the whole body as one placeholder",
        )
    return RequestBody("text", template, default_type="text/plain; charset=utf-8")


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


def _content(value: Any, rule: BodyPart, lone: Reference | None) -> _Sent:
    """Return the bytes of one part and their content type; none for plain text, like browsers."""
    reference = lone or Reference("body")
    if rule.encoding == "base64":
        if not isinstance(value, str):
            raise bad_value(reference, "a file must be base64 text")
        return _decoded(reference, value), "application/octet-stream"
    if rule.encoding == "json" or isinstance(value, dict | list):
        return _dump(value), "application/json"
    return scalar_text(reference, value).encode(), None


def _head(name: str, filename: str | None, content_type: str | None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name.translate(_QUOTED)}"'
    if filename is not None:
        head += f'; filename="{filename.translate(_QUOTED)}"'
    if content_type is not None:
        head += f"\r\nContent-Type: {content_type}"
    return head.encode()


def _type_of(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _decoded(reference: Reference | None, text: str | Missing) -> bytes:
    """Return the bytes of base64 text, standard or URL-safe, with or without line breaks and padding."""
    if not isinstance(text, str):
        return b""
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
    return media == "application/json" or media.endswith("+json")


def _dump(value: Any) -> bytes:
    import orjson

    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers beyond 64 bits, which orjson does not write.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
