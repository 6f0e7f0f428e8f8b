"""The proxy's SOCKS5 side: CONNECT without authentication; the proxy resolves the names (RFC 1928)."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv6Address

from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.proxy.dialer import Dialer, Unreachable
from toolcrib.egress.proxy.refusal import Denied, HostRefusal
from toolcrib.egress.proxy.stream import SocketStream
from toolcrib.egress.proxy.tunnel import tunnel

VERSION = b"\x05"
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_SUCCEEDED, _NOT_ALLOWED, _NO_COMMAND, _NO_ADDRESS_TYPE = 0, 2, 7, 8
_NO_AUTHENTICATION = VERSION + b"\x00"
_NO_METHOD = VERSION + b"\xff"


class _SocksError(Exception):
    """The request cannot be served; `reply` is the code for the client."""

    def __init__(self, reply: int) -> None:
        self.reply = reply


async def serve_socks(client: SocketStream, dialer: Dialer) -> None:
    """Serve the one request of a connection."""
    try:
        async with asyncio.timeout(dialer.limits.header_s):
            if not await _greet(client):
                return
            destination = await _request(client, dialer)
        server = await dialer.connect(destination)
    except _SocksError as error:
        await _refuse(client, error.reply)
    except Unreachable as error:
        await _refuse(client, error.socks_reply)
    except Denied:
        await _refuse(client, _NOT_ALLOWED)
    else:
        try:
            await client.send(_reply(_SUCCEEDED))
            await tunnel(client, server, destination, dialer)
        finally:
            server.close()


async def _greet(client: SocketStream) -> bool:
    _, count = await client.exactly(2)
    accepted = 0 in await client.exactly(count)
    await client.send(_NO_AUTHENTICATION if accepted else _NO_METHOD)
    return accepted


async def _request(client: SocketStream, dialer: Dialer) -> Destination:
    version, command, _, kind = await client.exactly(4)
    if version != VERSION[0]:
        raise EOFError
    if kind == _NAME:
        (size,) = await client.exactly(1)
        # Not refused here: the reason and the name belong in the report of refused hosts.
        host = (await client.exactly(size)).decode("utf-8", "backslashreplace")
    elif kind == _IPV4:
        host = str(IPv4Address(await client.exactly(4)))
    elif kind == _IPV6:
        host = str(IPv6Address(await client.exactly(16)))
    else:
        raise _SocksError(_NO_ADDRESS_TYPE)
    port = int.from_bytes(await client.exactly(2))
    if command != _CONNECT:
        reason = f"SOCKS command {command} is not supported, only CONNECT (TCP)"
        dialer.denied(HostRefusal(host, port, reason))
        raise _SocksError(_NO_COMMAND)
    try:
        if port == 0:
            raise ValueError("`0` is not a port (1 to 65535)")
        return Destination("https", normal_host(host), port)
    except ValueError as error:
        raise dialer.denied(HostRefusal(host, port, str(error))) from None


async def _refuse(client: SocketStream, code: int) -> None:
    await client.send(_reply(code))
    await client.linger()


def _reply(code: int) -> bytes:
    """Return a reply with an empty bound address: a program need not know the proxy's own."""
    return VERSION + bytes((code, 0, _IPV4)) + bytes(6)
