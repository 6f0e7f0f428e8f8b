"""Access tokens of an authorization server on loopback, for the MCP endpoint of a real server process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from tests.http_server import HttpServerProcess, Reply, http_server

RESOURCE = "https://tools.example/mcp"
V = "io.modelcontextprotocol/"
META = {f"{V}protocolVersion": "2026-07-28", f"{V}clientCapabilities": {}}


class AuthorizationServer:
    """Describes itself, publishes its keys, and signs tokens."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.reads = self.asked = 0
        self.broken = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = f"http://127.0.0.1:{outer.port}"
                documents = {
                    "/.well-known/oauth-authorization-server": {
                        "issuer": address,
                        "jwks_uri": f"{address}/keys",
                    },
                    "/keys": KeySet(outer.keys).as_dict(private=False),
                }
                found = None if outer.broken else documents.get(self.path)
                outer.asked += 1
                outer.reads += self.path == "/keys"
                self.send_response(200 if found else 404)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.issuer = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def rotate(self, key: Any = None) -> None:
        self.keys = [key or ECKey.generate_key("P-256", auto_kid=True)]

    def token(self, key: Any = None, alg: str = "ES256", **claims: Any) -> str:
        key = key or self.keys[0]
        given = {
            "iss": self.issuer,
            "aud": RESOURCE,
            "sub": "olga@example",
            "exp": int(time.time()) + 600,
            "scope": "invoke",
            **claims,
        }
        header = {"alg": alg, "kid": key.kid}
        return jwt.encode(header, given, key, algorithms=[alg])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    server = AuthorizationServer()
    server.rotate()
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, issuer: AuthorizationServer
) -> Iterator[HttpServerProcess]:
    root: Path = tmp_path_factory.mktemp("oauth") / "project"
    (root / ".toolcrib").mkdir(parents=True)
    with http_server(root, "--issuer", issuer.issuer, "--resource", RESOURCE) as running:
        yield running


def ask(server: HttpServerProcess, token: str | None, method: str = "tools/list", name: str = "") -> Reply:
    params = {"_meta": META, "name": name} if name else {"_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
    return server.send("POST", "/mcp", message, headers, token=token)


def test_the_resource_describes_itself(server: HttpServerProcess, issuer: AuthorizationServer) -> None:
    found = server.send("GET", "/.well-known/oauth-protected-resource/mcp", token=None)
    assert found.status == 200
    assert found.json["resource"] == RESOURCE
    assert found.json["authorization_servers"] == [issuer.issuer]
    refused = ask(server, None)
    assert refused.status == 401
    metadata = "https://tools.example/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{metadata}"' in refused.headers["WWW-Authenticate"]


def test_a_good_token_and_own_tokens_are_accepted(
    server: HttpServerProcess, issuer: AuthorizationServer
) -> None:
    assert ask(server, issuer.token()).status == 200
    assert ask(server, issuer.token(aud=["https://other.example", RESOURCE])).status == 200
    ahead = int(time.time()) + 20
    assert ask(server, issuer.token(iat=ahead, nbf=ahead)).status == 200
    assert ask(server, server.token).status == 200
    assert server.send("GET", "/tools", token=issuer.token()).status == 401  # REST takes own tokens only.


def test_bad_tokens_are_refused(server: HttpServerProcess, issuer: AuthorizationServer) -> None:
    stranger = ECKey.generate_key("P-256", parameters={"kid": issuer.keys[0].kid})
    secret = OctKey.import_key("k" * 32, {"kid": issuer.keys[0].kid})
    good = issuer.token()
    for wrong in (
        issuer.token(iss="https://evil.example"),
        issuer.token(aud="https://other.example/mcp"),
        issuer.token(exp=int(time.time()) - 60),
        issuer.token(exp=float("nan")),  # No comparison with it is true.
        issuer.token(nbf=int(time.time()) + 600),
        issuer.token(iat=int(time.time()) + 600),
        issuer.token(jti=7),
        issuer.token(sub=None),
        issuer.token(stranger),
        issuer.token(secret, "HS256"),
        f"{good[:-6]}AAAAAA",
        "a.b.c",
    ):
        refused = ask(server, wrong)
        assert refused.status == 401, wrong
        assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


def test_a_token_with_too_few_rights_is_told_which_it_needs(
    server: HttpServerProcess, issuer: AuthorizationServer
) -> None:
    refused = ask(server, issuer.token(scope="admin approve other"))
    assert refused.status == 403
    assert 'error="insufficient_scope", scope="invoke"' in refused.headers["WWW-Authenticate"]
    reader = issuer.token(scope="read")
    assert ask(server, reader).status == 200
    log = server.root / ".toolcrib" / "audit" / "tools.log"
    for reads, token in enumerate((reader, issuer.token(scope="read", jti="2")), 1):
        refused = ask(server, token, "tools/call", name="tools_list")
        assert refused.status == 403
        assert 'error="insufficient_scope", scope="invoke"' in refused.headers["WWW-Authenticate"]
        assert log.read_text().count("TOOL_REFUSED") == reads
    assert ask(server, issuer.token(), "tools/call", name="tools_list").status == 200


def test_a_session_belongs_to_the_subject(server: HttpServerProcess, issuer: AuthorizationServer) -> None:
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
    begun = server.send("POST", "/mcp", message, token=issuer.token())
    session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert server.send("POST", "/mcp", ping, session, token=issuer.token(jti="renewed")).status == 200
    assert server.send("POST", "/mcp", ping, session, token=issuer.token(sub="mallory")).status == 404


def test_an_open_stream_ends_when_its_token_expires(
    server: HttpServerProcess, issuer: AuthorizationServer
) -> None:
    """A token is good for 30 seconds after its end, because clocks differ."""
    params = {"_meta": META, "notifications": {"toolsListChanged": True}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
    headers = {
        "Mcp-Method": "subscriptions/listen",
        "MCP-Protocol-Version": "2026-07-28",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    for seconds in (8, 60):  # A busy server may look at it only after its end.
        token = issuer.token(exp=int(time.time()) - 30 + seconds, scope="read")
        connection = HTTPConnection("127.0.0.1", server.port, timeout=300)
        connection.request("POST", "/mcp", body, {**headers, "Authorization": f"Bearer {token}"})
        stream = connection.getresponse()
        if stream.status == 200:
            break
        connection.close()
    else:
        raise AssertionError("no token is good for long enough")
    assert b"acknowledged" in stream.readline() + stream.readline()
    stream.read()  # It ends.
    connection.close()
    assert ask(server, token).status == 401


def test_its_keys_come_over_https_only() -> None:
    from toolcrib.errors import UsageError
    from toolcrib.serve.auth import OAuthResource

    with pytest.raises(UsageError, match="is not an https address"):
        OAuthResource("http://issuer.example", RESOURCE)


def test_keys_may_be_rotated(issuer: AuthorizationServer, tmp_path: Path) -> None:
    """In the process itself, where the time between two readings of the keys can be passed over."""
    import asyncio

    from toolcrib.errors import InvalidToken, UnavailableError
    from toolcrib.serve.auth import OAuthResource, OutsideTokens

    async def run() -> None:
        tokens = OutsideTokens(OAuthResource(issuer.issuer, RESOURCE))
        old = issuer.token()
        assert (await tokens.verify(old)).owner == "olga@example"
        issuer.rotate(RSAKey.generate_key(2048, auto_kid=True))
        new = issuer.token(alg="RS256")
        with pytest.raises(InvalidToken):  # Read a moment ago: not again for each bad token.
            await tokens.verify(new)
        tokens._read -= 60
        tokens._asked -= 60
        reads = issuer.reads
        assert (await tokens.verify(new)).scopes == {"invoke"}
        assert issuer.reads == reads + 1
        with pytest.raises(InvalidToken):  # Its key is gone.
            await tokens.verify(old)
        issuer.broken = True
        try:
            tokens._asked -= 60
            with pytest.raises(UnavailableError):
                await tokens.verify(old)
            with pytest.raises(InvalidToken):  # It did not answer a moment ago: not asked for each bad token.
                await tokens.verify(old)
            assert (await tokens.verify(issuer.token(alg="RS256", sub="other"))).scopes == {"invoke"}
        finally:
            issuer.broken = False
        await tokens.close()
        await before_the_first_answer()

    async def before_the_first_answer() -> None:
        tokens, issuer.broken = OutsideTokens(OAuthResource(issuer.issuer, RESOURCE)), True
        try:
            asked = []
            for _ in range(2):
                with pytest.raises(UnavailableError):
                    await tokens.verify(issuer.token(alg="RS256"))
                asked.append(issuer.asked)
            assert asked[0] == asked[1], "the second token asked once more"
        finally:
            issuer.broken = False
        tokens._asked -= 60
        assert (await tokens.verify(issuer.token(alg="RS256"))).scopes == {"invoke"}
        await tokens.close()

    asyncio.run(run())
