"""Logging in to an MCP server: authorization code and PKCE, tokens kept and renewed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.crib import Crib
from tests.integration.project.mcp.test_mcp_http import Remote
from tests.mcp_servers import write
from tests.patience import wait_for
from toolcrib.errors import ToolcribError
from toolcrib.executors.mcp.login import Login, OAuthTokens
from toolcrib.manifest.dialects.mcp_servers import ServerSpec
from toolcrib.state import Vault

pytestmark = pytest.mark.timeout(120)


class Guarded(Remote):
    """An MCP server that wants a token, and the authorization server that gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = f"http://127.0.0.1:{self.port}"
        self.issuer = self.base
        self.paths: list[str] = []
        self.codes: dict[str, str] = {}
        self.valid = ""
        self.expires_in = 3600
        self.grants: list[str] = []
        inner: Any = self.uvicorn.config.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await inner(scope, receive, send)
                return
            body = b""
            if scope["path"] in ("/token", "/register"):
                while True:
                    part = await receive()
                    body += part.get("body", b"")
                    if not part.get("more_body"):
                        break
            answer = self.answer(scope, body)
            if answer is None:
                await inner(scope, receive, send)
                return
            status, headers, value = answer
            headers = [(b"content-type", b"application/json"), *headers]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(value).encode()})

        self.uvicorn.config.app = app

    def answer(self, scope: Any, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], Any] | None:
        path = scope["path"]
        self.paths.append(path)
        if path.startswith("/.well-known/oauth-protected-resource"):
            return 200, [], {"resource": self.url, "authorization_servers": [self.issuer]}
        if path.startswith("/.well-known/oauth-authorization-server"):
            return 200, [], {
                "issuer": self.base,
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}/token",
                "registration_endpoint": f"{self.base}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }  # fmt: skip
        if path == "/register":
            return 201, [], {**json.loads(body), "client_id": "client-1"}
        if path == "/authorize":
            asked = {k: v[0] for k, v in parse_qs(scope["query_string"].decode()).items()}
            assert asked["code_challenge_method"] == "S256"
            self.codes["code-1"] = asked["code_challenge"]
            back = urlencode({"code": "code-1", "state": asked["state"]})
            return 302, [(b"location", f"{asked['redirect_uri']}?{back}".encode())], {}
        if path == "/token":
            return self.token({k: v[0] for k, v in parse_qs(body.decode()).items()})
        headers = dict(scope["headers"])
        if headers.get(b"authorization") != f"Bearer {self.valid}".encode() or not self.valid:
            return 401, [(b"www-authenticate", b"Bearer")], {"error": "invalid_token"}
        return None

    def token(self, asked: dict[str, str]) -> tuple[int, list[tuple[bytes, bytes]], Any]:
        self.grants.append(asked["grant_type"])
        if asked["grant_type"] == "authorization_code":
            proof = hashlib.sha256(asked["code_verifier"].encode()).digest()
            if self.codes.pop(asked["code"], "") != base64.urlsafe_b64encode(proof).decode().rstrip("="):
                return 400, [], {"error": "invalid_grant"}
        elif asked.get("refresh_token") != "refresh-1":
            return 400, [], {"error": "invalid_grant"}
        self.valid = f"access-{len(self.grants)}"
        return 200, [], {
            "access_token": self.valid,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "refresh_token": "refresh-1",
        }  # fmt: skip


@contextmanager
def running() -> Iterator[Guarded]:
    server = Guarded()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with running() as server:
        yield server


async def get(url: str) -> tuple[int, str]:
    """The answer that a browser gets, and its redirect."""
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location", "")


async def test_a_login_is_made_kept_and_renewed(crib: Crib, guarded: Guarded) -> None:
    write(crib, {"far": {"url": guarded.url}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        error = project.servers.get("far").server.error
        assert error is not None
        assert "toolcrib servers login far" in (error.hint or "")
        browsing: list[asyncio.Task[None]] = []

        async def browse(url: str) -> None:
            _, back = await get(url)
            forged = urlsplit(back)._replace(query="code=stolen&state=forged").geturl()
            assert (await get(forged))[0] == 404
            assert (await get(back))[0] == 200

        assert await project.servers.login(
            "far", lambda url: browsing.append(asyncio.create_task(browse(url))), limit_s=30
        )
        await asyncio.gather(*browsing)
        assert guarded.grants == ["authorization_code"]
        (kept,) = project.vault.path.glob("mcp/far.tokens.json")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}
    # Later, in another process: the token is over, and is renewed without a person.
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "until": 1.0}))
    guarded.valid = "another"
    async with crib.open() as project:
        assert (await project.call("far__add", {"a": 2, "b": 2})).unwrap() == {"result": 4}
        assert guarded.grants == ["authorization_code", "refresh_token"]
        assert project.servers is not None
        assert project.servers.logout("far")
        assert not kept.exists()


async def test_a_login_goes_on_while_the_person_is_at_a_page(crib: Crib, guarded: Guarded) -> None:
    write(crib, {"far": {"url": guarded.url}})
    async with crib.open() as project:
        assert project.servers is not None
        far = project.servers.get("far")
        assert (await project.call("far__add", {"a": 1, "b": 2})).error is not None
        assert far.as_dict()["error"]["code"] == "tool_unavailable"
        first = await project.servers.begin_login("far", ())
        second = await project.servers.begin_login("far", ())
        assert (first.host, second.host) == (None, None)
        assert first.address is not None
        assert second.address is not None
        assert (far.as_dict()["state"], far.as_dict()["error"]) == ("logging in", None)
        _, back = await get(second.address)
        assert (await get(back))[0] == 200
        # It starts by itself once the person has logged in.
        await asyncio.to_thread(wait_for, lambda: far.as_dict()["state"] == "ready", "the server")
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}
        # Logged out, the connection that has the tokens is over too.
        assert await project.servers.end_login("far")
        refused = await project.call("far__add", {"a": 1, "b": 2})
        assert refused.error is not None
        assert "toolcrib servers login far" in f"{refused.error.message} {refused.error.hint}"
    assert guarded.grants == ["authorization_code"]


async def test_a_page_learns_of_a_host_that_the_person_has_to_allow(crib: Crib, guarded: Guarded) -> None:
    with running() as issuer:
        guarded.issuer = issuer.base
        write(crib, {"far": {"url": guarded.url}})
        async with crib.open() as project:
            assert project.servers is not None
            step = await project.servers.begin_login("far", ())
            assert (step.address, step.host) == (None, f"127.0.0.1:{issuer.port}")
            assert issuer.paths == []
            step = await project.servers.begin_login("far", (step.host or "",))
            assert (step.address or "").startswith(f"{issuer.base}/authorize")


async def test_nobody_logs_in(crib: Crib, guarded: Guarded) -> None:
    write(crib, {"far": {"url": guarded.url}})
    async with crib.open() as project:
        assert project.servers is not None
        with pytest.raises(ToolcribError, match="nobody logged in"):
            await project.servers.login("far", lambda _: None, limit_s=0.3)
    assert guarded.grants == []


async def test_another_host_does_not_log_a_person_in_against_their_will(crib: Crib, guarded: Guarded) -> None:
    with running() as issuer:
        guarded.issuer = issuer.base
        write(crib, {"far": {"url": guarded.url}})
        async with crib.open() as project:
            assert project.servers is not None
            with pytest.raises(ToolcribError, match="is not a host this tool may reach"):
                await project.servers.login("far", print, allow=lambda _: False)
    assert issuer.paths == []


async def test_a_person_is_asked_once_about_each_host(tmp_path: Path) -> None:
    tokens = OAuthTokens(Vault(tmp_path), ServerSpec("far", "http"))
    asked: list[str] = []

    def allow(host: str) -> bool:
        asked.append(host)
        return host == "good:443"

    login = Login(tokens, lambda _: None, allow=allow)
    answers = [login.login_host(host) for host in ("good:443", "bad:443", "good:443", "bad:443")]
    assert (answers, asked) == ([True, False, True, False], ["good:443", "bad:443"])
    again = Login(tokens, lambda _: None, allow=allow)
    assert (again.login_host("good:443"), asked) == (True, ["good:443", "bad:443"])
