"""The heads of HTTP/1 messages: read strictly, written anew (RFC 9112; RFC 9110, 7.6.1).

A message must have only one possible meaning: other line ends, folded lines and two lengths are refused, and
the proxy writes the framing headers that it sends.

This is our own parser and not h11 0.16, which accepts what must be refused here: line feeds without carriage
return, also in trailers; folded lines; control characters in values; `Content-Length` twice, as a list, or
beside `Transfer-Encoding`; chunks in HTTP/1.0; `HTTP/9.9`; a chunk size of 16 digits. It gives no access to
the bytes of chunk sizes and trailers, so no check around it could refuse those. It refuses what programs
send to a proxy: requests without Host and targets in UTF-8. And it writes HTTP/1.1 only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.stream import SocketStream, TooLong

MAX_HEAD_BYTES = 64 * 1024

BodyLength = int | Literal["chunked", "rest"]
"""The end of a message's body: after this many bytes, with its last chunk, or with the connection."""

_Fields = list[tuple[bytes, bytes]]
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) ([\x21-\x7e\x80-\xff]+) (HTTP/1\.[01])")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})( [\t\x20-\x7e\x80-\xff]*)?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_FRAMING = (b"content-length", b"transfer-encoding")
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"http2-settings", *_FRAMING)
)
_CHUNKED, _CLOSE = b"Transfer-Encoding: chunked", b"Connection: close"


class BadMessage(Exception):
    """An HTTP message that is not forwarded; `status` is the one of the answer to the client."""

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
    body: BodyLength

    @classmethod
    def parse(cls, raw: bytes) -> RequestHead:
        """Parse a whole head with the empty line at its end. Raises BadMessage."""
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
        body = _body_length(fields, absent=0)
        if len(_values(fields, *_FRAMING)) > 1:
            raise BadMessage("the request gives the length of its body more than once")
        if body == "chunked" and match[3] != b"HTTP/1.1":
            raise BadMessage("a request of HTTP/1.0 cannot have a chunked body")
        return cls(match[1].decode(), target, match[3], fields, body)

    def onward(self, destination: Destination) -> bytes:
        """Return the head for the server: to `destination` whatever Host was, and closing afterwards."""
        line = f"{self.method} {destination.target} ".encode() + self.version
        host = b"Host: " + destination.authority.encode()
        fields = (field for field in _end_to_end(self.fields) if field[0].lower() != b"host")
        framing = [_CHUNKED] if self.body == "chunked" else _length_line(self.fields)
        return _written([line, host], fields, [*framing, _CLOSE])

    @property
    def accepts_chunks(self) -> bool:
        """True if the client can read a chunked answer."""
        return self.version == b"HTTP/1.1"


@dataclass(slots=True)
class ResponseHead:
    """A status line and its headers."""

    line: bytes
    status: int
    fields: _Fields
    body: BodyLength

    @classmethod
    def parse(cls, raw: bytes, method: str) -> ResponseHead:
        """Parse the head of the answer to a `method` request. Raises BadMessage."""
        line, fields = _split(raw)
        match = _STATUS.fullmatch(line)
        if match is None:
            raise BadMessage("the status line is not one of HTTP/1")
        status = int(match[1])
        bodyless = method == "HEAD" or status < 200 or status in (204, 304)
        return cls(line, status, fields, 0 if bodyless else _body_length(fields, absent="rest"))

    def onward(self, *, chunked: bool) -> bytes:
        """Return the head for the client; the connection closes after the final one."""
        framing: list[bytes] = []
        if chunked:
            framing = [_CHUNKED]
        elif self.body != "chunked" and self.status >= 200:
            # The answer to HEAD has a length without a body.
            framing = _length_line(self.fields)
        return _written([self.line], _end_to_end(self.fields), [*framing, *[_CLOSE] * (self.status >= 200)])


async def read_head(stream: SocketStream) -> bytes:
    """Return the next head with its empty line, or all bytes up to a line that does not end in CR LF.

    Raises BadMessage if it is too long, EOFError if it breaks off.
    """
    raw = bytearray()
    try:
        while True:
            line = await stream.line(MAX_HEAD_BYTES - len(raw))
            raw += line
            if line == b"\r\n" or not line.endswith(b"\r\n"):
                return bytes(raw)
    except TooLong:
        raise BadMessage(f"the head is longer than {MAX_HEAD_BYTES} bytes", 431) from None


def plain_answer(status: int, text: str) -> bytes:
    """Return a whole answer of the proxy's own, in plain text."""
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
            text = "a header line is malformed (bad name, folded line, control character or line end)"
            raise BadMessage(text)
        fields.append((name, value))
    return first, fields


def _values(fields: _Fields, *names: bytes) -> list[bytes]:
    return [value for name, value in fields if name.lower() in names]


def _body_length(fields: _Fields, absent: BodyLength) -> BodyLength:
    codings, lengths = _values(fields, b"transfer-encoding"), _values(fields, b"content-length")
    if codings:
        if [coding.lower() for coding in codings] != [b"chunked"]:
            raise BadMessage("the Transfer-Encoding is not plain `chunked`")
        return "chunked"
    if not lengths:
        return absent
    # Two lengths are how requests are smuggled: each side would see another end.
    if len(set(lengths)) > 1 or not _DIGITS.fullmatch(lengths[0]):
        raise BadMessage("the Content-Length is not one number")
    return int(lengths[0])


def _end_to_end(fields: _Fields) -> Iterable[tuple[bytes, bytes]]:
    """Yield the fields that do not belong to one connection only; the framing is written anew."""
    listed = b",".join(_values(fields, b"connection")).lower().split(b",")
    # `Connection` names further headers that end here (RFC 9110, 7.6.1).
    dropped = _HOP_BY_HOP.union(option.strip(b" \t") for option in listed)
    for name, value in fields:
        lower = name.lower()
        if lower not in dropped and not lower.startswith(b"proxy-"):
            yield name, value


def _length_line(fields: _Fields) -> list[bytes]:
    return [b"Content-Length: " + value for value in _values(fields, b"content-length")[:1]]


def _written(lines: list[bytes], fields: Iterable[tuple[bytes, bytes]], framing: Iterable[bytes]) -> bytes:
    lines.extend(name + b": " + value for name, value in fields)
    lines.extend(framing)
    return b"\r\n".join(lines) + b"\r\n\r\n"
