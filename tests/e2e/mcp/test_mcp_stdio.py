"""The MCP server as a process of its own: the official client on both wires, and bare pipes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import mcp_types
import orjson
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client

from tests.commands import Forked, shared_server

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
SERVER = [sys.executable, "-m", "tests.e2e.mcp.mcp_stdio_server"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "pipes", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Mode = Literal["auto", "legacy", "2026-07-28"]
MODES: list[Mode] = ["auto", "legacy", "2026-07-28"]


def parameters(extra: int = 0, page: int = 500) -> StdioServerParameters:
    env = ENVIRONMENT | {"PAGE": str(page)}
    python = str(shared_server().program("python"))
    return StdioServerParameters(command=python, args=[*SERVER[1:], str(extra)], cwd=ROOT, env=env)


def text_of(result: mcp_types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, mcp_types.TextContent)
    return block.text


def wait_for(path: Path, text: str = "started") -> None:
    deadline = time.monotonic() + 100
    while not path.exists() or path.read_text() != text:
        assert time.monotonic() < deadline, f"{path} never came to read {text!r}"
        time.sleep(0.01)


# --- the official client


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_lists_and_calls(mode: Mode) -> None:
    async with Client(parameters(), mode=mode) as client:
        assert client.session.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        if mode != "2026-07-28":  # pinned, the client asks for no introduction
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.version) == ("crib", "9.9")
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed["add"].description == "Add two numbers."
        assert listed["add"].input_schema["required"] == ["a", "b"]
        assert listed["describe_point"].title == "describe.point"
        added = await client.call_tool("add", {"a": 2, "b": 3})
        assert (text_of(added), added.structured_content) == ("5", {"result": 5})
        # The client itself checks what comes against the output schemas.
        point = await client.call_tool("describe_point", {"x": 1, "y": 2})
        assert point.structured_content == {"x": 1, "y": 2}
        counted = await client.call_tool("count", {"to": 3})
        assert counted.structured_content == {"result": [0, 1, 2]}


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_gets_errors_of_tools_as_results(mode: Mode) -> None:
    async with Client(parameters(), mode=mode) as client:
        failed = await client.call_tool("fail", {"reason": "the disk is full"})
        assert failed.is_error
        assert text_of(failed) == "Tool call failed: the disk is full"
        assert failed.structured_content is not None
        assert failed.structured_content["error"]["code"] == "tool_failed"
        wrong = await client.call_tool("add", {"a": "x", "c": 1})
        assert wrong.is_error
        assert text_of(wrong).startswith("Invalid input: ")
        assert {violation["path"] for violation in wrong.structured_content["error"]["violations"]} >= {
            "$.a",
            "$.b",
            "$.c",
        }
        given_up = await client.call_tool("give_up")
        assert text_of(given_up) == "Cancelled: no use"
        broken = await client.call_tool("break_promise")
        assert broken.is_error
        assert broken.structured_content["error"]["code"] == "invalid_output"
        with pytest.raises(MCPError) as refused:
            await client.call_tool("ad", {})
        assert refused.value.error.code == -32602
        assert "Did you mean add?" in refused.value.error.message
        assert refused.value.error.data["error"]["code"] == "tool_not_found"


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_hears_progress(mode: Mode) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with Client(parameters(), mode=mode) as client:
        result = await client.call_tool("steps", {"number": 3}, progress_callback=hear)
        assert result.structured_content == {"result": 3}
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_cancels_and_the_tool_is_told(mode: Mode, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Client(parameters(), mode=mode) as client:
        call = asyncio.create_task(client.call_tool("linger", {"mark": str(mark)}))
        await asyncio.to_thread(wait_for, mark, "started")
        call.cancel()
        await asyncio.to_thread(wait_for, mark, "cancelled")
        assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"result": 2}


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_reads_every_page(mode: Mode) -> None:
    async with Client(parameters(extra=20, page=7), mode=mode) as client:
        names: list[str] = []
        pages, cursor = 0, None
        while True:
            page = await client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            pages, cursor = pages + 1, page.next_cursor
            if cursor is None:
                break
        assert pages == -(-len(names) // 7)
        assert len(set(names)) == len(names)
        assert {f"extra_{number}" for number in range(20)} <= set(names)
        with pytest.raises(MCPError) as refused:
            await client.list_tools(cursor="nonsense")
        assert refused.value.error.code == -32602


@pytest.mark.parametrize("mode", MODES)
async def test_a_hundred_calls_at_once(mode: Mode) -> None:
    async with Client(parameters(), mode=mode) as client:
        results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(100)))
        assert [result.structured_content for result in results] == [{"result": n + 1} for n in range(100)]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_nothing_a_tool_prints_or_reads_meets_the_protocol(mode: Mode) -> None:
    async with Client(parameters(), mode=mode) as client:
        for text in ('{"jsonrpc":"2.0","id":1,"result":{}}', "not json"):
            assert text_of(await client.call_tool("shout", {"text": text})) == text
        assert text_of(await client.call_tool("read_input")) == ""


async def test_the_low_level_session_of_2025_11_25() -> None:
    async with stdio_client(parameters()) as (read, write), ClientSession(read, write) as session:
        begun = await session.initialize()
        assert begun.protocol_version == "2025-11-25"
        await session.send_ping()
        assert (await session.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


# --- bare pipes


class Pipes:
    """A client of a few lines, over pipes, which sends what it likes."""

    def __init__(self, *arguments: str) -> None:
        self.process = Forked(
            [*SERVER, *arguments],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def send(self, message: Any) -> None:
        self.stdin.write(message if isinstance(message, bytes) else orjson.dumps(message) + b"\n")
        self.stdin.flush()

    def read(self) -> Any:
        line = self.stdout.readline()
        assert line.endswith(b"\n"), "the server has gone"
        return orjson.loads(line)

    def call(self, name: str, arguments: dict[str, Any], request_id: int = 1) -> None:
        params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
        self.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes()
    yield pipes
    pipes.process.kill()
    pipes.process.wait()
    pipes.stdin.close()
    pipes.stdout.close()


def test_garbage_is_refused_line_by_line(pipes: Pipes) -> None:
    for line, code in (
        (b"garbage\n", -32700),
        (b"\xff\xfe\n", -32700),
        (b"{}\n", -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}\n', -32600),
        (b"[" * 200_000 + b"\n", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n', -32600),
        (b'"' + b"x" * (16 << 20) + b'"\n', -32600),
    ):
        pipes.send(b"\n\r\n" + line)
        assert pipes.read()["error"]["code"] == code
    pipes.call("add", {"a": 1, "b": 2})
    assert pipes.read()["result"]["structuredContent"] == {"result": 3}


def test_a_long_message_within_the_limit_is_served(pipes: Pipes) -> None:
    pipes.call("shout", {"text": "x" * (15 << 20)})
    assert len(pipes.read()["result"]["content"][0]["text"]) < 51_000


def test_the_end_of_the_input_ends_the_process_after_the_answers(pipes: Pipes) -> None:
    for number in range(50):
        pipes.call("add", {"a": number, "b": 0}, number)
    pipes.stdin.close()
    answers = [orjson.loads(line) for line in pipes.stdout.read().splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(50))
    assert pipes.process.wait() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_end_cancels_what_still_runs(how: Any, pipes: Pipes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pipes.call("linger", {"mark": str(mark)})
    wait_for(mark)
    pipes.process.send_signal(how)
    assert pipes.read()["result"]["structuredContent"]["error"]["code"] == "cancelled"
    assert pipes.process.wait() == 0
    assert mark.read_text() == "cancelled"


def test_nothing_is_written_after_the_end_of_the_input(pipes: Pipes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pipes.call("linger", {"mark": str(mark)})
    wait_for(mark)
    pipes.stdin.close()
    assert pipes.stdout.read() == b""
    assert pipes.process.wait() == 0
    assert mark.read_text() == "cancelled"


def test_a_tool_that_hangs_in_a_thread_does_not_keep_the_process(pipes: Pipes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pipes.call("hang", {"mark": str(mark)})
    wait_for(mark)
    pipes.stdin.close()
    assert pipes.process.wait() == 0


def test_a_client_that_reads_nothing_gets_everything_later(pipes: Pipes) -> None:
    for number in range(400):
        pipes.call("big", {"size": 40_000}, number)
    answers = [pipes.read() for _ in range(400)]
    assert sorted(answer["id"] for answer in answers) == list(range(400))
    assert all(len(answer["result"]["content"][0]["text"]) == 40_000 for answer in answers)


def test_a_client_that_stops_reading_and_leaves_ends_the_process(pipes: Pipes) -> None:
    pipes.stdout.close()
    pipes.call("add", {"a": 1, "b": 2})
    assert pipes.process.wait() == 0


def test_requests_from_a_file_to_a_file(tmp_path: Path) -> None:
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": ENVELOPE}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    (tmp_path / "in").write_bytes(orjson.dumps(call))
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as sink:
        done = subprocess.run(SERVER, cwd=ROOT, env=ENVIRONMENT, stdin=source, stdout=sink, check=False)
    assert done.returncode == 0
    answer = orjson.loads((tmp_path / "out").read_bytes())
    assert answer["result"]["structuredContent"] == {"result": 3}


def test_requests_over_one_socket() -> None:
    ours, theirs = socket.socketpair()
    end = theirs.fileno()
    with subprocess.Popen(SERVER, cwd=ROOT, env=ENVIRONMENT, stdin=end, stdout=end) as process:
        theirs.close()
        with ours, ours.makefile("rwb") as stream:
            params = {"name": "big", "arguments": {"size": 49_000}, "_meta": ENVELOPE}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            for _ in range(20):
                stream.write(orjson.dumps(call) + b"\n")
                stream.flush()
                assert len(stream.readline()) > 49_000
        assert process.wait() == 0
