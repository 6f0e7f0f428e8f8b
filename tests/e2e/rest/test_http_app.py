"""The HTTP interface: its clients, hosts, bodies, errors and its end, at a real server process."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.commands import PROGRAM, complete
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from tests.patience import patient
from toolcrib.guard import Tokens
from toolcrib.serve.http import open_socket
from toolcrib.state import Vault


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("http") / "project")
    with http_server(crib.root) as running:
        yield running


def test_a_login_link_works_once_and_gives_a_session(server: HttpServerProcess) -> None:
    path = server.send("POST", "/login").json["path"]
    begun = server.log_in(server.login)
    assert server.send("GET", "/session", headers=begun, token=None).json["caller"] == "page"
    for link in (server.login, "/#code=", "/#code=no"):
        again = server.send("POST", "/session", {"code": link.partition("#code=")[2]}, token=None)
        assert (again.status, again.code) == (401, "invalid_token"), link
        assert "toolcrib ui" in again.json["error"]["hint"]
    by_token = server.log_in(path)
    assert server.send("GET", "/session", headers=by_token, token=None).json["person"] == "olga"


def test_a_session_is_no_client_of_mcp(server: HttpServerProcess) -> None:
    begun = server.log_in(server.send("POST", "/login").json["path"])
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {**begun, "Accept": "application/json, text/event-stream"}
    assert server.send("POST", "/mcp", body, headers, token=None).status == 401


def test_a_session_ends_by_logout(server: HttpServerProcess) -> None:
    begun = server.log_in(server.send("POST", "/login").json["path"])
    assert server.send("DELETE", "/session", headers=begun, token=None).status == 204
    assert server.send("GET", "/session", headers=begun, token=None).code == "invalid_token"


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "http://127.0.0.1:1", "http://localhost", "http://["]
)
def test_no_page_of_another_site_can_begin_a_session(server: HttpServerProcess, origin: str) -> None:
    reply = server.send("POST", "/session", {"code": "x"}, {"Origin": origin}, token=None)
    assert (reply.status, reply.code) == (403, "denied")
    assert reply.json["error"]["hint"].endswith("A proxy must pass on the Host of the browser.")


@pytest.mark.parametrize("path", ["/", "/session", "/nothing", "/assets/x"])
def test_other_names_of_the_server_are_refused(server: HttpServerProcess, path: str) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "[::1", ""):
        reply = server.send("GET", path, headers={"Host": host})
        assert (reply.status, reply.code) == (403, "denied"), host
    assert server.send("GET", "/", headers={"Host": f"LOCALHOST:{server.port}"}).status == 200


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization"])
@pytest.mark.parametrize("path", ["/tools", "/mcp", "/health"])
def test_a_header_that_decides_comes_once(server: HttpServerProcess, path: str, name: str) -> None:
    good = {"Host": f"127.0.0.1:{server.port}", "Origin": server.address}
    value = good.get(name, f"Bearer {server.token}")
    twice = f"{name}: {value}\r\n{name}: {value}\r\n"
    other = "" if name == "Host" else f"Host: 127.0.0.1:{server.port}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\n{other}{twice}Connection: close\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_probe_that_names_an_address_learns_if_calls_can_run(tmp_path: Path) -> None:
    crib = Crib(tmp_path / "project")
    with http_server(crib.root) as server:
        probe = {"Host": "10.0.0.7:8745"}
        assert server.send("GET", "/health", headers=probe, token=None).json == {"status": "ok"}
        assert server.send("HEAD", "/health", headers=probe, token=None).status == 200
        assert server.send("GET", "/", headers=probe, token=None).status == 403
    log = crib.root / ".toolcrib" / "audit" / "tools.log"
    log.unlink(missing_ok=True)
    log.mkdir(parents=True)
    with http_server(crib.root) as server:
        reply = server.send("GET", "/health", headers=probe, token=None)
        assert (reply.status, reply.code) == (503, "unavailable")
        assert str(tmp_path) not in reply.body.decode()


def test_no_other_page_may_read_an_answer(server: HttpServerProcess) -> None:
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "GET"}
    for reply in (
        server.send("OPTIONS", "/session", headers=preflight, token=None),
        server.send("GET", "/session", headers={"Origin": "http://evil.example"}),
        server.send("GET", "/session"),
    ):
        assert not [name for name in reply.headers if name.lower().startswith("access-control-")]
        assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize(
    "header",
    [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic dTpw"}, {"Cookie": "toolcrib-1=x"}],
)
def test_without_a_token_nothing_is_answered(server: HttpServerProcess, header: dict[str, str]) -> None:
    reply = server.send("GET", "/session", headers=header, token=None)
    assert (reply.status, reply.code) == (401, "invalid_token")
    assert reply.headers["WWW-Authenticate"] == 'Bearer realm="toolcrib"'


def test_a_token_has_its_scopes_until_it_is_revoked(server: HttpServerProcess) -> None:
    token = server.create_token("reader", "read")
    assert server.send("GET", "/session", token=token).json == {
        "caller": "token:reader",
        "person": "olga",
        "scopes": ["read"],
    }
    refused = server.send("POST", "/login", token=token)
    assert (refused.status, refused.code) == (403, "denied")
    tokens = Tokens(Vault(server.root, server.data))
    tokens.revoke("reader")
    tokens.close()
    assert server.send("GET", "/session", token=token).status == 401


def test_every_error_has_the_one_shape_and_an_id(server: HttpServerProcess) -> None:
    for method, path, status, code in (
        ("GET", "/nothing", 404, "not_found"),
        ("PUT", "/session", 405, "method_not_allowed"),
        ("GET", "/login", 405, "method_not_allowed"),
        ("GET", "/tools/search", 400, "missing_field"),
        ("GET", "/tools/search?q=a&q=b", 400, "invalid_input"),
        ("GET", "/tools/search?wrong=a", 400, "invalid_input"),
    ):
        reply = server.send(method, path, headers={"X-Request-Id": "mine-1"})
        assert (reply.status, reply.code) == (status, code)
        assert set(reply.json["error"]) == {"code", "message", "retryable", "hint", "violations", "details"}
        assert reply.headers["X-Request-Id"] == "mine-1"
    made = server.send("GET", "/", headers={"X-Request-Id": "no spaces\tor tabs"}).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f-]{36}", made)


def test_an_unsupported_method_names_the_supported_ones(server: HttpServerProcess) -> None:
    assert server.send("PUT", "/session").headers["Allow"] == "DELETE, GET, HEAD, POST"


def test_an_answer_in_two_parts_waits_for_no_acknowledgement() -> None:
    """Without TCP_NODELAY each answer on a connection that is kept takes 40 ms (RFC 1122, 4.2.3.2)."""
    with open_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_head_and_body_of_a_short_answer_are_sent_at_once(server: HttpServerProcess) -> None:
    """In two parts they cost the server and its client a system call and a wake-up more."""
    host, token = f"127.0.0.1:{server.port}", server.token
    head = f"GET /session HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=patient(20)) as client:
        for _ in range(50):
            client.sendall(head.encode())
            assert client.recv(65_536).endswith(b"}")


def test_a_connection_is_used_again_after_a_pause(server: HttpServerProcess) -> None:
    connection = server.connect()
    for pause_s in (6, 0):
        connection.request("GET", "/", headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        time.sleep(pause_s)
    connection.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_at_once(tmp_path: Path, number: signal.Signals) -> None:
    crib = Crib(tmp_path / "project")
    with http_server(crib.root) as server:
        idle = server.connect()
        idle.request("GET", "/")
        idle.getresponse().read()  # an open connection without a request
        server.process.send_signal(number)
        assert server.process.wait() == 0
        idle.close()


def test_a_port_in_use_is_an_error(server: HttpServerProcess) -> None:
    words = ["serve", "--http", "--port", str(urlsplit(server.address).port), "--root", str(server.root)]
    ended = complete([PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert "--port" in ended.stderr
