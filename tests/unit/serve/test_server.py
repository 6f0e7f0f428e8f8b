"""The head of an HTTP request has a limit in bytes and one in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

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


async def test_half_a_head_does_not_end_the_answer_before_it() -> None:
    release, entered = asyncio.Event(), asyncio.Event()
    async with served(0.05, release, entered) as port:
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


async def test_a_long_head_is_refused_while_it_comes() -> None:
    async with served(30, asyncio.Event()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        line = b"X-A: " + b"a" * 1_000 + b"\r\n"
        for _ in range(MAX_HEAD // len(line) + 2):
            writer.write(line)
            await asyncio.sleep(0)
        assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        writer.close()
