"""Binary data in results: recognised by its type or its bytes, and returned as content."""

from __future__ import annotations

import base64
from typing import Any

from toolcrib.spec.calls.content import Content

_TEXTS = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "graphql", "sql", "toml", "csv")
_BINARY = ("image/", "audio/", "video/", "font/")
_LOOKED_AT = 8_192
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b": "application/gzip",
}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
UNKNOWN = "application/octet-stream"


def is_binary(data: bytes, media_type: str) -> bool:
    """Return True if data of this type is no text. A type that says nothing is decided by the data."""
    # `image/svg+xml` is text.
    if media_type.startswith(_BINARY) and not media_type.endswith("+xml"):
        return True
    if media_type.startswith("text/") or any(one in media_type for one in _TEXTS):
        return False
    head = data[:_LOOKED_AT]
    if b"\0" in head:
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A cut at the end may part a character of up to four bytes; that is no sign of binary data.
        return len(head) - error.start > 3 or len(data) <= _LOOKED_AT
    return False


def media_type_of(data: bytes) -> str:
    """Return the media type of data that begins as a usual format does, else `application/octet-stream`."""
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12], UNKNOWN)
    return next((kind for begin, kind in _SIGNATURES.items() if data.startswith(begin)), UNKNOWN)


def is_garbled(data: bytes) -> bool:
    """Return True if data of a program is an image, an archive or the like, and no text with odd bytes."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return b"\0" in data[:_LOOKED_AT] or media_type_of(data) != UNKNOWN
    return False


def content_of(data: bytes, media_type: str, uri: str = "data:") -> Content:
    """Return binary data as content: an image, a sound, or a resource."""
    if media_type.startswith("image/"):
        return Content.image(data, media_type)
    if media_type.startswith("audio/"):
        return Content.audio(data, media_type)
    return Content.resource(uri, data, media_type or UNKNOWN)


def data_of(block: dict[str, Any]) -> tuple[bytes, str] | None:
    """Return data and media type of a block that holds binary data; None for any other, or a damaged one."""
    inner = block.get("resource") or block
    encoded = inner.get("blob", inner.get("data"))
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True), str(inner.get("mimeType", ""))
    except ValueError:
        return None
