"""Servers that add two numbers: `python -m benchmarks.rest_servers KIND FOLDER` prints port and token."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

PATH = "/tools/invoke/add"


def asgi_echo() -> Any:
    """The least that can answer: the body that came."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def starlette_msgspec() -> Any:
    """Starlette with arguments checked by msgspec."""
    import msgspec
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    numbers = msgspec.defstruct("Args", [("a", int), ("b", int)], forbid_unknown_fields=True)
    form = msgspec.defstruct("Body", [("args", numbers)], forbid_unknown_fields=True)
    read = msgspec.json.Decoder(form).decode

    async def add(request: Request) -> Response:
        body: Any = read(await request.body())
        value = msgspec.json.encode({"ok": True, "value": body.args.a + body.args.b})
        return Response(value, media_type="application/json")

    return Starlette(routes=[Route(PATH, add, methods=["POST"])])


def fastapi() -> Any:
    """FastAPI with arguments checked by pydantic."""
    from fastapi import FastAPI  # type: ignore[import-not-found,unused-ignore]
    from pydantic import ConfigDict, create_model

    strict = ConfigDict(extra="forbid")
    numbers = create_model("Args", __config__=strict, a=int, b=int)
    form = create_model("Body", __config__=strict, args=numbers)
    answer = create_model("Answer", ok=bool, value=int)

    async def add(body: Any) -> Any:
        return answer(ok=True, value=body.args.a + body.args.b)

    add.__annotations__ = {"body": form, "return": answer}
    app = FastAPI()
    app.post(PATH)(add)
    return app


def mcpserver() -> Any:
    """The server of the official SDK, which answers with JSON."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("bench")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server.streamable_http_app(json_response=True, stateless_http=True)


async def serve_app(app: Any) -> None:
    """Serve an application as Toolcrib serves its own."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        app, lifespan="auto", log_config=None, access_log=False, server_header=False, ws="none"
    )
    print(listening.getsockname()[1], "-", flush=True)
    await uvicorn.Server(config).serve([listening])


async def serve_toolcrib(folder: Path) -> None:
    """Serve a project with one function and what its folder holds: token, checked arguments, audit log."""
    from toolcrib import Project
    from toolcrib.guard import Tokens
    from toolcrib.serve.rest import HttpSettings, serve_http

    (folder / "project" / ".toolcrib").mkdir(parents=True, exist_ok=True)
    async with Project.open(folder / "project", accept="all", data=folder / "data") as project:

        @project.toolset.tool
        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        token = Tokens(project.vault).create("bench", ["invoke"], owner="bench")
        await serve_http(
            project,
            HttpSettings(port=0),
            lambda addresses, _: print(addresses[0].rpartition(":")[2], token, flush=True),
        )


APPS = {"echo": asgi_echo, "starlette": starlette_msgspec, "fastapi": fastapi, "mcpserver": mcpserver}


def main() -> None:
    """Serve until killed."""
    import uvloop

    kind, folder = sys.argv[1], Path(sys.argv[2])
    work = serve_toolcrib(folder) if kind == "toolcrib" else serve_app(APPS[kind]())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


if __name__ == "__main__":
    main()
