"""The application below a prefix of another one, served by uvicorn in this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.crib import Crib
from toolcrib.guard import Tokens
from toolcrib.serve.rest import rest_app


@asynccontextmanager
async def mounted(crib: Crib) -> AsyncIterator[tuple[str, str]]:
    """Serve below /crib; give the address and a login link."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        async with crib.open() as project, rest_app(project) as (app, link):
            outer = Starlette(routes=[Mount("/crib", app)])
            server = uvicorn.Server(uvicorn.Config(outer, log_config=None, lifespan="off"))
            serving = asyncio.create_task(server.serve([listening]))
            try:
                yield f"http://127.0.0.1:{port}", link()
            finally:
                server.should_exit = True
                await serving


async def test_everything_works_below_a_prefix(tmp_path: Path) -> None:
    crib = Crib(tmp_path / "project")
    async with mounted(crib) as (address, link), aiohttp.ClientSession() as session:
        async with session.get(f"{address}/crib/openapi.json") as reply:
            assert (await reply.json())["servers"] == [{"url": "/crib"}]
        code = link.partition("#code=")[2]
        async with session.post(f"{address}/crib/session", json={"code": code}) as reply:
            assert reply.status == 201
            assert not reply.cookies
            headers = {"Authorization": f"Bearer {(await reply.json())['token']}"}
        async with session.get(f"{address}/crib/tools", headers=headers) as reply:
            assert reply.status == 200
        async with session.get(f"{address}/tools", headers=headers) as reply:
            assert reply.status == 404
        async with crib.open() as project:
            token = Tokens(project.vault).create("any", ["read"], owner="olga")
        async with session.get(
            f"{address}/crib/tools/bundles", headers={"Authorization": f"Bearer {token}"}
        ) as reply:
            assert [bundle["slug"] for bundle in (await reply.json())["bundles"]] == ["project", "builtin"]
