"""The first message of a TLS client, and the server name in it (RFC 8446, 4.1.2; RFC 6066, 3)."""

from __future__ import annotations

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
    """As sent, or None."""
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
