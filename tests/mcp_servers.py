"""MCP servers for tests, as programs: real ones made with the official package, and broken ones."""

from __future__ import annotations

import json
import socket
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import uvicorn

from tests.crib import Crib
from tests.patience import patient, wait_for
from toolcrib.guard import Ledger
from toolcrib.project import Project, load_config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.state import Vault

__all__ = ["GOOD", "RAW", "Served", "mount", "trust", "write"]

GOOD = """
import asyncio, os, sys
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("good")

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@server.tool()
def look(path: str) -> str:
    "Read a file."
    try:
        return open(path).read()
    except OSError as error:
        return f"cannot: {error.strerror}"

@server.tool()
def variables() -> dict[str, str]:
    "The environment."
    return dict(os.environ)

@server.tool()
def fail() -> str:
    "Fail."
    raise ValueError("no such luck")

@server.tool()
def die() -> str:
    "End the server."
    print("dying now", file=sys.stderr, flush=True)
    os._exit(3)

@server.tool()
def pid() -> list[int]:
    "Its process, and how many it sees."
    return [os.getpid(), len([name for name in os.listdir("/proc") if name.isdigit()])]

@server.tool()
async def slow(ctx: Context, seconds: float) -> str:
    "Take time."
    await ctx.report_progress(1, 2, "half")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        open("cancelled", "w").write("yes")
        raise
    return "done"

@server.tool()
async def grow(ctx: Context) -> str:
    "Offer one more tool."
    def more() -> str:
        "One more."
        return "more"
    server.add_tool(more)
    await ctx.notify_tools_changed()
    return "grown"

server.run()
"""

RAW = """
import json, os, sys, time

DEFINITIONS = json.loads(os.environ.get("DEFINITIONS", "null")) or [
    {"name": "hello", "description": "Say hello.", "inputSchema": {"type": "object"}}
]

def answer(message):
    method = message.get("method")
    if method == "initialize":
        return {"protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "raw", "version": "1"}}
    if method == "tools/list":
        return {"tools": definitions()}
    if method == "tools/call":
        return called(message)
    return None

def definitions():
    return DEFINITIONS

def called(message):
    return {"content": [{"type": "text", "text": "hello"}]}

def send(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message)
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
            send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            send({"jsonrpc": "2.0", "id": message["id"], "result": result})
"""
"""A server of the session wire (2025-11-25) without any package; `main()` runs it."""


def mount(crib: Crib, name: str, source: str, *, out: str | None = None, **more: Any) -> None:
    """Name one more server in the project's settings, and have them trusted.

    It may read the project and what Python and the packages beside it need; where `out` names a folder, it
    starts there, and may write it.
    """
    file = crib.write(f"{name}.py", source)
    places = {sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"]}
    files: dict[str, list[str]] = {"read": [".", *sorted(places)], "write": []}
    entry: dict[str, Any] = {
        "command": sys.executable,
        "args": [str(file)],
        "permissions": {"fs": files},
        "start_timeout_s": 300,
        **more,
    }
    if out is not None:
        (crib.root / out).mkdir()
        files["write"], entry["cwd"] = [out], out
    write(crib, {name: entry})


def write(crib: Crib, servers: dict[str, Any], settings: dict[str, Any] | None = None) -> None:
    """Put servers and settings beside those that are there, and trust them."""
    file = crib.home / "config.yml"
    config: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    config.setdefault("mcp_servers", {}).update(servers)
    file.write_text(json.dumps({**config, **(settings or {})}))
    trust(crib.root)


def trust(root: Path) -> None:
    """Trust the settings as they are."""
    config = load_config(root / ".toolcrib" / "config.yml", root)
    Ledger(Vault(root)).accept(settings_rows(config), "tester", "program")


async def trust_offered(root: Path) -> None:
    """Start the servers, and trust all that they offer."""
    async with Project.open(root) as project:
        assert project.servers is not None
        await project.servers.ready(60)
        project.trust.accept("tester", more=[one.row() for one in project.servers.mounted.values()])


class Served:
    """An application on loopback, by a server on a thread of its own."""

    def __init__(self, app: Any, port: int = 0) -> None:
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self.socket.getsockname()[1]
        config = uvicorn.Config(
            app, interface="asgi3", log_level="error", lifespan="on", timeout_graceful_shutdown=1
        )
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(
            target=self.uvicorn.run, kwargs={"sockets": [self.socket]}, daemon=True
        )

    def start(self) -> None:
        """Begin, and wait until it answers."""
        self.thread.start()
        wait_for(lambda: self.uvicorn.started, "the server")

    def stop(self) -> None:
        """End, and wait for that."""
        self.uvicorn.should_exit = True
        self.thread.join(patient(20))
        self.socket.close()
