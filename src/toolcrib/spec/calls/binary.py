"""Binary data in results: recognised by its type or its bytes, and returned as content."""

from __future__ import annotations

import base64
from typing import Any

from toolcrib.spec.calls.content import Content

_TEXTS = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "graphql", "sql", "toml", "csv")
_BINARY = ("image/", "audio/", "video/", "font/")
_LOOKED_AT = 8_192


def is_binary(data: bytes, media_type: str) -> bool:
    """Return True if data of this type is no text. A type that says nothing is decided by the data."""
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
        return len(head) - error.start > 3 or len(data) <= _LOOKED_AT
    return False


def content_of(data: bytes, media_type: str, uri: str = "data:") -> Content:
    """Return binary data as content: an image, a sound, or a resource."""
    if media_type.startswith("image/"):
        return Content.image(data, media_type)
    if media_type.startswith("audio/"):
        return Content.audio(data, media_type)
    return Content.resource(uri, data, media_type or "application/octet-stream")


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
