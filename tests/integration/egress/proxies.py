"""A proxy on loopback, its refusals, and a client for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import toolcrib
from tests.integration.egress.servers import Names
from toolcrib.egress import HostPolicy, HostRefusal, Proxy, ProxyLimits

QUICK = ProxyLimits(header_s=0.3, dial_s=0.3, idle_s=0.3)


def listening() -> socket.socket:
    """Return a listening socket on loopback, like the one of a sandbox."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


@dataclass
class Proxied:
    """A running proxy, seen from its client."""

    proxy: Proxy
    port: int
    refused: list[HostRefusal] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def talk(self, *parts: bytes, end: bool = False) -> bytes:
        """Send the parts one after the other and read everything until the proxy closes."""
        async with self.connection() as (reader, writer):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)
            if end:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 100)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection to the proxy."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass

    async def connected(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a tunnel by CONNECT."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        return reader, writer


@asynccontextmanager
async def proxied(
    policy: HostPolicy,
    names: Mapping[str, Sequence[Sequence[str]]] | None = None,
    limits: ProxyLimits | None = None,
) -> AsyncIterator[Proxied]:
    """Run a proxy for `policy` whose resolver knows `names` only."""
    listener = listening()
    refused: list[HostRefusal] = []
    proxy = Proxy(
        listener,
        policy,
        on_refusal=refused.append,
        resolver=Names(names or {}),
        limits=limits or ProxyLimits(),
    )
    port = int(listener.getsockname()[1])
    before = asyncio.all_tasks()
    async with proxy:
        yield Proxied(proxy, port, refused)
    assert proxy.connections == 0
    assert [task for task in asyncio.all_tasks() - before if of_the_package(task)] == []


def of_the_package(task: asyncio.Task[Any]) -> bool:
    """Return True if a task runs code of Toolcrib, and not of a test."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(f"{Path(toolcrib.__file__).parent}/")


async def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until `true` holds."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for raises no event
            await asyncio.sleep(0.005)
