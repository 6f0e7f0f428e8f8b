"""Servers on loopback, correct and broken ones, and a resolver double."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from toolcrib.egress import HostPolicy
from toolcrib.spec import Network

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Names:
    """A resolver double: each name has a list of answers, given one after the other; the last one stays."""

    answers: Mapping[str, Sequence[Sequence[str]]]
    asked: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the next answer for `host`."""
        turn = self.asked.count(host)
        self.asked.append(host)
        if host not in self.answers:
            raise OSError(f"no such name: {host}")
        answers = self.answers[host]
        return answers[min(turn, len(answers) - 1)]


def named(*hosts: str, port: int | None = None) -> HostPolicy:
    """Return the policy of a tool that lists these hosts."""
    return HostPolicy.of(Network("hosts", hosts), port=port)


@asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Run a web server on 127.0.0.1 that passes every request to `handler`; yields its port."""
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_route("*", "/{path:(?s:.*)}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(answer: Answer | bytes) -> AsyncIterator[int]:
    """Run a server that reads one request head, then calls `answer` or sends it and closes."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await answer(reader, writer)

    async with accepting(answered) as port:
        yield port


@asynccontextmanager
async def accepting(serve: Answer) -> AsyncIterator[int]:
    """Run a server that calls `serve` for each connection; yields its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
