"""A tunnel to one destination (CONNECT, SOCKS), and the look at the first bytes sent into it.

TLS may only ask for the server that the tunnel was opened to: behind one address there may be many hosts,
and the name in the hello chooses among them. Plain HTTP has such a name too, so it is passed on as one
request with its Host rewritten. What begins as either is held to it. Other protocols choose no host and
pass, where the policy allows the destination without encryption. Not seen: names inside TLS, and TLS that
begins in the middle (STARTTLS).
"""

from __future__ import annotations

import asyncio
import re
from typing import Literal

from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.proxy.client_hello import ClientHello, HelloReader
from toolcrib.egress.proxy.exchange import exchange
from toolcrib.egress.proxy.gate import Gate
from toolcrib.egress.proxy.head import MAX_HEAD_BYTES, BadMessage, RequestHead, plain_answer, read_head
from toolcrib.egress.proxy.refusal import Denied, Refusal
from toolcrib.egress.proxy.wire import Idle, Wire

__all__ = ["Speech", "speech_of", "tunnel"]

Speech = Literal["more", "tls", "http", "http2", "other"]
_BLANKS = b"\t\n\v\f\r \x1c\x1d\x1e\x1f"  # what some server takes for one, or passes over before a request
_TEXT = re.compile(rb"[\t-\r\x1c-\x7e\x80-\xff]*")
_HTTP2 = b"PRI * HTTP/2"
_REQUEST = re.compile(
    rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT)[\t\v-\r\x1c-\x20]"
    rb"|(?![0-9a-f]{4}git-)[!#$%&'*+.^_`|~0-9A-Za-z-]+[\t\v-\r\x1c-\x20]+(?:/|[A-Za-z][A-Za-z0-9+.-]*://)"
)
"""How a request begins, also one that states no version (HTTP/0.9): a server may read a Host after it.
Git's own protocol begins alike, with a length and a command for a method."""


def speech_of(data: bytes | bytearray) -> Speech:
    """What protocol a client that begins with `data` speaks; `more` while that is open."""
    if not data:
        return "more"
    # Every TLS record type, for servers skip some before the hello; of any version, for they skip that too.
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


async def tunnel(client: Wire, server: Wire, destination: Destination, gate: Gate) -> None:
    """Pass bytes both ways until both sides have ended, once the client's first ones have been checked."""
    back = asyncio.create_task(_copy(server, client))
    try:
        async with Idle(gate.limits.idle_s, client, server):
            speech = await _first_words(client, destination, gate)
            if speech != "http":
                await _copy(client, server)
                await back
                return
        await _stop(back)
        await _one_request(client, server, destination, gate)
    except (TimeoutError, EOFError, OSError, Denied):
        pass
    finally:
        await _stop(back)


async def _first_words(client: Wire, destination: Destination, gate: Gate) -> Speech:
    """Wait for the first bytes and check them; they are read again afterwards. Raises Denied, EOFError."""
    data = bytearray(await client.receive())
    if not data:
        return "other"  # the client only listens
    reader = HelloReader()
    try:
        speech, hello = _understood(data, reader, bytes(data))
        if speech == "more":
            async with asyncio.timeout(gate.limits.header_s):
                while speech == "more":
                    piece = await _more(client)
                    data += piece
                    speech, hello = _understood(data, reader, piece)
    except TimeoutError:
        raise _protocol(gate, destination, "the first message does not come to an end") from None
    except ValueError as error:
        raise _protocol(gate, destination, str(error)) from None
    client.put_back(data)
    if hello is not None:
        _check_names(hello, destination, gate)
    elif speech == "http2":
        raise _protocol(gate, destination, "HTTP/2 without TLS cannot be checked")
    elif speech == "other":
        gate.check(Destination("http", destination.host, destination.port))
    return speech


def _understood(data: bytearray, reader: HelloReader, piece: bytes) -> tuple[Speech, ClientHello | None]:
    """What is spoken, and for TLS its hello; `more` while either is open. ValueError: not a hello."""
    speech = speech_of(data)
    if speech != "tls":
        return speech, None
    hello = reader.feed(piece)
    return ("more" if hello is None else speech), hello


async def _more(client: Wire) -> bytes:
    piece = await client.receive()
    if not piece:
        raise EOFError
    return piece


def _check_names(hello: ClientHello, destination: Destination, gate: Gate) -> None:
    if hello.server_name is not None:
        try:
            asked = normal_host(hello.server_name)
        except ValueError:
            asked = hello.server_name[:253]
        if asked != destination.host:
            reason = f"TLS asks for {asked} in a tunnel to {destination.host}"
            raise gate.denied(Refusal(asked, destination.port, reason))
    if hello.encrypted and not gate.lets_any_name_through(destination.port):
        reason = "its TLS hello may hide another host's name (Encrypted Client Hello; turn it off)"
        raise _protocol(gate, destination, reason)


def _protocol(gate: Gate, destination: Destination, reason: str) -> Denied:
    reason = f"the tunnel to {destination.authority} was closed: {reason}"
    return gate.denied(Refusal(destination.host, destination.port, reason))


async def _one_request(client: Wire, server: Wire, destination: Destination, gate: Gate) -> None:
    """The HTTP request that the client sends into the tunnel, as if it had been put to the proxy."""
    try:
        try:
            async with asyncio.timeout(gate.limits.header_s):
                raw = await read_head(client)
        except TimeoutError:
            raise _protocol(gate, destination, "the request's head does not come to an end") from None
        head = RequestHead.parse(raw)
        if not head.target.startswith("/"):
            raise BadMessage("a request inside a tunnel must have a path as its target")
        there = Destination.parse(
            f"http://{Destination('http', destination.host, destination.port).authority}{head.target}"
        )
        gate.check(there)
        await exchange(client, server, head, there, gate.limits.idle_s)
    except BadMessage as error:
        await client.send(plain_answer(error.status, error.text))
    except ValueError as error:
        await client.send(plain_answer(400, str(error)))
    except Denied as denied:
        await client.send(plain_answer(403, denied.refusal.text))
    await client.linger()


async def _copy(source: Wire, target: Wire) -> None:
    """Pass on all bytes and the end. A broken side ends both, so that nobody waits for the other half."""
    try:
        while data := await source.receive():
            await target.send(data)
            await target.share()
        target.finish()
    except OSError:
        source.abort()
        target.abort()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
