"""Tunnels by CONNECT and SOCKS5: only to the server they were opened for, whatever is sent inside."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.certificates import certificate_for
from tests.conftest import need
from tests.integration.egress.proxies import Proxied, listening, proxied, until
from tests.integration.egress.servers import Names, accepting, named, serving
from toolcrib.egress import HostPolicy, HostRefusal, Proxy, ProxyLimits
from toolcrib.egress.proxy.tunnel import MAX_HELLO_BYTES

TINY_RECORD = b"\x16\x03\x01\x00\x01\x00"
NAMES = {"svc.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for `svc.test` and `other.test`."""
    return certificate_for(tmp_path_factory.mktemp("tls"), "svc.test", "other.test")


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def client_tls(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"hello {request.host} {request.raw_path}")


@asynccontextmanager
async def echoing(greeting: bytes = b"") -> AsyncIterator[int]:
    """Run a server that sends `greeting` first and echoes everything."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write(b"bye")

    async with accepting(echo) as port:
        yield port


@asynccontextmanager
async def tunnel(
    how: str, proxy: Proxied, host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a tunnel by CONNECT or SOCKS."""
    if how == "connect":
        reader, writer = await proxy.connected(host, port)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        name = host.encode()
        writer.write(b"\x05\x02\x02\x00")
        assert await reader.readexactly(2) == b"\x05\x00"
        writer.write(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + port.to_bytes(2))
        assert await reader.readexactly(10) == b"\x05\x00\x00\x01" + bytes(6)
    try:
        yield reader, writer
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass


async def asked(
    how: str, proxy: Proxied, port: int, context: ssl.SSLContext, name: str, host: str = "svc.test"
) -> bytes:
    """Return the server's answer over TLS for `name` in a tunnel to `host`."""
    async with tunnel(how, proxy, host, port) as (reader, writer):
        await writer.start_tls(context, server_hostname=name)
        writer.write(b"GET /x HTTP/1.1\r\nHost: inside\r\nConnection: close\r\n\r\n")
        return await asyncio.wait_for(reader.read(), 100)


both_ways = pytest.mark.parametrize("how", ["connect", "socks"])


@both_ways
async def test_tls_goes_through_to_the_named_server(
    how: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with serving(hello, server_tls) as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        assert (await asked(how, proxy, port, client_tls, "svc.test")).endswith(b"hello inside /x")
        assert (await asked(how, proxy, port, client_tls, "SVC.test")).endswith(b"hello inside /x")
    assert proxy.refused == []


@both_ways
async def test_tls_for_another_name_is_cut_off_before_the_server_sees_it(
    how: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    seen: list[object] = []
    server_tls.sni_callback = lambda *args: seen.append(args)
    async with serving(hello, server_tls) as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        with pytest.raises((ssl.SSLError, OSError)):
            await asked(how, proxy, port, client_tls, "other.test")
    assert proxy.refused == [
        HostRefusal("other.test", port, "TLS asks for other.test in a tunnel to svc.test")
    ]
    assert seen == []


async def test_a_name_too_long_for_a_host_is_another_one(client_tls: ssl.SSLContext) -> None:
    longest = ".".join((*["a" * 63] * 3, "a" * 61))
    async with (
        echoing() as port,
        proxied(named(f"{longest}:{port}"), {longest: [["127.0.0.1"]]}) as proxy,
        tunnel("connect", proxy, longest, port) as (reader, writer),
    ):
        writer.write(first_flight(client_tls, f"{longest}b"))
        writer.write_eof()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 100) == b""
    assert len(proxy.refused) == 1


@both_ways
async def test_tls_that_names_nobody_goes_through(
    how: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    client_tls.check_hostname = False
    async with serving(hello, server_tls) as port, proxied(named(f"127.0.0.1:{port}")) as proxy:
        answer = await asked(how, proxy, port, client_tls, "127.0.0.1", "127.0.0.1")
        assert answer.endswith(b"hello inside /x")
        with pytest.raises((ssl.SSLError, OSError)):
            await asked(how, proxy, port, client_tls, "svc.test", "127.0.0.1")
    assert [it.host for it in proxy.refused] == ["svc.test"]


async def test_aiohttp_and_curl_by_https(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, certificate: Path
) -> None:
    async with (
        serving(hello, server_tls) as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
        aiohttp.ClientSession() as session,
    ):
        url = f"https://svc.test:{port}/a"
        async with session.get(url, proxy=proxy.url, ssl=client_tls) as answer:
            assert await answer.text() == f"hello svc.test:{port} /a"
        with pytest.raises(aiohttp.ClientHttpProxyError) as caught:
            await session.get(f"https://other.test:{port}/", proxy=proxy.url, ssl=client_tls)
        assert caught.value.status == 403
        need("curl", shutil.which("curl") is not None)
        for way in (proxy.url, f"socks5h://127.0.0.1:{proxy.port}"):
            process = await asyncio.create_subprocess_exec(
                "curl", "-sS", "--max-time", "10", "--cacert", str(certificate), "-x", way, url,
                stdout=-1, stderr=-2, env={"PATH": os.environ["PATH"]},
            )  # fmt: skip
            output, _ = await process.communicate()
            assert output.decode() == f"hello svc.test:{port} /a"


def first_flight(context: ssl.SSLContext, name: str) -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("name", ["svc.test", "other.test"])
async def test_a_hello_in_many_records_and_packets_is_still_read(
    client_tls: ssl.SSLContext, size: int, name: str
) -> None:
    message = first_flight(client_tls, name)[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    data = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece for piece in pieces)
    async with (
        echoing() as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
        tunnel("connect", proxy, "svc.test", port) as (reader, writer),
    ):
        for at in range(0, len(data), 50):
            writer.write(data[at : at + 50])
            await asyncio.sleep(0)
        writer.write_eof()
        try:
            got = await asyncio.wait_for(reader.read(), 100)
        except ConnectionError:
            got = b""
    assert got == (data + b"bye" if name == "svc.test" else b"")
    assert len(proxy.refused) == (name != "svc.test")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x15\x03\x01\x00\x02\x01\x00", "not a handshake"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "not a client's hello"),
        (b"\x16\x03\x01\x00\x00", "no possible length"),
        (b"\x16\x03\x01\x40\x00\x01\x00\x7f\xf0" + bytes(16380) + TINY_RECORD * 4000, "too long"),
        (b"\x16\x03\x01\x02\x00\x01", "does not come to an end"),
        (b"\x16", "does not come to an end"),
        (b"\x16\x00plain", "not a handshake"),
        (b"\x16\x02\x01\x00\x04\x01\x00\x00\x00", "not a handshake"),
        (b"GE", "does not come to an end"),
        (b"GET / HT", "does not come to an end"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 without TLS"),
    ],
)  # fmt: skip
@both_ways
async def test_what_cannot_be_checked_is_cut_off(how: str, data: bytes, reason: str) -> None:
    assert len(data) < 2 * MAX_HELLO_BYTES
    async with (
        echoing() as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
        tunnel(how, proxy, "svc.test", port) as (reader, writer),
    ):
        if "an end" in reason:
            proxy.proxy._dialer.limits = ProxyLimits(header_s=0.3)
        writer.write(data)
        try:
            answer = await asyncio.wait_for(reader.read(), 100)
            assert answer.startswith(b"HTTP/1.1 403 ") if data.startswith(b"GET") else answer == b""
        except ConnectionError:
            pass
        (refused,) = proxy.refused
    assert (refused.host, refused.port, refused.grant) == ("svc.test", port, None)
    assert reason in refused.reason


async def test_a_hello_that_may_hide_another_name_needs_a_policy_for_any_name(
    client_tls: ssl.SSLContext,
) -> None:
    flight = first_flight(client_tls, "svc.test")
    hidden = b"\xfe\x0d\x00\x01\x00"
    # Extensions are the last thing in the message: lengthen their vector, the message and the record.
    body = bytearray(flight[9:])
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    body[at : at + 2] = (int.from_bytes(body[at : at + 2]) + len(hidden)).to_bytes(2)
    message = b"\x01" + (len(body) + len(hidden)).to_bytes(3) + body + hidden
    data = b"\x16\x03\x01" + len(message).to_bytes(2) + message

    checked: list[tuple[str, int, bool]] = []
    for anything, through in ((False, False), (True, True)):
        async with (
            echoing() as port,
            proxied(
                replace(
                    named(f"svc.test:{port}"), any_public=anything, on_check=lambda *it: checked.append(it)
                ),
                NAMES,
            ) as proxy,
            tunnel("connect", proxy, "svc.test", port) as (reader, writer),
        ):
            writer.write(data)
            writer.write_eof()
            assert (await asyncio.wait_for(reader.read(), 100) == data + b"bye") is through
        assert ["Encrypted Client Hello" in it.reason for it in proxy.refused] == ([] if through else [True])
    assert {host for host, _, _ in checked} == {"svc.test"}


@both_ways
async def test_plain_http_in_a_tunnel_is_one_request_to_the_tunnels_host(how: str) -> None:
    async with serving(hello) as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        async with tunnel(how, proxy, "svc.test", port) as (reader, writer):
            writer.write(b"GET /1 HTTP/1.1\r\nHost: other.test\r\n")
            await asyncio.sleep(0.01)
            writer.write(b"\r\nGET /2 HTTP/1.1\r\nHost: other.test\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 100)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert answer.endswith(f"hello svc.test:{port} /1".encode())
        for line in (
            b"GET http://other.test/ HTTP/1.1",
            b"\r\nGET / HTTP/1.1",
            b"GET  / HTTP/1.1",
            b"X\t/ HTTP/1.1",
            b"GET /",
            b"GET http://other.test/",
            b"\x0bGET\x0b/",
            b"X http://other.test/x",
        ):
            async with tunnel(how, proxy, "svc.test", port) as (reader, writer):
                writer.write(line + b"\r\nHost: other.test\r\n\r\n")
                assert (await asyncio.wait_for(reader.read(), 100)).startswith(b"HTTP/1.1 400 ")


async def test_a_wildcard_leads_to_public_addresses_only() -> None:
    async with proxied(named("*.test"), NAMES) as proxy:
        assert b" 403 " in await proxy.talk(b"CONNECT svc.test:443 HTTP/1.1\r\n\r\n")
        reply = await proxy.talk(b"\x05\x01\x00", b"\x05\x01\x00\x03\x08svc.test\x01\xbb")
        assert reply[2:4] == b"\x05\x02"
    (refused,) = proxy.refused
    assert refused.reason == "svc.test resolves to 127.0.0.1, a loopback address"
    assert refused.grant == "permissions.network: {allow: [svc.test]}"


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"EHLO me\r\n", b"\x00\x01"])
async def test_a_policy_that_requires_encryption_is_checked_again_without_it(sent: bytes) -> None:
    class OnlyTls(HostPolicy):
        def check(self, destination):  # type: ignore[no-untyped-def]  # the test's own policy
            if destination.scheme == "http":
                named("nothing.test").check(destination)
            return True

    async with (
        echoing(b"220 hi\r\n") as port,
        proxied(OnlyTls(), NAMES) as proxy,
        tunnel("connect", proxy, "svc.test", port) as (reader, writer),
    ):
        assert await reader.readline() == b"220 hi\r\n"
        writer.write(sent)
        try:
            answer = await asyncio.wait_for(reader.read(), 100)
        except ConnectionError:
            answer = b""
        assert answer.startswith(b"HTTP/1.1 403 ") or not sent.startswith(b"GET")
        assert b"EHLO" not in answer
    assert [it.host for it in proxy.refused] == ["svc.test"]


@both_ways
@pytest.mark.parametrize(
    "sent", [b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"SSH-2.0-x\r\n", b"*1\r\n$4\r\nPING\r\n"]
)
async def test_other_protocols_pass_whoever_speaks_first(how: str, sent: bytes) -> None:
    async with (
        echoing(b"220 ready\r\n") as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
        tunnel(how, proxy, "svc.test", port) as (reader, writer),
    ):
        assert await reader.readline() == b"220 ready\r\n"
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.write_eof()
        assert await reader.read() == b"bye"


async def test_bytes_sent_with_the_request_are_not_lost() -> None:
    async with echoing() as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        connect = f"CONNECT svc.test:{port} HTTP/1.1\r\n\r\n".encode()
        assert (await proxy.talk(connect + b"\x00early", end=True)).endswith(b"\r\n\r\n\x00earlybye")
        request = b"\x05\x01\x00\x03\x08svc.test" + port.to_bytes(2)
        answer = await proxy.talk(b"\x05\x01\x00" + request + b"\x00early", end=True)
        assert answer.endswith(bytes(6) + b"\x00earlybye")


async def test_a_large_tunnel_loses_nothing() -> None:
    whole = b"\x00" + os.urandom(1 << 20) * 8
    async with (
        echoing() as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
        tunnel("connect", proxy, "svc.test", port) as (reader, writer),
    ):

        async def send() -> None:
            for at in range(0, len(whole), 100_000):
                writer.write(whole[at : at + 100_000])
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        assert await asyncio.wait_for(reader.read(), 100) == whole + b"bye"
        await sending


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (b"\x05\x01\x00\x03\x0aother.test\x00\x19", 2),
        (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", 2),
        (b"\x05\x01\x00\x01\xa9\xfe\xa9\xfe\x00\x50", 2),
        (b"\x05\x01\x00\x04" + bytes(10) + b"\xff\xff\x7f\x00\x00\x01\x00\x50", 2),
        (b"\x05\x01\x00\x03\x0a2130706433\x00\x50", 2),
        (b"\x05\x01\x00\x03\x08svc.test\x00\x00", 2),
        (b"\x05\x01\x00\x03\x00\x00\x50", 2),
        (b"\x05\x01\x00\x03\x04a\x00\xffb\x00\x50", 2),
        (b"\x05\x02\x00\x03\x08svc.test\x00\x50", 7),
        (b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", 7),
        (b"\x05\x09\x00\x03\x08svc.test\x00\x50", 7),
        (b"\x05\x01\x00\x02\x08svc.test\x00\x50", 8),
    ],
)
async def test_socks_refuses_what_http_refuses(request_: bytes, reply: int) -> None:
    async with proxied(named("svc.test"), NAMES) as proxy:
        answer = await proxy.talk(b"\x05\x01\x00", request_)
    assert answer == b"\x05\x00\x05" + bytes([reply]) + b"\x00\x01" + bytes(6)
    assert len(proxy.refused) == (reply != 8)


@pytest.mark.parametrize("data", [b"\x05\x00", b"\x05\x01\x02", b"\x05\x02\x01\x02"])
async def test_socks_has_no_authentication(data: bytes) -> None:
    async with proxied(named("svc.test"), NAMES) as proxy:
        assert await proxy.talk(data) == b"\x05\xff"


async def test_addresses_by_socks_are_connected_to_as_they_are() -> None:
    async with echoing() as port, proxied(named(f"127.0.0.1:{port}")) as proxy:
        request = b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2)
        assert (await proxy.talk(b"\x05\x01\x00", request + b"\x00x", end=True)).endswith(b"\x00xbye")


@both_ways
async def test_a_tunnel_in_which_nothing_moves_is_closed(how: str) -> None:
    async with (
        echoing() as port,
        proxied(named(f"svc.test:{port}"), NAMES, ProxyLimits(idle_s=2)) as proxy,
        tunnel(how, proxy, "svc.test", port) as (reader, writer),
    ):
        for _ in range(5):  # alive for longer than the limit as long as it moves
            writer.write(b"\x00")
            assert await reader.readexactly(1) == b"\x00"
            await asyncio.sleep(0.5)
        assert await asyncio.wait_for(reader.read(), 100) == b""


async def test_a_client_that_only_listens_may() -> None:
    async with echoing(b"news") as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        answer = await proxy.talk(f"CONNECT svc.test:{port} HTTP/1.1\r\n\r\n".encode(), end=True)
    assert answer.endswith(b"newsbye")


async def test_a_side_that_vanishes_ends_the_tunnel() -> None:
    async with echoing() as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        for _ in range(20):
            _, writer = await proxy.connected("svc.test", port)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.write(b"\x00half")
            writer.transport.abort()  # a reset
        await until(lambda: proxy.proxy.connections == 0)


async def test_closing_ends_open_tunnels_and_half_made_ones_at_once() -> None:
    class Never:
        async def resolve(self, host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return []

    async with echoing() as port:
        listener = listening()
        address = int(listener.getsockname()[1])
        policy = named(f"127.0.0.1:{port}", "slow.test")
        proxy = Proxy(listener, policy, on_refusal=lambda _: None, resolver=Never())
        proxy.start()
        client = Proxied(proxy, address)
        streams = [await client.connected("127.0.0.1", port) for _ in range(5)]
        for sent in (b"", b"GET http://slow", b"GET http://slow.test/ HTTP/1.1\r\n\r\n", b"\x05"):
            reader, writer = await asyncio.open_connection("127.0.0.1", address)
            writer.write(sent)
            streams.append((reader, writer))
        await until(lambda: proxy.connections == 9)
        late = await asyncio.open_connection("127.0.0.1", address)
        streams.append(late)
        await proxy.aclose()
        await proxy.aclose()
        assert proxy.connections == 0
        for reader, writer in streams:
            try:
                await asyncio.wait_for(reader.read(), 100)
            except ConnectionError:
                pass
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", address)


async def test_only_allowed_names_are_resolved() -> None:
    names = Names({"svc.test": [["127.0.0.1"]]})
    listener = listening()
    async with Proxy(listener, named("svc.test:1"), on_refusal=lambda _: None, resolver=names) as proxy:
        client = Proxied(proxy, int(listener.getsockname()[1]))
        await client.talk(b"GET http://secret-data.evil.test/ HTTP/1.1\r\n\r\n")
        await client.talk(b"CONNECT secret-data.evil.test:443 HTTP/1.1\r\n\r\n")
        await client.talk(b"\x05\x01\x00", b"\x05\x01\x00\x03\x09evil.test\x01\xbb")
        assert names.asked == []
