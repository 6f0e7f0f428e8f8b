"""Content that is more than text: images, sound, resources and links, as MCP has them; binary data."""

from __future__ import annotations

import base64
from typing import Any

from toolcrib.spec.record import record


@record
class Content:
    """One block of a tool's result. A function returns one, or a list of blocks and texts."""

    block: dict[str, Any]
    """The `ContentBlock` of MCP."""

    @classmethod
    def text(cls, text: str) -> Content:
        """Return a text."""
        return cls({"type": "text", "text": text})

    @classmethod
    def image(cls, data: bytes, mime_type: str = "image/png") -> Content:
        """Return an image."""
        return cls({"type": "image", "data": _base64(data), "mimeType": mime_type})

    @classmethod
    def audio(cls, data: bytes, mime_type: str = "audio/wav") -> Content:
        """Return a sound."""
        return cls({"type": "audio", "data": _base64(data), "mimeType": mime_type})

    @classmethod
    def resource(cls, uri: str, data: str | bytes, mime_type: str | None = None) -> Content:
        """Return a resource with its content."""
        inner = {"uri": uri, **({"text": data} if isinstance(data, str) else {"blob": _base64(data)})}
        if mime_type is not None:
            inner["mimeType"] = mime_type
        return cls({"type": "resource", "resource": inner})

    @classmethod
    def link(cls, uri: str, name: str, mime_type: str | None = None, description: str = "") -> Content:
        """Return a link to a resource."""
        more = {"mimeType": mime_type, "description": description or None}
        given = {key: value for key, value in more.items() if value is not None}
        return cls({"type": "resource_link", "uri": uri, "name": name, **given})


def blocks_of(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the blocks of a value that is a `Content` or a list with one in it; else none."""
    if isinstance(value, Content):
        return (value.block,)
    if isinstance(value, list | tuple) and any(isinstance(one, Content) for one in value):
        parts = [one if isinstance(one, Content) else Content.text(str(one)) for one in value]
        return tuple(part.block for part in parts)
    return ()


_NEEDED = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}
"""The type of a block, and the texts in it."""


def read_blocks(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the blocks of a value in JSON: a block of MCP or a text, or a list of them.

    Raises ValueError, with the place of the fault, if it is anything else.
    """
    given = value if isinstance(value, list | tuple) else [value]
    blocks: list[Any] = [{"type": "text", "text": one} if isinstance(one, str) else one for one in given]
    for number, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        inner = block.get("resource") if kind == "resource" else block
        needed = _NEEDED.get(kind) if isinstance(kind, str) else None
        if kind == "resource" and isinstance(inner, dict):
            needed = ("uri", "blob" if "blob" in inner else "text")
        if needed is None:
            raise ValueError(f"part {number} is not text, image, audio, resource or resource_link of MCP")
        wrong = [key for key in needed if not isinstance(inner.get(key), str)]
        if wrong:
            raise ValueError(f"part {number}, of type {kind}, needs the text {wrong[0]}")
    return tuple(blocks)


def blocks_text(blocks: tuple[dict[str, Any], ...]) -> str:
    """Return blocks as text for a reader of text: one line for each that is not text."""
    lines = []
    for block in blocks:
        inner = block.get("resource") or block
        if isinstance(inner.get("text"), str):
            lines.append(inner["text"])
        else:
            about = [block.get("type"), inner.get("mimeType"), inner.get("uri")]
            lines.append(f"[{' '.join(str(part) for part in about if part)}]")
    return "\n".join(lines)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


_TEXTS = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "graphql", "sql", "toml", "csv")
# The last type has `xml` in its name, and is a ZIP.
_BINARY = ("image/", "audio/", "video/", "font/", "application/pdf", "application/vnd.openxmlformats")
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
    """Return True if data of this type is not text. A type that says nothing is decided by the data."""
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
