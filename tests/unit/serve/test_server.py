"""The head of an HTTP request has a limit in bytes and one in time."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.types import Receive, Scope, Send

from toolcrib.serve.http.server import MAX_HEAD, open_socket, serve_app

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


@asynccontextmanager
async def served(
    head_s: float, release: asyncio.Event, entered: asyncio.Event | None = None
) -> AsyncIterator[int]:
    """Serve an application that sets `entered` and answers once `release` is set; yield the port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if entered is not None:
            entered.set()
        await release.wait()
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})

    listening = open_socket("127.0.0.1", 0)
    serving = asyncio.create_task(serve_app(app, listening, asyncio.Event(), head_s))
    try:
        yield listening.getsockname()[1]
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        listening.close()


async def test_a_connection_without_a_whole_head_is_closed() -> None:
    async with served(0.1, asyncio.Event()) as port:
        for sent in (b"", GET):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()


async def test_a_server_that_nobody_asks_sleeps() -> None:
    release = asyncio.Event()
    release.set()
    async with served(2, release) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"ok")
        writer.close()
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        await asyncio.sleep(1.5)
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 8


async def test_half_a_head_does_not_end_the_answer_before_it() -> None:
    release, entered = asyncio.Event(), asyncio.Event()
    async with served(2, release, entered) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await entered.wait()
        writer.write(GET)
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for other, _ in others:
            assert await other.read() == b""  # so the time of the first one is over too
        release.set()
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        for one in (writer, *(other for _, other in others)):
            one.close()


async def refused(reader: asyncio.StreamReader, status: bytes, code: str) -> None:
    """Read the answer to what is no request: JSON, with the headers of every answer, and its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %b\r\n" % status)
    lines = (
        b"content-type: application/json",
        b"x-content-type-options: nosniff",
        b"connection: close",
        b"date",
    )
    assert [line for line in lines if b"\r\n" + line not in head] == []
    assert json.loads(await reader.read())["error"]["code"] == code


async def test_a_long_head_is_refused_while_it_comes() -> None:
    async with served(30, asyncio.Event()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        line = b"X-A: " + b"a" * 1_000 + b"\r\n"
        for _ in range(MAX_HEAD // len(line) + 2):
            writer.write(line)
            await asyncio.sleep(0)
        await refused(reader, b"431 Request Header Fields Too Large", "too_large")
        writer.close()


async def test_what_is_no_request_is_refused_in_the_form_of_all_errors() -> None:
    async with served(30, asyncio.Event()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n")
        await refused(reader, b"400 Bad Request", "invalid_input")
        writer.close()


async def answered_early(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose request was answered before its body of 5 bytes came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    return reader, writer


async def flood(writer: asyncio.StreamWriter) -> None:
    for _ in range(256):
        writer.write(b"a" * MAX_HEAD)
        await writer.drain()


async def test_a_head_after_a_body_that_came_too_late_has_its_limits_too() -> None:
    release = asyncio.Event()
    release.set()
    async with served(30, release) as port:
        _, writer = await answered_early(port)
        writer.write(b"12345" + GET + b"X-A: ")
        with pytest.raises(ConnectionError):
            await flood(writer)
        writer.close()


async def test_the_rest_of_a_body_is_not_taken_for_ever() -> None:
    release = asyncio.Event()
    release.set()
    async with served(1, release) as port:
        for sent in (b"1", b"12345" + GET):
            reader, writer = await answered_early(port)
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()


async def test_a_request_after_an_early_answer_is_answered() -> None:
    release = asyncio.Event()
    release.set()
    async with served(30, release) as port:
        reader, writer = await answered_early(port)
        writer.write(b"12345" + GET + b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()
