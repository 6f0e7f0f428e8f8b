"""The heads of HTTP/1 messages: read strictly, written anew (RFC 9112; RFC 9110, 7.6.1). And one request
forwarded and its answer returned: one, whatever else either side sends.

A message must have only one possible meaning: other line ends, folded lines and two lengths are refused, and
the proxy writes the framing headers that it sends.

This is our own parser and not h11 0.16, which accepts what must be refused here: line feeds without carriage
return, also in trailers; folded lines; control characters in values; `Content-Length` twice, as a list, or
beside `Transfer-Encoding`; chunks in HTTP/1.0; `HTTP/9.9`; a chunk size of 16 digits. It gives no access to
the bytes of chunk sizes and trailers, so no check around it could refuse those. It refuses what programs
send to a proxy: requests without Host and targets in UTF-8. And it writes HTTP/1.1 only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.stream import SocketStream, TooLong, idle_limit

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


_MAX_INTERIM = 16


class _BadAnswer(Exception):
    """The server's answer cannot be forwarded."""


async def forward(
    client: SocketStream, server: SocketStream, head: RequestHead, destination: Destination, idle_s: float
) -> None:
    """Forward `head` and its body, and the answer back.

    Without an answer that can be forwarded the client gets one of the proxy's own; an answer that breaks off
    in the middle breaks off for the client too.
    """
    one = _Forwarding(client, server, head)
    where = destination.authority
    try:
        async with idle_limit(idle_s, client, server):
            await one.run(destination)
    except TimeoutError:
        await one.fail(504, f"{where} did not answer within {idle_s:g} s")
    except BadMessage as error:
        await one.fail(error.status, error.text)
    except _BadAnswer as error:
        await one.fail(502, f"the answer of {where} is not HTTP that can be forwarded: {error}")
    except (EOFError, OSError):
        await one.fail(502, f"{where} closed the connection without an answer")


class _Forwarding:
    def __init__(self, client: SocketStream, server: SocketStream, head: RequestHead) -> None:
        self._client = client
        self._server = server
        self._head = head
        self._begun = False

    async def run(self, destination: Destination) -> None:
        await self._server.send(self._head.onward(destination))
        # At the same time: a server may answer, or refuse, before it has read the body.
        sender = asyncio.create_task(self._send_body())
        try:
            await self._answer()
        except (EOFError, OSError):
            # The server may have been cut off because of what the client sent: then that is the error.
            if sender.done():
                await sender
            raise
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def fail(self, status: int, text: str) -> None:
        """Answer in place of the server, unless its own answer has begun."""
        if not self._begun:
            try:
                await self._client.send(plain_answer(status, text))
            except OSError:
                pass

    async def _send_body(self) -> None:
        chunked = self._head.body == "chunked"
        try:
            async with aclosing(read_body(self._client, self._head.body)) as pieces:
                async for piece in pieces:
                    if not await self._sent(chunk(piece) if chunked else piece):
                        return
            if chunked:
                await self._sent(LAST_CHUNK)
        except (BadMessage, EOFError, OSError):
            # A body that breaks off must not look whole to the server.
            self._server.abort()
            raise

    async def _sent(self, data: bytes) -> bool:
        """Send to the server. Return False if it takes no more: it may have answered already."""
        try:
            await self._server.send(data)
        except OSError:
            return False
        return True

    async def _answer(self) -> None:
        head = await self._final_head()
        chunked = head.body == "chunked" and self._head.accepts_chunks
        # Body bytes that came with the head are sent with it: each send wakes up both sides.
        ready = head.onward(chunked=chunked)
        if not self._server.buffered:
            ready = await self._send(ready)
        try:
            async with aclosing(read_body(self._server, head.body)) as pieces:
                async for piece in pieces:
                    ready = await self._send(ready + (chunk(piece) if chunked else piece))
        except BadMessage as error:
            raise _BadAnswer(error.text) from None
        if ready or chunked:
            await self._send(ready + (LAST_CHUNK if chunked else b""))
        # The client waits for this end; it need not wait until the connection to the server is closed.
        self._client.finish()

    async def _send(self, data: bytes) -> bytes:
        """Send a part of the answer, and return the empty rest."""
        self._begun = True
        await self._client.send(data)
        return b""

    async def _final_head(self) -> ResponseHead:
        """Return the head of the final answer, after forwarding the interim ones (RFC 9110, 15.2)."""
        for _ in range(_MAX_INTERIM):
            try:
                head = ResponseHead.parse(await read_head(self._server), self._head.method)
            except BadMessage as error:
                raise _BadAnswer(error.text) from None
            if head.status >= 200:
                return head
            if head.status == 101:
                # What comes after it would not be checked any more.
                raise _BadAnswer("it changes to another protocol")
            if self._head.accepts_chunks:
                await self._client.send(head.onward(chunked=False))
        raise _BadAnswer("it sends interim answers without end")


LAST_CHUNK = b"0\r\n\r\n"
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[\t ]*(;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_LINE = 4 * 1024
_MAX_TRAILERS = 16 * 1024


def chunk(data: bytes) -> bytes:
    """Return `data`, which is not empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def read_body(stream: SocketStream, length: BodyLength) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body as they arrive, without chunk sizes, extensions and trailers.

    Takes no byte beyond the body. Raises EOFError if it breaks off, BadMessage for malformed chunks.
    """
    if length == "rest":
        while piece := await stream.receive():
            yield piece
        return
    size = await _chunk_size(stream) if length == "chunked" else length
    while size:
        piece = await stream.receive(size)
        if not piece:
            raise EOFError
        yield piece
        size -= len(piece)
        if size == 0 and length == "chunked":
            if await stream.exactly(2) != b"\r\n":
                raise BadMessage("a chunk is longer than its size")
            size = await _chunk_size(stream)
    if length == "chunked":
        await _skip_trailers(stream)


async def _chunk_size(stream: SocketStream) -> int:
    match = _CHUNK_LINE.fullmatch(await _line(stream))
    if match is None:
        raise BadMessage("the size of a chunk is malformed")
    return int(match[1], 16)


async def _skip_trailers(stream: SocketStream) -> None:
    left = _MAX_TRAILERS
    while (line := await _line(stream)) != b"\r\n":
        left -= len(line)
        if left < 0:
            raise BadMessage("the trailers are too long")


async def _line(stream: SocketStream) -> bytes:
    try:
        line = await stream.line(_MAX_LINE)
    except TooLong:
        raise BadMessage("a line between chunks is too long") from None
    if not line.endswith(b"\r\n"):
        raise BadMessage("a line between chunks does not end in CR LF")
    return line
