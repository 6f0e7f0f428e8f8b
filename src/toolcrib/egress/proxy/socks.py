"""The proxy's SOCKS5 side: CONNECT without authentication, names resolved here (RFC 1928)."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv6Address

from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.proxy.gate import Gate, Unreachable
from toolcrib.egress.proxy.refusal import Denied, Refusal
from toolcrib.egress.proxy.tunnel import tunnel
from toolcrib.egress.proxy.wire import Wire

__all__ = ["VERSION", "serve_socks"]

VERSION = 5
_CONNECT = 1
_COMMANDS = {2: "BIND", 3: "UDP ASSOCIATE"}
_IPV4, _NAME, _IPV6 = 1, 3, 4
_SUCCEEDED, _NOT_ALLOWED, _NO_COMMAND, _NO_ADDRESS_TYPE = 0, 2, 7, 8
_NO_AUTHENTICATION = b"\x05\x00"
_NO_METHOD = b"\x05\xff"


class _Rejected(Exception):
    """The request cannot be served; the reply says why."""

    def __init__(self, reply: int) -> None:
        self.reply = reply


async def serve_socks(client: Wire, gate: Gate, head_limit: asyncio.Timeout) -> None:
    """Serve the one request of a connection; `head_limit` is lifted when it has been read."""
    try:
        if not await _greet(client):
            return
        destination = await _request(client, gate)
        head_limit.reschedule(None)
        server = await gate.connect(destination)
    except (_Rejected, Unreachable, Denied) as error:
        head_limit.reschedule(None)
        await client.send(_reply(_code(error)))
        await client.linger()
        return
    try:
        await client.send(_reply(_SUCCEEDED))
        await tunnel(client, server, destination, gate)
    finally:
        server.close()


async def _greet(client: Wire) -> bool:
    _, count = await client.exactly(2)
    if 0 not in await client.exactly(count):
        await client.send(_NO_METHOD)
        return False
    await client.send(_NO_AUTHENTICATION)
    return True


async def _request(client: Wire, gate: Gate) -> Destination:
    version, command, _, kind = await client.exactly(4)
    if version != VERSION:
        raise EOFError
    if kind == _NAME:
        (size,) = await client.exactly(1)
        host = (await client.exactly(size)).decode("utf-8", "backslashreplace")
    elif kind == _IPV4:
        host = str(IPv4Address(await client.exactly(4)))
    elif kind == _IPV6:
        host = str(IPv6Address(await client.exactly(16)))
    else:
        raise _Rejected(_NO_ADDRESS_TYPE)
    port = int.from_bytes(await client.exactly(2))
    if command != _CONNECT:
        name = _COMMANDS.get(command, f"command {command}")
        gate.denied(Refusal(host, port, f"SOCKS {name} is not offered, only connections by TCP"))
        raise _Rejected(_NO_COMMAND)
    try:
        if port == 0:
            raise ValueError("`0` is not a port (1 to 65535)")
        return Destination("https", normal_host(host), port)
    except ValueError as error:
        gate.denied(Refusal(host, port, str(error)))
        raise _Rejected(_NOT_ALLOWED) from None


def _code(error: _Rejected | Unreachable | Denied) -> int:
    if isinstance(error, Denied):
        return _NOT_ALLOWED
    return error.reply if isinstance(error, _Rejected) else error.socks_reply


def _reply(code: int) -> bytes:
    """A reply with an empty bound address: where we dial from is nobody's business."""
    return bytes((VERSION, code, 0, _IPV4)) + bytes(6)
