"""The heads of HTTP/1 messages: read strictly, written anew (RFC 9112; RFC 9110, 7.6.1).

Only one reading of a message is possible: what could be understood in two ways (line ends, folded lines,
two lengths) is refused, and the framing headers that are sent on are our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.wire import TooLong, Wire

__all__ = ["MAX_HEAD_BYTES", "BadMessage", "Body", "RequestHead", "ResponseHead", "plain_answer", "read_head"]

MAX_HEAD_BYTES = 64 * 1024

Body = int | Literal["chunked", "rest"]
"""How a message's body ends: after so many bytes, by its last chunk, or with the connection."""

_Fields = list[tuple[bytes, bytes]]
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) ([\x21-\x7e\x80-\xff]+) (HTTP/1\.[01])")
_STATUS = re.compile(rb"(HTTP/1\.[01]) ([1-9][0-9]{2})( [\t\x20-\x7e\x80-\xff]*)?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings")
)


class BadMessage(Exception):
    """An HTTP message that is not passed on; `status` is what the client is answered."""

    def __init__(self, text: str, status: int = 400) -> None:
        self.text = text
        self.status = status
        super().__init__(text)


@dataclass(slots=True)
class RequestHead:
    """A request line and its headers."""

    method: str
    target: str
    version: bytes
    fields: _Fields
    body: Body

    @classmethod
    def parse(cls, raw: bytes) -> RequestHead:
        """Read a whole head with the empty line at its end. Raises BadMessage."""
        line, fields = _split(raw)
        match = _REQUEST.fullmatch(line)
        if match is None:
            raise BadMessage("this is not an HTTP/1 request line")
        try:
            target = match[2].decode()
        except UnicodeDecodeError:
            raise BadMessage("the request target is not UTF-8") from None
        if len(_values(fields, b"host")) > 1:
            raise BadMessage("the request has two Host headers")
        body = _request_body(fields, match[3])
        return cls(match[1].decode(), target, match[3], fields, body)

    def onward(self, destination: Destination) -> bytes:
        """The head as it is sent to the server: for `destination` whatever Host said, and closing after."""
        lines = [
            f"{self.method} {destination.target} ".encode() + self.version,
            b"Host: " + destination.authority.encode(),
        ]
        kept = (field for field in _end_to_end(self.fields) if field[0].lower() != b"host")
        framing = _framing(self.fields, chunked=self.body == "chunked")
        return _written(lines, kept, [*framing, b"Connection: close"])

    @property
    def chunks_understood(self) -> bool:
        """Whether the client can read a chunked answer."""
        return self.version == b"HTTP/1.1"


@dataclass(slots=True)
class ResponseHead:
    """A status line and its headers."""

    line: bytes
    status: int
    fields: _Fields
    body: Body

    @classmethod
    def parse(cls, raw: bytes, method: str) -> ResponseHead:
        """Read the head of the answer to a `method` request. Raises BadMessage."""
        line, fields = _split(raw)
        match = _STATUS.fullmatch(line)
        if match is None:
            raise BadMessage("the status line is not one of HTTP/1")
        status = int(match[2])
        body = 0 if method == "HEAD" or status < 200 or status in (204, 304) else _response_body(fields)
        return cls(line, status, fields, body)

    def onward(self, *, chunked: bool) -> bytes:
        """The head as it goes to the client, the connection closing after it."""
        if self.status < 200:
            return _written([self.line], _end_to_end(self.fields), ())
        # The server's own length where it counts; the answer to HEAD has one without a body.
        framing = _framing(self.fields, chunked=chunked) if chunked or self.body != "chunked" else []
        return _written([self.line], _end_to_end(self.fields), [*framing, b"Connection: close"])


async def read_head(wire: Wire) -> bytes:
    """The next head with its empty line. BadMessage if it is too long, EOFError if it breaks off."""
    try:
        return await wire.until(b"\r\n\r\n", MAX_HEAD_BYTES)
    except TooLong:
        raise BadMessage(f"the head is longer than {MAX_HEAD_BYTES} bytes", 431) from None


def plain_answer(status: int, text: str) -> bytes:
    """A whole answer of the proxy's own, in plain words."""
    body = f"toolcrib: {text}\n".encode(errors="backslashreplace")
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _split(raw: bytes) -> tuple[bytes, _Fields]:
    if not raw.endswith(b"\r\n\r\n"):
        raise BadMessage("a line does not end in CR LF")
    first, *lines = raw[:-4].split(b"\r\n")
    fields: _Fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not (colon and _TOKEN.fullmatch(name) and _VALUE.fullmatch(value)):
            raise BadMessage(
                "a header line is malformed (bad name, folded line, control character or line end)"
            )
        fields.append((name, value))
    return first, fields


def _values(fields: _Fields, name: bytes) -> list[bytes]:
    return [value for key, value in fields if key.lower() == name]


def _request_body(fields: _Fields, version: bytes) -> Body:
    codings, lengths = _values(fields, b"transfer-encoding"), _values(fields, b"content-length")
    if codings:
        if lengths:
            raise BadMessage("the request has both Transfer-Encoding and Content-Length")
        if len(codings) > 1 or codings[0].lower() != b"chunked" or version != b"HTTP/1.1":
            raise BadMessage("the request's Transfer-Encoding is not plain `chunked`")
        return "chunked"
    if not lengths:
        return 0
    if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0]):
        raise BadMessage("the request's Content-Length is not one number")
    return int(lengths[0])


def _response_body(fields: _Fields) -> Body:
    codings, lengths = _values(fields, b"transfer-encoding"), set(_values(fields, b"content-length"))
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise BadMessage("its Transfer-Encoding is not plain `chunked`")
        return "chunked"
    if not lengths:
        return "rest"
    if len(lengths) > 1 or not _DIGITS.fullmatch(length := lengths.pop()):
        raise BadMessage("its Content-Length is not one number")
    return int(length)


def _end_to_end(fields: _Fields) -> Iterable[tuple[bytes, bytes]]:
    """Without what belongs to one connection only, and without the framing, which is written anew."""
    listed = {
        option.strip(b" \t").lower()
        for value in _values(fields, b"connection")
        for option in value.split(b",")
    }
    dropped = _HOP_BY_HOP | listed | {b"content-length"}
    for name, value in fields:
        lower = name.lower()
        if lower not in dropped and not lower.startswith(b"proxy-"):
            yield name, value


def _framing(fields: _Fields, *, chunked: bool) -> list[bytes]:
    if chunked:
        return [b"Transfer-Encoding: chunked"]
    return [b"Content-Length: " + value for value in _values(fields, b"content-length")[:1]]


def _written(lines: list[bytes], fields: Iterable[tuple[bytes, bytes]], framing: Iterable[bytes]) -> bytes:
    lines.extend(name + b": " + value for name, value in fields)
    lines.extend(framing)
    return b"\r\n".join(lines) + b"\r\n\r\n"
