"""The quickstart as a program: an agent's client calls the tools of a project through `toolcrib serve`.

It copies this repository to build/demo, makes a project of it, and drives the server with the official MCP
client. Nothing is special-cased: every step is one that the README describes.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from toolcrib.guard.audit.check import verify

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
DEMO = REPOSITORY / "build" / "demo"
DATA = REPOSITORY / "build" / "demo-data"
"""The user's data outside the project. Both are created again together, because the log's anchor is in it."""
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
SKIPPED = shutil.ignore_patterns(
    ".git", ".toolcrib", ".venv", "build", "dist", "node_modules", "__pycache__", ".*_cache", ".hypothesis"
)
ANSWER = {
    "web": {
        "results": [
            {
                "title": "Tool crib",
                "url": "https://example.com/crib",
                "description": "Where tools are kept",
                "rank": 1,
            },
            {
                "title": "Tool post",
                "url": "https://example.com/post",
                "description": "Holds a tool",
                "rank": 2,
            },
        ]
    }
}


class SearchServer(BaseHTTPRequestHandler):
    """Answers every search like the API that the example's manifest names; refuses one without a key."""

    def do_GET(self) -> None:
        """One search."""
        body = json.dumps(ANSWER).encode()
        self.send_response(200 if self.headers.get("X-Subscription-Token") == "demo-key-4711" else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Say nothing."""


@contextmanager
def search_server() -> Iterator[int]:
    """A small HTTP server on a free loopback port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SearchServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def make_project(port: int) -> Path:
    """A copy of this repository, made a project, with two tools more than `init --examples` gives."""
    shutil.rmtree(DEMO, ignore_errors=True)
    shutil.rmtree(DATA, ignore_errors=True)
    shutil.copytree(REPOSITORY, DEMO, ignore=SKIPPED, symlinks=True)
    # Nobody is at a terminal here: a settings file of the demo's own lets it decide without one.
    settings = DATA / "settings.yml"
    DATA.mkdir(mode=0o700)
    settings.write_text(
        f"decide_without_terminal: [{{what: [trust, approve], where: [{json.dumps(str(DEMO))}]}}]\n"
    )
    environment = {**os.environ, "TOOLCRIB_DATA": str(DATA), "TOOLCRIB_CONFIG": str(settings)}
    init = [TOOLCRIB, "init", str(DEMO), "--examples"]
    subprocess.run(init, check=True, env=environment, stderr=subprocess.DEVNULL)
    tools = DEMO / ".toolcrib" / "tools"
    local = (tools / "web_search" / "tool.yml").read_text()
    for old, new in {
        "name: web_search": "name: web_search_local",
        "https://api.search.brave.com": f"http://127.0.0.1:{port}",
        "network: true": f'network: {{allow: ["127.0.0.1:{port}"]}}',
        "required: true\n  reason: Accesses external API with secrets": "required: false",
    }.items():
        assert old in local, old
        local = local.replace(old, new)
    (tools / "web_search_local").mkdir()
    (tools / "web_search_local" / "tool.yml").write_text(local)
    shutil.copytree(HERE / "demo_tools" / "nosy", tools / "nosy")
    subprocess.run([TOOLCRIB, "lint", "--root", str(DEMO)], check=True, stderr=subprocess.DEVNULL)
    # A person trusts a tool that reaches beyond the project before an agent may call it.
    trust = [TOOLCRIB, "trust", "web_search_local", "--yes", "--root", str(DEMO)]
    subprocess.run(trust, check=True, env=environment, capture_output=True)
    return DEMO


def say(text: str = "") -> None:
    """One line for the person watching."""
    print(text, flush=True)


async def show(client: Client, step: str, name: str, arguments: dict[str, Any]) -> Any:
    """Make one call and print what came of it, with the time it took."""
    say(f"\n({step}) the agent calls {name} with {json.dumps(arguments)}")
    started = time.perf_counter()
    result = await client.call_tool(name, arguments)
    took = (time.perf_counter() - started) * 1000
    text = "\n".join(getattr(block, "text", "") for block in result.content).strip()
    lines = text.splitlines()
    for line in lines[-6:] if len(lines) > 6 else lines:
        say(f"      {line}")
    say(f"    {'refused' if result.is_error else 'done'} in {took:.0f} ms")
    return result


async def agent(root: Path, port: int) -> None:
    """Call tools as an agent does, through its MCP client."""
    secrets = {"BRAVE_API_KEY": "demo-key-4711", "DEMO_PRIVATE": "not for tools"}
    environment = {**os.environ, **secrets, "TOOLCRIB_DATA": str(DATA)}
    server = StdioServerParameters(
        command=TOOLCRIB, args=["serve", "--stdio", "--root", str(root)], env=environment
    )
    async with Client(stdio_client(server)) as client:
        listed = (await client.list_tools()).tools
        say("The agent's client connected. It sees: " + ", ".join(tool.name for tool in listed))

        result = await show(client, "a", "repo_scan", {})
        assert not result.is_error
        assert "Scan complete." in result.content[0].text
        result = await show(client, "b", "repo_stats", {"path": "."})
        assert result.structured_content["files"] > 50
        result = await show(client, "c", "web_search", {"query": "tool crib"})
        assert result.structured_content["error"]["code"] == "approval_required"
        result = await show(client, "c", "web_search_local", {"query": "tool crib", "count": 2})
        assert [set(hit) for hit in result.structured_content["result"]] == [
            {"title", "url", "description"}
        ] * 2
        result = await show(client, "d", "web_search_local", {"count": "two", "colour": "red"})
        assert len(result.structured_content["error"]["violations"]) == 3
        result = await show(client, "e", "nosy", {"port": port})
        assert all(answer.startswith("stopped") for answer in result.structured_content.values())


def show_audit(root: Path) -> None:
    """The audit lines of the calls above, and whether the log is whole."""
    log = root / ".toolcrib" / "audit" / "tools.log"
    say("\n(f) every call is one line of the audit log, chained to the line before:")
    for line in log.read_text().splitlines():
        say(f"      {line}")
    verdict = verify(log)
    assert verdict.ok, verdict
    assert "demo-key-4711" not in log.read_text()
    say(f"    the log is whole: {verdict.lines} lines, no secret in it")


def project(root: Path) -> list[str]:
    """The options that name the demo's project, and the data folder where it is trusted."""
    return ["--root", str(root), "--data", str(DATA)]


def show_page(root: Path) -> None:
    """The link that opens the project's page. On a terminal it is served until Ctrl-C."""
    command = [TOOLCRIB, "ui", "--print", "--port", "0", *project(root)]
    environment = {**os.environ, "TOOLCRIB_CONFIG": str(DATA / "settings.yml")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        say(f"\nIts web page, with the calls above in its audit log: {server.stdout.readline().strip()}")
        if sys.stdout.isatty():
            with suppress(KeyboardInterrupt):
                server.wait()
        else:
            say(f"    It ends with this demo. To serve it again: {TOOLCRIB} ui {' '.join(project(root))}")
        server.terminate()


def main() -> None:
    """Run the demo from nothing. Two at once would take each other's project away, so the second waits."""
    DEMO.parent.mkdir(exist_ok=True)
    with (DEMO.parent / "demo.lock").open("w") as lock, search_server() as port:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another demo runs in this folder; this one continues when it has ended.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        run(port)


def run(port: int) -> None:
    """The demo itself, with the search server at this port."""
    started = time.perf_counter()
    say("A copy of this repository becomes a project: toolcrib init --examples, then two tools more.")
    root = make_project(port)
    asyncio.run(agent(root, port))
    show_audit(root)
    command = {"command": TOOLCRIB, "args": ["serve", "--stdio", *project(root)]}
    say("\nTo connect a desktop MCP client, put this into its settings:")
    say(json.dumps({"mcpServers": {"toolcrib": command}}, indent=2))
    say(f"\nThe demo took {time.perf_counter() - started:.1f} s. The project is in {root}")
    show_page(root)


if __name__ == "__main__":
    main()
