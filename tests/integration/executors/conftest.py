"""The local server of the tests of HTTP tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from aiohttp import web

from tests.integration.egress.servers import serving
from tests.integration.executors.http.http_doubles import Server
from toolcrib.egress import Egress


@pytest_asyncio.fixture
async def http_server() -> AsyncIterator[Server]:
    async with Egress() as egress:
        made = Server(0, egress)

        async def handler(request: web.Request) -> web.StreamResponse:
            made.got.append(request)
            made.bodies.append(await request.read())
            return made.answer(request)

        async with serving(handler) as port:
            made.port = port
            yield made
