"""Hostile clients of the MCP endpoint: no crash, no leak to another client, bounded memory."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.mcp.test_mcp_http import BOTH, META, MODERN, Session, modern, post
from tests.http_server import HttpServerProcess, http_server

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
HEAD = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    root = tmp_path_factory.mktemp("hostile") / "project"
    (root / ".toolcrib").mkdir(parents=True)
    with http_server(root, program=("-m", "tests.e2e.rest.rest_server")) as running:
        yield running
        assert running.process.poll() is None
        assert memory(running) < 400 << 20


def memory(server: HttpServerProcess) -> int:
    """Bytes of the server in memory."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def works(server: HttpServerProcess) -> None:
    assert modern(server, "tools/list").status == 200


def head(server: HttpServerProcess, length: int, **more: str) -> bytes:
    lines = {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Content-Length": str(length),
        **BOTH,
        **HEAD,
        **more,
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{text}\r\n".encode()


def connect(server: HttpServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":7}}',
        json.dumps([LIST, LIST]).encode(),
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_bad_messages_are_refused(server: HttpServerProcess, body: bytes) -> None:
    for headers in (HEAD, {}):
        answered = post(server, body, headers)
        assert answered.status in (400, 404), answered.body
        assert answered.json["error"]["code"] < 0
    session = Session(server)
    assert post(server, body, session.headers).json["jsonrpc"] == "2.0"
    assert session.ask("ping").status == 200
    works(server)


def test_wrong_ids_and_answers_to_nothing_change_nothing(server: HttpServerProcess) -> None:
    session = Session(server)
    for answer in ({"id": "toolcrib-1", "result": {}}, {"id": 9, "error": {}}, {"id": None, "result": 1}):
        assert post(server, {"jsonrpc": "2.0", **answer}, session.headers).status == 202
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    assert post(server, cancelled, session.headers).status == 202
    assert session.ask("ping").status == 200


def test_one_client_cannot_cancel_the_call_of_another(server: HttpServerProcess, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = {**LIST, "method": "tools/call", "params": {"name": "hold", "arguments": {"mark": str(mark)}}}
    mine, other = Session(server), Session(server)
    body = json.dumps(call).encode()
    with connect(server) as waiting:
        waiting.sendall(head(server, len(body), **mine.headers) + body)
        wait_for(mark.with_name("mark.begun"))
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert post(server, cancel, other.headers).status == 202
        assert post(server, cancel, {**HEAD, "Mcp-Method": "notifications/cancelled"}).status in (202, 400)
        mark.touch()
        got = b""
        while b"held" not in got:
            part = waiting.recv(1 << 16)
            assert part, got
            got += part
    assert not mark.with_name("mark.cancelled").exists()


def test_half_a_message_and_a_client_that_leaves(server: HttpServerProcess) -> None:
    for _ in range(20):
        with connect(server) as half:
            half.sendall(head(server, 1_000) + b'{"jsonrpc":')
    works(server)


def test_too_long_messages_are_not_read(server: HttpServerProcess) -> None:
    before = memory(server)
    with connect(server) as long:
        long.sendall(head(server, 100 << 20))
        assert b" 413 " in long.recv(1 << 16)
    chunked = head(server, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connect(server) as endless:
        endless.sendall(chunked)
        piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(100):
                endless.sendall(piece)
        except OSError:
            pass
    works(server)
    assert memory(server) - before < 150 << 20


def test_an_endless_head_is_refused_before_any_token_is_read(server: HttpServerProcess) -> None:
    before = memory(server)
    with connect(server) as endless:
        endless.sendall(b"POST /mcp HTTP/1.1\r\n")
        line = b"X-A: " + b"x" * 50_000 + b"\r\n"
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            endless.sendall(line * 2_000)
    works(server)
    assert memory(server) - before < 20 << 20


def test_many_long_messages_that_never_end_cost_bounded_memory(server: HttpServerProcess) -> None:
    before = memory(server)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(20)]
        for client in clients:
            client.sendall(head(server, 16_000_000) + b"x" * 15_000_000)
        assert b" 503 " in clients[-1].recv(1 << 16)
        works(server)
        assert memory(server) - before < 250 << 20


def test_a_flood_of_requests_is_answered(server: HttpServerProcess) -> None:
    body = json.dumps(LIST).encode()
    flood = [connect(server) for _ in range(100)]
    for one in flood:
        one.sendall((head(server, len(body)) + body) * 5)
    for one in flood:
        assert b" 200 " in one.recv(1 << 16)
        one.close()
    works(server)


def test_a_client_that_does_not_read_costs_bounded_memory(server: HttpServerProcess, tmp_path: Path) -> None:
    """Its progress is left out; the call goes on to its end."""
    params = {
        "name": "count_up",
        "arguments": {"to": 300_000},
        "_meta": {**META, "progressToken": "p"},
    }
    body = json.dumps({**LIST, "method": "tools/call", "params": params}).encode()
    more = {"Mcp-Method": "tools/call", "Mcp-Name": "count_up"}
    before = memory(server)
    with connect(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(head(server, len(body), **more) + body)
        assert b"text/event-stream" in slow.recv(1 << 12)
        for _ in range(20):
            works(server)
        assert memory(server) - before < 100 << 20
    works(server)


def test_headers_that_come_twice_are_refused(server: HttpServerProcess) -> None:
    body = json.dumps(LIST).encode()
    for name in ("Mcp-Method", "MCP-Protocol-Version", "Authorization", "Mcp-Session-Id"):
        with connect(server) as double:
            line = f"{name}: tools/list\r\n".encode()
            sent = head(server, len(body)).replace(b"\r\n\r\n", b"\r\n" + line * 2 + b"\r\n")
            double.sendall(sent + body)
            assert b" 400 " in double.recv(1 << 16), name


def test_sessions_cannot_be_guessed_or_exhausted(server: HttpServerProcess) -> None:
    first = Session(server)
    ids = {Session(server).id for _ in range(20)}
    assert len(ids) == 20
    for wrong in (first.id[:-1], first.id + "x", first.id.swapcase(), "0", "../x", "\u00e9"):
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answered = post(server, ping, {"Mcp-Session-Id": wrong})
        assert answered.status == 404, wrong
    assert first.ask("ping").status == 200


def wait_for(path: Path) -> None:
    end = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.01)
