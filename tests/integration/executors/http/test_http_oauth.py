"""OAuth 2 against a token server: one request for many callers, renewed in time, shared by processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.commands import complete
from tests.integration.egress.servers import serving
from tests.integration.executors.http.http_doubles import Attempt, a_tool
from tests.integration.executors.http.token_server import CLIENT, PASSWORD, TokenServer
from toolcrib.egress import Egress
from toolcrib.errors import HttpFailed, ManifestError, SecretMissing, ToolUnavailable
from toolcrib.executors.http.executor import HttpExecutor
from toolcrib.spec import Auth, Call, OAuth2, SecretSpec, Tool
from toolcrib.state.installation import install_hint
from toolcrib.testing import cassette


class World:
    """A token server, and executors of tools that use it."""

    def __init__(self, server: TokenServer, port: int, egress: Egress, folder: Path) -> None:
        self.server, self.port, self.egress, self.folder = server, port, egress, folder
        self.now = 1_000_000.0
        self.learnt: dict[str, str] = {}
        self.secrets = {"KEY": PASSWORD, "ID": CLIENT, "REFRESH": "refresh-0"}

    def tool(self, **rule: Any) -> Tool:
        given = {"token_url": f"http://127.0.0.1:{self.port}/token", "client_id": CLIENT, **rule}
        made = a_tool(self.port, "/api", method="POST", body={"a": "${a}"})
        secrets = (SecretSpec("KEY"), SecretSpec("ID"), SecretSpec("REFRESH"))
        auth = Auth("oauth2", "KEY", oauth2=OAuth2(**given))
        return replace(made, auth=(auth,), permissions=replace(made.permissions, secrets=secrets))

    def executor(self, tool: Tool | None = None) -> HttpExecutor:
        return HttpExecutor(
            tool or self.tool(),
            self.egress,
            token_folder=lambda: self.folder,
            learn=self.learnt.update,
            now=lambda: self.now,
        )

    async def call(self, executor: HttpExecutor, **secrets: str) -> Any:
        return (await executor.run(Call("t", {"a": 1}), Attempt({**self.secrets, **secrets}))).value


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = TokenServer()
    async with Egress() as egress, serving(server.handle) as port:
        yield World(server, port, egress, tmp_path)


async def test_one_token_for_many_callers_and_for_later_ones(world: World) -> None:
    executor, other = world.executor(), world.executor()
    answers = await asyncio.gather(*(world.call(one) for one in [executor, other] * 20))
    assert [answer["ok"] for answer in answers] == [True] * 40
    assert len(world.server.issued) == 1
    assert world.server.requests == [{"grant_type": "client_credentials"}]
    assert world.learnt == {"access_token": "access-token-0"}
    stored = list(world.folder.glob("*.json"))
    assert len(stored) == 1
    assert stored[0].stat().st_mode & 0o777 == 0o600
    await world.call(world.executor(), KEY=PASSWORD)
    assert len(world.server.issued) == 1


async def test_a_recording_holds_no_token(world: World, tmp_path: Path) -> None:
    def mask(value: Any) -> Any:
        known = [text for text in world.learnt.values() if isinstance(value, str)]
        return value.replace(known[0], "***") if known else value

    with cassette(tmp_path / "c.json", mask=mask):
        await world.call(world.executor())
    written = (tmp_path / "c.json").read_text()
    assert ("/token" in written, "access-token-0" in written, PASSWORD in written) == (True, False, False)
    world.folder = tmp_path / "other"
    world.folder.mkdir()
    with cassette(tmp_path / "c.json", mask=mask):
        assert (await world.call(world.executor()))["ok"]
    assert len(world.server.issued) == 1


@pytest.mark.parametrize(("lifetime", "valid_for"), [(3600, 3540), (90, 45), (None, 10**6)])
async def test_a_token_is_renewed_60_s_early(world: World, lifetime: int | None, valid_for: int) -> None:
    world.server.expires_in = lifetime
    executor = world.executor()
    await world.call(executor)
    world.now += valid_for - 1
    await world.call(executor)
    assert len(world.server.issued) == 1
    world.now += 1
    await world.call(executor)
    assert len(world.server.issued) == (2 if lifetime else 1)


async def test_a_refused_token_is_replaced_once(world: World) -> None:
    executor = world.executor()
    await world.call(executor)
    world.server.issued[-1] = "revoked"
    await asyncio.gather(*(world.call(executor) for _ in range(8)))
    assert len(world.server.issued) == 2

    world.server.refuses = True
    calls = len(world.server.issued)
    with pytest.raises(HttpFailed, match="401"):
        await world.call(executor)
    assert len(world.server.issued) == calls + 1


async def test_a_refresh_token_is_kept_when_it_changes(world: World) -> None:
    world.server.rotates = True
    executor = world.executor(world.tool(grant="refresh_token", refresh_secret="REFRESH", client_auth="post"))
    for _ in range(3):
        await world.call(executor)
        world.now += 3600
    tokens = [request["refresh_token"] for request in world.server.requests]
    assert tokens == ["refresh-0", "refresh-1", "refresh-2"]
    assert world.server.requests[0]["client_secret"] == PASSWORD
    world.server.refresh = "refresh-0"  # The stored one is revoked; the secret's works again.
    await world.call(executor)
    assert [request["refresh_token"] for request in world.server.requests[3:]] == ["refresh-3", "refresh-0"]


async def test_processes_share_a_token_and_its_renewal(world: World) -> None:
    script = f"""
import asyncio, sys
from tests.integration.executors.http.test_http_oauth import World, TokenServer
from toolcrib.egress import Egress
from pathlib import Path
async def main():
    async with Egress() as egress:
        world = World(TokenServer(), {world.port}, egress, Path({str(world.folder)!r}))
        await asyncio.gather(*(world.call(world.executor()) for _ in range(5)))
asyncio.run(main())
"""
    root = Path(__file__).parents[4]

    def run() -> int:
        return complete([sys.executable, "-c", script], cwd=root).returncode

    assert await asyncio.gather(*(asyncio.to_thread(run) for _ in range(3))) == [0, 0, 0]
    assert len(world.server.issued) == 1
    assert len(world.server.api) == 15


@pytest.mark.parametrize(
    ("status", "body", "what", "retryable"),
    [
        (401, '{"error": "invalid_client", "error_description": "Who?"}', r"invalid_client \(Who\?\)", False),
        (503, "busy", "answered 503", True),
        (200, "<html>", "not one of OAuth 2", False),
        (200, '{"token_type": "Bearer"}', "not one of OAuth 2", False),
    ],
)
async def test_a_server_without_a_token(
    world: World, status: int, body: str, what: str, retryable: bool
) -> None:
    world.server.failure = web.Response(status=status, text=body, content_type="application/json")
    with pytest.raises(HttpFailed, match=what) as raised:
        await world.call(world.executor())
    assert raised.value.retryable is retryable
    assert world.server.api == []
    assert PASSWORD not in json.dumps(raised.value.as_dict())


async def test_a_missing_library_is_named_with_the_line_that_installs_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "authlib.oauth2.client", None)
    with pytest.raises(ToolUnavailable, match="OAuth 2 needs authlib, which is not installed") as raised:
        await world.call(world.executor())
    assert raised.value.hint == install_hint("oauth")
    assert world.server.requests == []


async def test_other_secrets_and_other_hosts_have_other_tokens(world: World) -> None:
    await world.call(world.executor())
    with pytest.raises(HttpFailed, match="invalid_client"):
        await world.call(world.executor(), KEY="guessed")
    tool = world.tool()
    allow = (*tool.permissions.network.allow, "evil.example")
    wider = replace(
        tool, permissions=replace(tool.permissions, network=replace(tool.permissions.network, allow=allow))
    )
    await world.call(world.executor(wider))
    assert len(world.server.issued) == 2
    with pytest.raises(SecretMissing):
        await world.executor().run(Call("t", {}), Attempt({}))


async def test_a_device_login_is_polled_until_a_person_agrees(world: World) -> None:
    rule = {
        "grant": "device_code",
        "device_url": f"http://127.0.0.1:{world.port}/device",
    }
    executor = world.executor(world.tool(**rule))
    with pytest.raises(ToolUnavailable, match="nobody has logged in"):
        await world.call(executor)
    world.server.pending = 2
    shown: list[tuple[str, str]] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await executor._tokens[0].log_in(world.secrets, lambda *what: shown.append(what), sleep)
    assert shown == [("https://example.com/activate", "WDJB-MJHT")]
    assert slept == [1.0, 1.0, 1.0]
    assert (await world.call(executor))["ok"]
    world.now += 3600
    world.server.requests.clear()
    await world.call(executor, KEY=PASSWORD)
    assert world.server.requests[-1]["grant_type"] == "refresh_token"


@pytest.mark.parametrize(
    "answer", [b"no JSON", b"[]", b'{"device_code": "x"}', b'{"device_code": "x", "user_code": "y"}']
)
async def test_a_device_login_ends_at_a_wrong_answer(world: World, answer: bytes) -> None:
    rule = {"grant": "device_code", "device_url": f"http://127.0.0.1:{world.port}/device"}
    executor = world.executor(world.tool(**rule))
    world.server.device_answer = answer
    with pytest.raises(HttpFailed, match="did not return a device code"):
        await executor.log_in(world.secrets, lambda *_: None)


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ({"token_url": "https://other.example/token"}, "other.example"),
        ({"token_url": "http://127.0.0.1/${a}"}, "cannot contain a placeholder"),
        ({"token_url": "http://127.0.0.1:1/token"}, "127.0.0.1:1"),
        ({"client_id": None}, "either `client_id` or `username_secret`"),
        ({"grant": "refresh_token"}, "needs `refresh_secret`"),
        ({"grant": "device_code"}, "needs `device_url`"),
        ({"refresh_secret": "NOT_DECLARED", "grant": "refresh_token"}, "is not declared"),
    ],
)
async def test_a_rule_that_cannot_work_is_refused(world: World, rule: dict[str, Any], what: str) -> None:
    with pytest.raises(ManifestError, match=what):
        world.executor(world.tool(**rule))
