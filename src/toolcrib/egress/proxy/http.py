"""The proxy's HTTP side: requests with a whole URL, and CONNECT (RFC 9112, 3.2; RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import re

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.exchange import exchange
from toolcrib.egress.proxy.gate import Gate, Unreachable
from toolcrib.egress.proxy.head import BadMessage, RequestHead, plain_answer, read_head
from toolcrib.egress.proxy.refusal import Denied, Refusal
from toolcrib.egress.proxy.tunnel import tunnel
from toolcrib.egress.proxy.wire import Wire

__all__ = ["serve_http", "too_late"]

_AUTHORITY = re.compile(r"[^/?#@]+:[0-9]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def serve_http(client: Wire, gate: Gate, head_limit: asyncio.Timeout) -> None:
    """Answer the one request of a connection; `head_limit` is lifted when its head has been read.

    Only what the request line asks for decides, never Host.
    """
    try:
        head = RequestHead.parse(await read_head(client))
        head_limit.reschedule(None)
        if head.method == "CONNECT":
            await _connect(client, head, gate)
            return
        await _forward(client, head, gate)
    except BadMessage as error:
        head_limit.reschedule(None)
        await client.send(plain_answer(error.status, error.text))
    except Denied as denied:
        await client.send(plain_answer(403, denied.refusal.text))
    except Unreachable as error:
        await client.send(plain_answer(504 if error.timed_out else 502, error.text))
    await client.linger()


async def too_late(client: Wire, gate: Gate) -> None:
    """Answer a client whose request did not come to an end in time."""
    try:
        await client.send(plain_answer(408, f"no whole request within {gate.limits.header_s:g} s"))
    except OSError:
        return
    await client.linger()


async def _forward(client: Wire, head: RequestHead, gate: Gate) -> None:
    if not _SCHEME.match(head.target):
        raise BadMessage("this is a proxy: the request target must be a whole URL")
    if not head.target[:7].lower() == "http://":
        raise BadMessage("only http:// URLs are passed on so; for https use CONNECT, for others SOCKS5")
    destination = _read(head.target, head.target[7:], gate)
    server = await gate.connect(destination)
    try:
        await exchange(client, server, head, destination, gate.limits.idle_s)
    finally:
        server.close()


async def _connect(client: Wire, head: RequestHead, gate: Gate) -> None:
    if not _AUTHORITY.fullmatch(head.target) or head.body != 0:
        raise BadMessage("CONNECT needs `host:port` and no body")
    destination = _read(f"https://{head.target}", head.target, gate)
    server = await gate.connect(destination)
    try:
        await client.send(_ESTABLISHED)
        await tunnel(client, server, destination, gate)
    finally:
        server.close()


def _read(url: str, authority: str, gate: Gate) -> Destination:
    """The destination; a host that cannot be read is a recorded refusal too."""
    try:
        return Destination.parse(url)
    except ValueError as error:
        reason = str(error)[:400]
        # What stands before an `@` may be a password.
        host = re.split(r"[/?#]", authority, maxsplit=1)[0].rpartition("@")[2][:253]
        if not _readable(host):
            gate.denied(Refusal(host, 0, reason))
        raise BadMessage(reason) from None


def _readable(authority: str) -> bool:
    try:
        Destination.parse(f"http://{authority}")
    except ValueError:
        return False
    return True
