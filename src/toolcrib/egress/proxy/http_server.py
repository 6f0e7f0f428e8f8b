"""The proxy's HTTP side: requests with a whole URL, and CONNECT (RFC 9112, 3.2; RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import re

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.dialer import Dialer, Unreachable
from toolcrib.egress.proxy.forwarding import forward
from toolcrib.egress.proxy.head import BadMessage, RequestHead, plain_answer, read_head
from toolcrib.egress.proxy.refusal import Denied, HostRefusal
from toolcrib.egress.proxy.stream import SocketStream
from toolcrib.egress.proxy.tunnel import tunnel

_AUTHORITY = re.compile(r"[^/?#@]+:[0-9]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def serve_http(client: SocketStream, dialer: Dialer) -> None:
    """Answer the one request of a connection. Its target alone decides where it goes, never Host."""
    try:
        head = await _request(client, dialer.limits.header_s)
        serve = _connect if head.method == "CONNECT" else _forward
        await serve(client, head, dialer)
        if head.method == "CONNECT":
            return
    except BadMessage as error:
        await client.send(plain_answer(error.status, error.text))
    except Denied as denied:
        await client.send(plain_answer(403, denied.refusal.text))
    except Unreachable as error:
        await client.send(plain_answer(504 if error.timed_out else 502, error.text))
    await client.linger()


async def _request(client: SocketStream, seconds: float) -> RequestHead:
    try:
        async with asyncio.timeout(seconds):
            return RequestHead.parse(await read_head(client))
    except TimeoutError:
        raise BadMessage(f"no complete request within {seconds:g} s", 408) from None


async def _forward(client: SocketStream, head: RequestHead, dialer: Dialer) -> None:
    if not _SCHEME.match(head.target):
        raise BadMessage("this is a proxy: the request target must be a whole URL")
    # https in the clear would mean that the proxy makes the TLS connection, and the program could not check
    # it.
    if not head.target[:7].lower() == "http://":
        raise BadMessage("only http:// URLs are forwarded; use CONNECT for https, SOCKS5 for other protocols")
    destination = _destination(head.target, head.target[7:], dialer)
    server = await dialer.connect(destination)
    try:
        await forward(client, server, head, destination, dialer.limits.idle_s)
    finally:
        server.close()


async def _connect(client: SocketStream, head: RequestHead, dialer: Dialer) -> None:
    if not _AUTHORITY.fullmatch(head.target) or head.body != 0:
        raise BadMessage("CONNECT needs `host:port` and no body")
    destination = _destination(f"https://{head.target}", head.target, dialer)
    server = await dialer.connect(destination)
    try:
        await client.send(_ESTABLISHED)
        await tunnel(client, server, destination, dialer)
    finally:
        server.close()


def _destination(url: str, rest: str, dialer: Dialer) -> Destination:
    """Return the destination of `url`, which is a scheme and `rest`; a bad host is recorded as a refusal."""
    try:
        return Destination.parse(url)
    except ValueError as error:
        reason = str(error)[:400]
    # A password may stand before an `@`.
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2][:253]
    try:
        Destination.parse(f"http://{host}")
    except ValueError:
        dialer.denied(HostRefusal(host, 0, reason))
    raise BadMessage(reason)
