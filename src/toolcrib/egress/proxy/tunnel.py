"""A tunnel to one destination (CONNECT, SOCKS), and the check of the first bytes sent into it.

TLS may only ask for the server that the tunnel was opened to: many hosts may share one address, and the name
in the TLS hello selects one of them. The Host of plain HTTP does the same, so plain HTTP is forwarded as one
request with Host rewritten. Other protocols select no host; they pass if the policy allows the destination
without encryption. Names inside TLS, and TLS that begins later (STARTTLS), are not seen.
"""

from __future__ import annotations

import asyncio
import re
from typing import Literal

from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.proxy.dialer import Denied, Dialer, HostRefusal
from toolcrib.egress.proxy.head import (
    MAX_HEAD_BYTES,
    BadMessage,
    RequestHead,
    forward,
    plain_answer,
    read_head,
)
from toolcrib.egress.proxy.stream import SocketStream, idle_limit
from toolcrib.spec.record import record

MAX_HELLO_BYTES = 32 * 1024
"""Bytes on the wire; a hello with post-quantum key shares has about 2,000."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_MAX_RECORD = 1 << 14
_SERVER_NAME = 0
_HOST_NAME = 0
_ENCRYPTED_HELLO = 0xFE0D


@record
class ClientHello:
    """The facts in the first message of a TLS client."""

    server_name: str | None
    """The name as it was sent; None without one."""
    encrypted: bool = False
    """A second hello with another name may be hidden in this one (Encrypted Client Hello, or its grease)."""


class HelloReader:
    """Parses a ClientHello in any division into packets and records. Each byte is parsed once."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._at = 0
        self._message = bytearray()

    def feed(self, data: bytes) -> ClientHello | None:
        """Add the next bytes and return the hello once it is complete. ValueError if it is not one."""
        self._raw += data
        while True:
            head = self._raw[self._at : self._at + 5]
            _check_record(head)
            end = self._at + 5 + int.from_bytes(head[3:5])
            if len(head) < 5 or len(self._raw) < end:
                break
            self._message += self._raw[self._at + 5 : end]
            self._at = end
            if (hello := self._complete()) is not None:
                return hello
            if end >= MAX_HELLO_BYTES:
                break
        if len(self._raw) >= MAX_HELLO_BYTES:
            raise ValueError("the TLS hello is too long")
        return None

    def _complete(self) -> ClientHello | None:
        message = self._message
        if message[0] != _CLIENT_HELLO:
            raise ValueError("the first TLS message is not a client's hello")
        if len(message) < 4:
            return None
        size = 4 + int.from_bytes(message[1:4])
        if size > MAX_HELLO_BYTES:
            raise ValueError("the TLS hello is too long")
        if len(message) < size:
            return None
        # What follows in the same record could be a second hello with another name.
        if len(message) > size:
            raise ValueError("the TLS hello is followed by another message at once")
        return _read_hello(bytes(message[4:]))


class _HelloFields:
    """Reads the fields of a message one after the other; ValueError if it is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("the TLS hello breaks off")
        data = self._data[self._at : end]
        self._at = end
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    def end(self) -> None:
        if self:
            raise ValueError("the TLS hello has bytes left over")


def _check_record(head: bytes | bytearray) -> None:
    """Refuse, as early as its bytes allow, a record that cannot be a part of a ClientHello."""
    if (head and head[0] != _HANDSHAKE) or (len(head) > 1 and head[1] != 3):
        raise ValueError("the first TLS record is not a handshake")
    if len(head) == 5 and not 0 < int.from_bytes(head[3:5]) <= _MAX_RECORD:
        raise ValueError("a TLS record has no possible length")


def _read_hello(body: bytes) -> ClientHello:
    fields = _HelloFields(body)
    fields.take(2 + 32)  # version, random
    fields.vector(1)  # session
    fields.vector(2)  # cipher suites
    fields.vector(1)  # compression
    if not fields:
        return ClientHello(None)
    extensions = _HelloFields(fields.vector(2))
    fields.end()
    name: str | None = None
    encrypted = False
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            if name is not None:
                raise ValueError("the TLS hello names two servers")
            name = _server_name(content)
        elif kind == _ENCRYPTED_HELLO:
            encrypted = True
    return ClientHello(name, encrypted)


def _server_name(content: bytes) -> str:
    outer = _HelloFields(content)
    names = _HelloFields(outer.vector(2))
    outer.end()
    if names.number(1) != _HOST_NAME:
        raise ValueError("the TLS hello names a server by something other than its host name")
    name = names.vector(2)
    names.end()
    if not name or not name.isascii():
        raise ValueError("the TLS hello's server name is not a host name")
    return name.decode("ascii")


Protocol = Literal["more", "tls", "http", "http2", "other"]
_BLANKS = b"\t\n\v\f\r \x1c\x1d\x1e\x1f"  # for some server, or skipped by it before a request
_TEXT = re.compile(rb"[\t-\r\x1c-\x7e\x80-\xff]*")
_HTTP2 = b"PRI * HTTP/2"
_REQUEST = re.compile(
    rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT)[\t\v-\r\x1c-\x20]"
    rb"|(?![0-9a-f]{4}git-)[!#$%&'*+.^_`|~0-9A-Za-z-]+[\t\v-\r\x1c-\x20]+(?:/|[A-Za-z][A-Za-z0-9+.-]*://)"
)
"""The beginning of a request, also of one without a version (HTTP/0.9): a server may read a Host after it.
Git's own protocol has a similar beginning: a length, and a command in place of a method."""


def protocol_of(data: bytes) -> Protocol:
    """Return the protocol of a client that begins with `data`; `more` if that is not decided yet."""
    if not data:
        return "more"
    # Every TLS record type and version: servers skip some records before the hello, and ignore its version.
    if 0x14 <= data[0] <= 0x18:
        return "tls"
    text = data.lstrip(_BLANKS)
    if _REQUEST.match(text):
        return "http"
    line, ended, _ = text.partition(b"\n")
    if ended or len(data) >= MAX_HEAD_BYTES:
        if line.startswith(_HTTP2):
            return "http2"
        return "http" if b"HTTP/" in line.upper() else "other"
    return "more" if _TEXT.fullmatch(line) else "other"


async def tunnel(
    client: SocketStream, server: SocketStream, destination: Destination, dialer: Dialer
) -> None:
    """Copy bytes both ways until both sides have ended, once the client's first ones are checked."""
    # From the beginning: in some protocols the server speaks first (SMTP, SSH).
    back = asyncio.create_task(_copy(server, client))
    try:
        async with idle_limit(dialer.limits.idle_s, client, server):
            if await _checked_protocol(client, destination, dialer) != "http":
                await _copy(client, server)
                await back
                return
        await _stop(back)
        await _one_request(client, server, destination, dialer)
    except (EOFError, OSError, Denied):  # TimeoutError too
        pass
    finally:
        await _stop(back)


async def _checked_protocol(client: SocketStream, destination: Destination, dialer: Dialer) -> Protocol:
    """Wait for the first bytes and check them, without taking them. Raises Denied, EOFError."""
    data = await client.peek()
    if not data:
        return "other"  # the client only listens
    try:
        async with asyncio.timeout(dialer.limits.header_s):
            protocol, hello = await _recognised(client, data)
    except TimeoutError:
        raise _closed("the first message does not come to an end", destination, dialer) from None
    except ValueError as error:
        raise _closed(str(error), destination, dialer) from None
    if hello is not None:
        _check_names(hello, destination, dialer)
    elif protocol == "http2":
        raise _closed("HTTP/2 without TLS cannot be checked", destination, dialer)
    elif protocol == "other":
        dialer.check(Destination("http", destination.host, destination.port))
    return protocol


async def _recognised(client: SocketStream, data: bytes) -> tuple[Protocol, ClientHello | None]:
    """Return the protocol that begins with `data`, and the hello of TLS. ValueError for a bad one."""
    reader, known = HelloReader(), 0
    while True:
        protocol = protocol_of(data)
        hello = reader.feed(data[known:]) if protocol == "tls" else None
        if protocol != "more" and (protocol != "tls" or hello is not None):
            return protocol, hello
        # A beginning of TLS is known by its first byte, so the reader misses nothing.
        known = len(data)
        data = await client.peek(known)
        if len(data) == known:
            raise EOFError


def _check_names(hello: ClientHello, destination: Destination, dialer: Dialer) -> None:
    if hello.server_name is not None:
        try:
            asked = normal_host(hello.server_name)
        except ValueError:
            asked = hello.server_name[:254]  # One more than a host has: cut to 253 it could be the tunnel's.
        # Many sites share an address: the name in the hello would choose another one (domain fronting).
        if asked != destination.host:
            reason = f"TLS asks for {asked} in a tunnel to {destination.host}"
            raise dialer.denied(HostRefusal(asked, destination.port, reason))
    if hello.encrypted and not dialer.policy.allows_any_name:
        reason = "its TLS hello may hide another host's name (Encrypted Client Hello; turn it off)"
        raise _closed(reason, destination, dialer)


def _closed(reason: str, destination: Destination, dialer: Dialer) -> Denied:
    reason = f"the tunnel to {destination.authority} was closed: {reason}"
    return dialer.denied(HostRefusal(destination.host, destination.port, reason))


async def _one_request(
    client: SocketStream, server: SocketStream, destination: Destination, dialer: Dialer
) -> None:
    """Forward the HTTP request that the client sends into the tunnel, like one to the proxy itself."""
    try:
        try:
            async with asyncio.timeout(dialer.limits.header_s):
                head = RequestHead.parse(await read_head(client))
        except TimeoutError:
            raise _closed("the request's head does not come to an end", destination, dialer) from None
        if not head.target.startswith("/"):
            raise BadMessage("a request inside a tunnel must have a path as its target")
        plain = Destination("http", destination.host, destination.port)
        there = Destination.parse(f"http://{plain.authority}{head.target}")
        dialer.check(there)
        await forward(client, server, head, there, dialer.limits.idle_s)
    except BadMessage as error:
        await client.send(plain_answer(error.status, error.text))
    except ValueError as error:
        await client.send(plain_answer(400, str(error)))
    except Denied as denied:
        await client.send(plain_answer(403, denied.refusal.text))
    await client.linger()


async def _copy(source: SocketStream, target: SocketStream) -> None:
    """Copy all bytes and the end. A broken side ends both, so that nobody waits for the other half."""
    try:
        while data := await source.receive():
            await target.send(data)
        target.finish()
    except OSError:
        source.abort()
        target.abort()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
