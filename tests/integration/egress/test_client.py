"""The guarded client against real servers: it goes where it may, and ends whatever the server does."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import httpx2
import pytest
from aiohttp import web

from tests.integration.egress.servers import Names, named, raw, serving
from toolcrib.egress import Destination, Egress, EgressRequest, HostPolicy, guarded_transport
from toolcrib.errors import HostNotAllowed, HttpFailed, TimedOut
from toolcrib.spec import Network


def local(port: int) -> HostPolicy:
    return named("127.0.0.1", port=port)


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "target": request.raw_path,
            "headers": [[name, value] for name, value in request.headers.items()],
            "body": (await request.read()).decode(),
        }
    )


async def get(port: int, path: str = "/", **more: object) -> bytes:
    async with Egress() as egress:
        request = EgressRequest("GET", f"http://127.0.0.1:{port}{path}", **more)  # type: ignore[arg-type]  # test shorthand
        return (await egress.request(request, local(port))).body


async def test_a_request_arrives_as_it_was_put() -> None:
    async with serving(echo) as port, Egress() as egress:
        answer = await egress.request(
            EgressRequest(
                "POST",
                f"http://127.0.0.1:{port}/a/../..%2Fb/%41?x=%20&y=a%26b",
                [("X-One", "1"), ("Content-Type", "text/plain")],
                b"body",
            ),
            local(port),
        )
    got = json.loads(answer.body)
    assert (got["method"], got["target"], got["body"]) == ("POST", "/a/../..%2Fb/%41?x=%20&y=a%26b", "body")
    headers = dict(got["headers"])
    assert headers["Host"] == f"127.0.0.1:{port}"
    assert (headers["X-One"], headers["User-Agent"]) == ("1", "toolcrib")
    assert (answer.status, answer.content_type, answer.redirects) == (200, "application/json", 0)


async def test_an_error_status_is_an_answer() -> None:
    async with (
        raw(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\nRetry-After: 3\r\n\r\nno") as port,
        Egress() as egress,
    ):
        answer = await egress.request(EgressRequest("GET", f"http://127.0.0.1:{port}/"), local(port))
    assert (answer.status, answer.body, answer.header("RETRY-AFTER")) == (503, b"no", "3")


async def test_a_large_body_is_sent() -> None:
    async def size(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async with serving(size) as port, Egress() as egress:
        request = EgressRequest("PUT", f"http://127.0.0.1:{port}/", body=b"x" * 3_000_000)
        assert (await egress.request(request, local(port))).body == b"3000000"


async def test_a_connection_is_used_again_and_cookies_are_not_kept() -> None:
    ports: set[int] = set()
    cookies: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        cookies.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "session=1; Path=/"})

    async with serving(handler) as port, Egress() as egress:
        for _ in range(3):
            await egress.request(EgressRequest("GET", f"http://127.0.0.1:{port}/"), local(port))
    assert len(ports) == 1
    assert cookies == [None, None, None]


async def test_proxies_from_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as port:
        assert await get(port) == b"ok"


# What a server may do wrong


@pytest.mark.parametrize(
    ("sent", "reason", "retryable"),
    [
        (b"", "disconnected", True),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "disconnected", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it", "incomplete", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "incomplete", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", "malformed", False),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "malformed", False),
        (b"\x16\x03\x01\x02\x00\x01" * 20 + b"\r\n\r\n", "malformed", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "malformed", False),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", "malformed", False),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
            "undecodable",
            False,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\n\x06", "undecodable", False),
    ],
)
async def test_a_broken_answer_is_a_clear_error(sent: bytes, reason: str, retryable: bool) -> None:
    async with raw(sent) as port:
        with pytest.raises(HttpFailed) as caught:
            await get(port, timeout_s=100)
    error = caught.value
    assert (error.details["reason"], error.retryable) == (reason, retryable), error.message
    assert (error.details["host"], error.details["port"]) == ("127.0.0.1", port)


async def test_more_than_was_announced_is_not_read() -> None:
    async with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 evil") as port:
        assert await get(port) == b"ok"


async def test_a_port_where_nobody_listens_is_a_retryable_error() -> None:
    async with raw(b"") as port:
        pass
    with pytest.raises(HttpFailed, match=r"no connection to 127\.0\.0\.1:\d+: Connection refused") as caught:
        await get(port)
    assert (caught.value.details["reason"], caught.value.retryable) == ("connect", True)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def stops_midway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await reader.read()


async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [silent, stops_midway, drips])
async def test_a_timeout_covers_headers_and_body(answer: object) -> None:
    async with raw(answer) as port:  # type: ignore[arg-type]  # a parametrised function
        with pytest.raises(TimedOut, match="within 200 ms") as caught:
            await asyncio.wait_for(get(port, timeout_s=0.2), 100)
    assert caught.value.details["limitMs"] == 200


async def test_a_host_that_does_not_answer_holds_up_no_other() -> None:
    reached = asyncio.Semaphore(0)

    async def silent(*_: object) -> None:
        reached.release()
        await asyncio.Event().wait()

    async with raw(silent) as slow, serving(echo) as quick, Egress() as egress:
        url = f"http://127.0.0.1:{slow}/"
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(egress.request(EgressRequest("GET", url), local(slow))) for _ in range(120)
        ]
        for _ in range(100):
            await reached.acquire()
        request = EgressRequest("GET", f"http://127.0.0.1:{quick}/", timeout_s=100)
        assert (await egress.request(request, local(quick))).status == 200
        # Streams, which stay, are not among the connections for requests.
        streams = [egress.begin("GET", Destination.parse(url), (), None, local(slow)) for _ in range(120)]
        waiting += [asyncio.create_task(stream) for stream in streams]
        for _ in range(120):
            await reached.acquire()
        assert (await egress.request(request, local(quick))).status == 200
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_stream_of_short_lines_leaves_the_event_loop_to_others() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    async with raw(head + b"x\n" * 500_000) as port, Egress() as egress:
        home = Destination.parse(f"http://127.0.0.1:{port}/")
        transport = guarded_transport(egress, local(port), home=home, secrets={})
        async with (
            httpx2.AsyncClient(transport=transport) as client,
            client.stream("GET", home.url) as answer,
        ):
            others = asyncio.create_task(take_turns())
            assert len([line async for line in answer.aiter_lines()]) == 500_000
            others.cancel()
    assert turns >= 1_000_000 // 4_096


async def test_cancelling_ends_the_connection() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()
        gone.set()

    async with raw(waits) as port, Egress() as egress:
        request = EgressRequest("GET", f"http://127.0.0.1:{port}/")
        task = asyncio.create_task(egress.request(request, local(port)))
        await asyncio.wait_for(arrived.wait(), 100)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 100)


async def test_a_flood_is_read_up_to_the_cap_and_cut_off() -> None:
    ended = asyncio.Event()

    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        finally:
            ended.set()

    async with raw(floods) as port, Egress() as egress:
        request = EgressRequest("GET", f"http://127.0.0.1:{port}/", max_response_bytes=100_000)
        answer = await asyncio.wait_for(egress.request(request, local(port)), 100)
        await asyncio.wait_for(ended.wait(), 100)
    assert (len(answer.body), answer.truncated) == (100_000, True)


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15)])
async def test_a_decompression_bomb_counts_decoded_bytes(encoding: str, bits: int) -> None:
    packer = zlib.compressobj(wbits=bits)
    zeros = bytes(1_000_000)
    bomb = b"".join(packer.compress(zeros) for _ in range(200)) + packer.flush()
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    async with raw(head + bomb) as port, Egress() as egress:
        request = EgressRequest("GET", f"http://127.0.0.1:{port}/", max_response_bytes=1_000_000)
        tracemalloc.start()
        answer = await egress.request(request, local(port))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (len(answer.body), answer.truncated) == (1_000_000, True)
    assert peak < 20_000_000


async def test_a_compressed_answer_is_decoded() -> None:
    packed = gzip.compress(b'{"ok": true}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    async with raw(head + packed) as port:
        assert await get(port) == b'{"ok": true}'


# Names and addresses


async def test_a_name_is_resolved_once_and_that_address_is_called() -> None:
    names = Names({"svc.test": [["127.0.0.1"], ["169.254.169.254"]]})
    async with serving(echo) as port, Egress(resolver=names) as egress:
        answer = await egress.request(
            EgressRequest("GET", f"http://svc.test:{port}/"), named("svc.test", port=port)
        )
    assert answer.status == 200
    assert b'"Host", "svc.test:' in answer.body
    assert names.asked == ["svc.test"]


async def test_a_name_that_changes_its_address_is_checked_again() -> None:
    """DNS rebinding: the second answer leads to a metadata service."""
    names = Names({"svc.test": [["127.0.0.1"], ["169.254.169.254"]]})
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    async with raw(closing) as port, Egress(resolver=names) as egress:
        request = EgressRequest("GET", f"http://svc.test:{port}/")
        policy = named("svc.test", port=port)
        assert (await egress.request(request, policy)).body == b"ok"
        with pytest.raises(HostNotAllowed, match=r"169\.254\.169\.254, a metadata address") as caught:
            await egress.request(request, policy)
    assert names.asked == ["svc.test", "svc.test"]
    assert "169.254.169.254 itself" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.7", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "100.64.0.1"]
)
async def test_a_public_tool_is_not_led_to_a_private_address(address: str) -> None:
    called = False

    async def handler(request: web.Request) -> web.Response:
        nonlocal called
        called = True
        return web.Response()

    async with serving(handler) as port, Egress(resolver=Names({"svc.test": [[address]]})) as egress:
        policy = HostPolicy.of(Network("any"), "svc.test", port)
        with pytest.raises(HostNotAllowed, match="resolves to"):
            await egress.request(EgressRequest("GET", f"https://svc.test:{port}/"), policy)
    assert not called


async def test_refused_addresses_in_an_answer_are_left_out() -> None:
    names = Names({"svc.test": [["169.254.169.254", "0.0.0.0", "127.0.0.1"]]})
    async with serving(echo) as port, Egress(resolver=names) as egress:
        request = EgressRequest("GET", f"http://svc.test:{port}/", timeout_s=100)
        assert (await egress.request(request, named("svc.test", port=port))).status == 200


@pytest.mark.parametrize("names", [{}, {"svc.test": [[]]}])
async def test_a_name_without_an_address_is_a_retryable_error(names: dict[str, list[list[str]]]) -> None:
    async with Egress(resolver=Names(names)) as egress:
        with pytest.raises(HttpFailed, match="does not resolve") as caught:
            await egress.request(EgressRequest("GET", "http://svc.test/"), named("svc.test"))
    assert (caught.value.details["reason"], caught.value.retryable) == ("dns", True)


@pytest.mark.parametrize(
    "url", ["https://other.test/", "http://169.254.169.254/latest/meta-data", "http://0.0.0.0/"]
)
async def test_what_is_not_listed_is_not_even_resolved(url: str) -> None:
    names = Names({})
    async with Egress(resolver=names) as egress:
        with pytest.raises(HostNotAllowed):
            await egress.request(EgressRequest("GET", url), named("svc.test"))
    assert names.asked == []


def test_one_client_serves_several_event_loops() -> None:
    egress = Egress()

    async def main(last: bool) -> bytes:
        async with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") as port:
            answer = await egress.request(EgressRequest("GET", f"http://127.0.0.1:{port}/"), local(port))
        if last:
            await egress.aclose()
        return answer.body

    assert [asyncio.run(main(last)) for last in (False, False, True)] == [b"ok"] * 3


async def test_after_closing_it_opens_anew() -> None:
    async with serving(echo) as port:
        egress = Egress()
        request = EgressRequest("GET", f"http://127.0.0.1:{port}/")
        for _ in range(2):
            assert (await egress.request(request, local(port))).status == 200
            await egress.aclose()
