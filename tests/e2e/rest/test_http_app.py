"""The HTTP interface: its clients, hosts, bodies, errors and its end, at a real server process."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.commands import PROGRAM, complete
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from toolcrib.guard import Tokens
from toolcrib.serve.http import open_socket
from toolcrib.state import Vault


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("http") / "project")
    with http_server(crib.root) as running:
        yield running


def link(server: HttpServerProcess) -> str:
    """A new login link: its path."""
    path = server.send("POST", "/login").json["path"]
    assert isinstance(path, str)
    return path


def cookie(server: HttpServerProcess) -> dict[str, str]:
    """The cookie of a new session."""
    reply = server.send("GET", link(server), token=None)
    assert reply.status == 303
    return {"Cookie": reply.headers["Set-Cookie"].partition(";")[0]}


def test_the_printed_link_works_once_and_gives_a_strict_cookie(server: HttpServerProcess) -> None:
    path = server.login.removeprefix(server.address)
    assert server.send("HEAD", path, token=None).status == 200  # a program that looks at links
    reply = server.send("GET", path, token=None)
    assert (reply.status, reply.headers["Location"]) == (303, "/")
    name, _, attributes = reply.headers["Set-Cookie"].partition("; ")
    assert set(attributes.lower().split("; ")) == {"httponly", "path=/", "samesite=strict"}
    assert name.startswith(f"toolcrib-{server.port}=")
    assert server.send("GET", "/session", headers={"Cookie": name}, token=None).json["caller"] == "page"
    again = server.send("GET", path, token=None)
    assert (again.status, again.code) == (401, "invalid_token")
    assert "Set-Cookie" not in again.headers


def test_behind_a_proxy_for_tls_the_cookie_never_goes_out_unencrypted(server: HttpServerProcess) -> None:
    for scheme, secure in (("https", True), ("https, http", True), ("http", False)):
        reply = server.send("GET", link(server), headers={"X-Forwarded-Proto": scheme}, token=None)
        assert ("secure" in reply.headers["Set-Cookie"].lower()) is secure, scheme


def test_a_browser_gets_a_page_at_the_end_of_its_link(server: HttpServerProcess) -> None:
    html = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = server.send("GET", "/", headers={**html, **cookie(server)}, token=None)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "You are logged in as " in page.body.decode()
    assert "toolcrib approvals watch" in page.body.decode()
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "You are not logged in" in server.send("GET", "/", headers=html, token=None).body.decode()
    assert server.send("GET", "/", headers={"Accept": "*/*"}, token=None).json["name"] == "toolcrib"
    used = server.send("GET", "/login?code=used", headers=html, token=None)
    assert (used.status, used.headers["Location"]) == (303, "/")
    assert "Set-Cookie" not in used.headers


def test_a_session_ends_by_logout(server: HttpServerProcess) -> None:
    session = cookie(server)
    sent = {**session, "Origin": server.address}
    assert server.send("DELETE", "/session", headers=sent, token=None).status == 204
    assert server.send("GET", "/session", headers=session, token=None).status == 401


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 403),
        ("null", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1:1", 403),
        ("http://localhost", 403),
        ("http://[", 403),
        ("own", 201),
    ],
)
def test_only_the_own_page_can_change_things_by_a_session(
    server: HttpServerProcess, origin: str | None, status: int
) -> None:
    """SameSite treats every port of this machine as one site, so the cookie alone is not enough."""
    sent = cookie(server)
    if origin is not None:
        sent["Origin"] = server.address if origin == "own" else origin
    assert server.send("POST", "/login", headers=sent, token=None).status == status


@pytest.mark.parametrize("path", ["/", "/session", "/nothing", "/login?code=x"])
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
        ("GET", "/login", 400, "missing_field"),
        ("GET", "/login?code=a&code=b", 400, "invalid_input"),
        ("GET", "/login?cod=a", 400, "invalid_input"),
    ):
        reply = server.send(method, path, headers={"X-Request-Id": "mine-1"})
        assert (reply.status, reply.code) == (status, code)
        assert set(reply.json["error"]) == {"code", "message", "retryable", "hint", "violations", "details"}
        assert reply.headers["X-Request-Id"] == "mine-1"
    made = server.send("GET", "/", headers={"X-Request-Id": "no spaces\tor tabs"}).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f-]{36}", made)


def test_an_unsupported_method_names_the_supported_ones(server: HttpServerProcess) -> None:
    assert server.send("PUT", "/login").headers["Allow"] == "GET, HEAD, POST"


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
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        for _ in range(50):
            client.sendall(head.encode())
            assert client.recv(65_536).endswith(b"}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_at_once(tmp_path: Path, number: signal.Signals) -> None:
    crib = Crib(tmp_path / "project")
    with http_server(crib.root) as server:
        idle = server.connect()
        idle.request("GET", "/")
        idle.getresponse().read()  # an open connection without a request
        server.process.send_signal(number)
        assert server.process.wait(10) == 0
        idle.close()


def test_a_port_in_use_is_an_error(server: HttpServerProcess) -> None:
    words = ["serve", "--http", "--port", str(urlsplit(server.address).port), "--root", str(server.root)]
    ended = complete([PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert "--port" in ended.stderr
