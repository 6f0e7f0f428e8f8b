"""One connection, one request: smuggling by clients and servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.integration.egress.proxies import QUICK, Proxied, proxied
from tests.integration.egress.servers import named, raw
from toolcrib.egress import ProxyLimits

NAMES = {"svc.test": [["127.0.0.1"]]}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Seen:
    """A server that records every byte, answers once, and keeps the connection open."""

    port: int = 0
    received: list[bytearray] = field(default_factory=list)

    @property
    def bytes(self) -> bytes:
        return b"|".join(bytes(data) for data in self.received)


@asynccontextmanager
async def seeing(answer: bytes = OK, after: bytes = b"\r\n\r\n") -> AsyncIterator[Seen]:
    seen = Seen()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = bytearray()
        seen.received.append(data)
        answered = False
        try:
            while piece := await reader.read(65536):
                data += piece
                if not answered and after in data:
                    answered = True
                    writer.write(answer)
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    seen.port = int(server.sockets[0].getsockname()[1])
    try:
        yield seen
    finally:
        server.close()


@asynccontextmanager
async def both(
    answer: bytes = OK, after: bytes = b"\r\n\r\n", limits: ProxyLimits | None = None
) -> AsyncIterator[tuple[Seen, Proxied]]:
    async with seeing(answer, after) as seen, proxied(named(f"svc.test:{seen.port}"), NAMES, limits) as proxy:
        yield seen, proxy


async def test_the_request_target_decides_and_host_is_rewritten() -> None:
    async with both() as (seen, proxy):
        url = f"http://svc.test:{seen.port}/x"
        answer = await proxy.talk(f"GET {url} HTTP/1.1\r\nHost: evil.test\r\nX: 1\r\n\r\n".encode())
        host = f"Host: svc.test:{seen.port}".encode()
        assert seen.bytes == b"GET /x HTTP/1.1\r\n" + host + b"\r\nX: 1\r\nConnection: close\r\n\r\n"
        assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        answer = await proxy.talk(
            f"GET http://evil.test/ HTTP/1.1\r\nHost: svc.test:{seen.port}\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 403 ")
    assert len(seen.received) == 1


@pytest.mark.parametrize("together", [True, False])
async def test_a_second_request_is_never_passed_on(together: bool) -> None:
    async with both() as (seen, proxy):
        first = f"GET http://svc.test:{seen.port}/1 HTTP/1.1\r\nConnection: keep-alive\r\n\r\n".encode()
        second = b"GET http://evil.test/2 HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        answer = await proxy.talk(*([first + second] if together else [first, second]))
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.endswith(b"ok")
    assert seen.bytes.count(b"HTTP/1.1") == 1
    assert b"evil" not in seen.bytes


async def test_a_body_of_two_lengths_is_refused() -> None:
    cases = [
        ("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4", "5c\r\nGET / HTTP/1.1\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "0\r\n\r\n"),
        ("Transfer-Encoding: xchunked", "0\r\n\r\n"),
        ("Transfer-Encoding : chunked", "0\r\n\r\n"),
        ("Content-Length: 5\r\nContent-Length: 6", "12345X"),
        ("Content-Length: 5\r\n Transfer-Encoding: chunked", "0\r\n\r\n"),
        ("X: a\nTransfer-Encoding: chunked", "0\r\n\r\n"),
        ("X: a\rTransfer-Encoding: chunked", "0\r\n\r\n"),
    ]
    async with both() as (seen, proxy):
        for headers, body in cases:
            head = f"POST http://svc.test:{seen.port}/ HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n{body}"
            assert (await proxy.talk(head.encode())).startswith(b"HTTP/1.1 400 "), headers
    assert seen.received == []


async def test_chunks_are_written_anew_without_extensions_and_trailers() -> None:
    async with both(after=b"0\r\n\r\n") as (seen, proxy):
        head = f"POST http://svc.test:{seen.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        body = b"00003;x=y\r\nabc\r\n2 \r\nde\r\n0;last\r\nHost: evil.test\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        assert (await proxy.talk(head, body[:4], body[4:9], body[9:])).endswith(b"ok")
    assert seen.bytes.partition(b"\r\n\r\n")[2] == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


async def test_malformed_chunks_end_the_request() -> None:
    bodies = [
     b"3\nabc\r\n0\r\n\r\n", b"3;a\nb\r\nabc\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"-3\r\nabc", b"0x3\r\nabc",
     b"\r\n", b"3 3\r\nabc", b"f" * 16 + b"\r\n", b"0\r\nA: 1\n\r\n", b"3;" + b"x" * 5000,
     b"3;" + b"x" * 5000 + b"\r\nabc\r\n", b"0\r\n" + (b"A: " + b"x" * 4000 + b"\r\n") * 5 + b"\r\n",
    ]  # fmt: skip
    async with both(after=b"0\r\n\r\n") as (seen, proxy):
        head = f"POST http://svc.test:{seen.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        for body in bodies:
            assert (await proxy.talk(head, body)).startswith(b"HTTP/1.1 400 "), body
    assert b"0\r\n\r\n" not in seen.bytes


async def test_nothing_beyond_the_length_is_passed_on() -> None:
    async with both(after=b"12345") as (seen, proxy):
        head = f"POST http://svc.test:{seen.port}/ HTTP/1.1\r\nContent-Length: 5\r\n\r\n".encode()
        assert (await proxy.talk(head + b"123", b"45GET / HTTP/1.1\r\n\r\n")).endswith(b"ok")
    assert seen.bytes.endswith(b"\r\n\r\n12345")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: svc.test\r\n\r\n", 400),
        (b"GET svc.test/ HTTP/1.1\r\n\r\n", 400),
        (b"GET //svc.test/ HTTP/1.1\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", 400),
        (b"GET https://svc.test/ HTTP/1.1\r\n\r\n", 400),
        (b"GET ftp://svc.test/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http:svc.test HTTP/1.1\r\n\r\n", 400),
        (b"GET http://svc.test/#x HTTP/1.1\r\n\r\n", 400),
        (b"GET http://user:hunter2@svc.test/ HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT svc.test HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT http://svc.test:443 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT svc.test:443/x HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT u@svc.test:443 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT svc.test:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 400),
        (b"CONNECT svc.test:25 HTTP/1.1\r\n\r\n", 403),
        (b"GET http://svc.test/ HTTP/1.1\n\n", 400),
        (b"\r\nGET http://svc.test/ HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\x05hello\r\n\r\n", 400),
        (b"\x04\x01\x00\x50\x01\x02\x03\x04x\x00\r\n\r\n", 400),
        (b"GET http://svc.test/ HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
)
async def test_what_is_not_a_request_to_a_proxy_is_refused(request_: bytes, status: int) -> None:
    async with proxied(named("svc.test"), NAMES) as proxy:
        answer = await proxy.talk(request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"hunter2" not in answer.partition(b"\r\n\r\n")[2]
    assert not any("hunter2" in refusal.host for refusal in proxy.refused)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"no http\r\n\r\n", "status line"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "CR LF"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "Content-Length"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "longer than"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, "without end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3 3\r\nabc", "size of a chunk is malformed"),
    ],
)
async def test_an_answer_that_cannot_be_passed_on_is_an_error(answer: bytes, text: str) -> None:
    async with both(answer) as (seen, proxy):
        got = await proxy.talk(f"GET http://svc.test:{seen.port}/ HTTP/1.0\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 502 ")
    assert text in got.decode()


@pytest.mark.parametrize(
    ("version", "answer", "got"),
    [
        (b"1.1", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\nT: 1\r\n\r\nmore",
         b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        (b"1.0", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
         b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"),
        (b"1.1", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
         b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
        (b"1.1", b"HTTP/1.0 200 OK\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 second",
         b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"),
    ],
)  # fmt: skip
async def test_an_answer_ends_where_it_ends(version: bytes, answer: bytes, got: bytes) -> None:
    async with both(answer) as (seen, proxy):
        request = b"GET http://svc.test:%d/ HTTP/%b\r\n\r\n" % (seen.port, version)
        assert await proxy.talk(request) == got


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async with (
        raw(b"HTTP/1.1 200 OK\r\n\r\nall there is") as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
    ):
        answer = await proxy.talk(f"GET http://svc.test:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert answer == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall there is"


async def test_an_answer_that_breaks_off_is_not_completed() -> None:
    cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    async with raw(cut) as port, proxied(named(f"svc.test:{port}"), NAMES) as proxy:
        answer = await proxy.talk(f"GET http://svc.test:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert answer.endswith(b"\r\n\r\n2\r\nab\r\n")


async def test_an_answer_before_the_end_of_the_body_is_forwarded() -> None:
    async with (
        raw(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n") as port,
        proxied(named(f"svc.test:{port}"), NAMES) as proxy,
    ):
        head = f"POST http://svc.test:{port}/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n".encode()
        assert (await proxy.talk(head, b"x" * 1000)).startswith(b"HTTP/1.1 413 ")


async def test_a_client_that_is_still_sending_gets_the_refusal() -> None:
    async with proxied(named("svc.test"), NAMES) as proxy:
        head = b"POST http://evil.test/ HTTP/1.1\r\nContent-Length: 500000\r\n\r\n"
        assert (await proxy.talk(head, b"x" * 500_000)).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((b"GET http://svc",), b"408"),
        ((b"GET http://svc.test/ HTTP/1.1\r\n", b"A: 1\r\n", b"B: 2\r\n"), b"408"),
    ],
)
async def test_a_client_that_never_ends_its_head_gets_408(parts: tuple[bytes, ...], status: bytes) -> None:
    async with proxied(named("svc.test"), NAMES, QUICK) as proxy:
        assert status in await proxy.talk(*parts)
        assert await proxy.talk() == b""
        assert await proxy.talk(b"\x05") == b""
        assert await proxy.talk(b"\x05\x01\x00", b"\x05\x01") == b"\x05\x00"


async def test_a_head_that_drips_is_cut_off_in_time() -> None:
    async with proxied(named("svc.test"), NAMES, QUICK) as proxy, proxy.connection() as (reader, writer):

        async def drip() -> None:
            while True:
                writer.write(b"X")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(100):
            assert b" 408 " in await reader.read()
        dripping.cancel()


async def test_a_server_that_never_answers_ends_with_504() -> None:
    async with both(after=b"never", limits=ProxyLimits(idle_s=0.3)) as (seen, proxy):
        answer = await proxy.talk(f"GET http://svc.test:{seen.port}/ HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 504 ")


async def test_a_client_that_has_finished_sending_still_gets_its_answer() -> None:
    async with both() as (seen, proxy):
        request = f"GET http://svc.test:{seen.port}/ HTTP/1.1\r\n\r\n".encode()
        assert (await proxy.talk(request, end=True)).endswith(b"ok")


async def test_a_client_that_leaves_in_the_middle_of_its_body_ends_the_request() -> None:
    async with both(after=b"never") as (seen, proxy):
        head = f"POST http://svc.test:{seen.port}/ HTTP/1.1\r\nContent-Length: 10\r\n\r\n123".encode()
        answer = await proxy.talk(head, end=True)
    assert answer.startswith(b"HTTP/1.1 502 ")
