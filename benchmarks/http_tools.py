"""A tool of kind http with 16 calls under way, beside aiohttp alone; one server here answers both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.rest import Server
from benchmarks.setting import Setting, find
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave

AT_ONCE = 16
BARE, TOOL = "aiohttp, one session", "Project.call of a tool of kind http"
MANIFEST = """\
name: asks
description: Ask the server.
kind: http
version: 1
inputs:
  schema:
    type: object
    properties: {{a: {{type: integer}}}}
    required: [a]
exec:
  http:
    method: POST
    url: http://127.0.0.1:{port}/
    body: {{a: "${{a}}"}}
permissions:
  network: {{allow: ["127.0.0.1:{port}"]}}
"""


def measure(setting: Setting) -> Iterator[Table]:
    """Yield one table."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    table = Table(
        f"Call an HTTP tool, {AT_ONCE} under way",
        "µs",
        [Row(BARE), Row(TOOL, Reach(1.33))],
        ["Toolcrib also checks arguments and address, and writes two lines of its audit log for each call."],
    )
    with _server(setting) as port:
        folder = setting.folder / "project" / ".toolcrib" / "tools" / "asks"
        folder.mkdir(parents=True)
        (folder / "tool.yml").write_text(MANIFEST.format(port=port), encoding="utf-8")
        project = find("toolcrib.project", "Project").open(setting.folder / "project", accept="all")
        session = loop.run_until_complete(_session())

        async def bare() -> None:
            async with session.post(f"http://127.0.0.1:{port}/", json={"a": 1}) as answer:
                assert await answer.json() == {"a": 1}

        async def tool() -> None:
            assert (await project.call("asks", {"a": 1})).unwrap() == {"a": 1}

        samplers = {BARE: _sampler(loop, bare), TOOL: _sampler(loop, tool)}
        table.take(interleave(samplers, setting.effort(9), times=32 if setting.quick else 1_600))
        loop.run_until_complete(session.close())
        loop.run_until_complete(project.aclose())
    yield table


async def _session() -> Any:
    return find("aiohttp", "ClientSession")()


@contextmanager
def _server(setting: Setting) -> Iterator[int]:
    """Yield the port of a server that answers with what it gets."""
    server = Server("echo", setting.folder / "echo")
    try:
        yield server.port
    finally:
        server.close()


def _sampler(loop: asyncio.AbstractEventLoop, once: Callable[[], Awaitable[None]]) -> Sampler:
    async def many(times: int) -> float:
        began = loop.time()

        async def caller() -> None:
            for _ in range(max(1, times // AT_ONCE)):
                await once()

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
        return loop.time() - began

    return lambda times: loop.run_until_complete(many(times))
