"""Approval and callers over MCP: a real server of a project, the official client on both wires."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client import Client

from tests.commands import run, shared_server
from tests.crib import Crib
from toolcrib.guard import Tokens
from toolcrib.state import Vault

Mode = Literal["legacy", "2026-07-28"]
MODES: list[Mode] = ["legacy", "2026-07-28"]
ASKS = {"approval": {"required": True, "reason": "it \x1b[31mwrites"}}
CHANNEL = "approvals: {channels: [cli, elicitation]}\n"

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    made = Crib(tmp_path / "project")
    made.write("count", "")
    permissions = {"fs": {"read": ["."], "write": ["count"]}}
    made.shell("count", permissions=permissions, **ASKS)
    made.shell("free")
    return made


def server(crib: Crib, **more: str) -> StdioServerParameters:
    env = {**os.environ, **more}
    arguments = ["serve", "--stdio", "--root", str(crib.root)]
    return StdioServerParameters(command=str(shared_server().program()), args=arguments, env=env)


def code(result: mcp_types.CallToolResult) -> Any:
    return None if not result.is_error else (result.structured_content or {})["error"]["code"]


class User:
    """The person behind the client."""

    def __init__(self, **answer: Any) -> None:
        self.asked: list[str] = []
        self.answer = answer

    async def __call__(self, context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        self.asked.append(params.message)
        return mcp_types.ElicitResult(**self.answer)


CALL = {"c": "echo x >> count; wc -l < count"}


@pytest.mark.parametrize("mode", MODES)
async def test_the_clients_user_agrees_where_the_project_allows_it(crib: Crib, mode: Mode) -> None:
    crib.write(".toolcrib/config.yml", CHANNEL)
    crib.trust()
    user = User(action="accept", content={"approve": True})
    async with Client(server(crib), mode=mode, elicitation_callback=user) as client:
        for count in ("1", "2"):
            result = await client.call_tool("count", CALL)
            assert code(result) is None
            assert count in str(result.content)
    assert len(user.asked) == 2, "a yes is for one call"
    assert "echo x >> count" in user.asked[0]
    assert "write count" in user.asked[0]
    assert "\x1b" not in user.asked[0]
    approved = [entry for entry in crib.audit() if entry.event == "TOOL_APPROVED"]
    assert {entry.fields["channel"] for entry in approved} == {"elicitation"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"action": "accept", "content": {"approve": False, "reason": "not now"}}, "approval_denied"),
        ({"action": "decline"}, "approval_denied"),
        ({"action": "cancel"}, "approval_required"),
        ({"action": "accept", "content": {"approve": "yes"}}, "approval_required"),
    ],
)
async def test_anything_but_a_yes_runs_nothing(
    crib: Crib, mode: Mode, answer: dict[str, Any], expected: str
) -> None:
    crib.write(".toolcrib/config.yml", CHANNEL)
    crib.trust()
    async with Client(server(crib), mode=mode, elicitation_callback=User(**answer)) as client:
        try:
            assert code(await client.call_tool("count", CALL)) == expected
        except RuntimeError:  # 2026-07-28: asked again and again, the client gives up
            assert expected == "approval_required"
    assert (crib.root / "count").read_text() == ""


class Visitor(User):
    """A person whose client shows no forms, but opens pages."""

    def __init__(self, action: str = "accept", **form: str) -> None:
        super().__init__(action=action)
        self.form, self.seen = form, ""
        self.visit: asyncio.Task[None] | None = None
        self.completed: list[str] = []

    async def __call__(self, context: Any, params: Any) -> mcp_types.ElicitResult:
        if self.visit is None and self.answer["action"] == "accept":
            self.visit = asyncio.create_task(asyncio.to_thread(self.decide, params.url))
        return await super().__call__(context, params)

    def decide(self, url: str) -> None:
        self.seen = httpx2.get(url, timeout=30).text
        assert httpx2.get(url[:-1], timeout=30).status_code == 404
        self.seen = httpx2.get(url, timeout=30).text
        cut = httpx2.post(url, data={"reason": "not whole"}, timeout=30)
        assert "May this call run?" in cut.text, "it decides nothing"
        assert "close this page" in httpx2.post(url, data=self.form, timeout=30).text
        assert httpx2.post(url, data=self.form, timeout=30).status_code == 404

    async def hear(self, message: Any) -> None:
        if isinstance(message, mcp_types.ElicitCompleteNotification):
            self.completed.append(message.params.elicitation_id)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (Visitor(answer="approve"), None),
        (Visitor(answer="deny", reason="not <now>"), "approval_denied"),
        (Visitor("decline"), "approval_denied"),
    ],
    ids=["approve", "deny", "decline"],
)
async def test_a_client_without_forms_sends_its_user_to_a_page(
    crib: Crib, mode: Mode, user: Visitor, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_url = mcp_types.ElicitationCapability(url=mcp_types.UrlElicitationCapability())
    monkeypatch.setattr(mcp_types, "ElicitationCapability", lambda **_: by_url)
    crib.write(".toolcrib/config.yml", CHANNEL)
    crib.trust()
    user = copy.deepcopy(user)
    script = "echo '<b>' >> count; wc -l < count"
    options: Any = {"elicitation_callback": user, "message_handler": user.hear}
    async with Client(server(crib), mode=mode, **options) as client:
        result = await client.call_tool("count", {"c": script})
        assert code(result) == expected
        assert (crib.root / "count").read_text() == ("" if expected else "<b>\n")
        if user.visit is not None:
            await user.visit
    assert ["echo" in text for text in user.asked] == [False], "the page shows it, not the client"
    if user.visit is not None:
        assert "echo &#x27;&lt;b&gt;&#x27;" in user.seen
        assert "not <now>" in str(result.content) or expected is None
        assert len(user.completed) == (mode == "legacy")
        decided = "TOOL_DENIED" if expected else "TOOL_APPROVED"
        (entry,) = [entry for entry in crib.audit() if entry.event == decided]
        assert entry.fields["channel"] == "elicitation"


async def test_a_page_is_gone_once_a_person_has_decided_elsewhere(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_url = mcp_types.ElicitationCapability(url=mcp_types.UrlElicitationCapability())
    monkeypatch.setattr(mcp_types, "ElicitationCapability", lambda **_: by_url)
    crib.write(".toolcrib/config.yml", CHANNEL)
    crib.trust()
    pages: list[int] = []

    async def elicit(context: Any, params: Any) -> mcp_types.ElicitResult:
        await decided(crib, "deny", waiting(crib))
        asked = [await asyncio.to_thread(ask, params.url, timeout=30) for ask in (httpx2.get, httpx2.post)]
        pages.extend(page.status_code for page in asked)
        return mcp_types.ElicitResult(action="accept")

    async with Client(server(crib), mode="legacy", elicitation_callback=elicit) as client:
        assert code(await client.call_tool("count", CALL)) == "approval_denied"
    assert pages == [404, 404]


async def test_the_answer_may_come_to_another_server_of_the_project(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", CHANNEL)
    crib.trust()
    yes = mcp_types.ElicitResult(action="accept", content={"approve": True})
    options: Any = {"mode": "2026-07-28", "elicitation_callback": User(action="cancel")}
    async with Client(server(crib), **options) as client:
        asked: Any = await client.session.call_tool("count", CALL, allow_input_required=True)
    answers: Any = dict.fromkeys(asked.input_requests, yes)
    async with Client(server(crib), **options) as client:
        again = client.session.call_tool
        with pytest.raises(MCPError, match="requestState was changed"):
            await again("count", {"c": "true"}, input_responses=answers, request_state=asked.request_state)
        result = await again("count", CALL, input_responses=answers, request_state=asked.request_state)
        assert code(result) is None
    assert (crib.root / "count").read_text() == "x\n"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("config", ["", CHANNEL])
async def test_no_client_is_asked_unless_a_trusted_project_says_so(
    crib: Crib, mode: Mode, config: str
) -> None:
    crib.write(".toolcrib/config.yml", config)
    user = User(action="accept", content={"approve": True})
    async with Client(server(crib), mode=mode, elicitation_callback=user) as client:
        assert code(await client.call_tool("count", CALL)) == "approval_required"
    assert user.asked == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_waits_is_pending_with_its_id_and_nothing_tells_how_to_approve(
    crib: Crib, mode: Mode
) -> None:
    async with Client(server(crib), mode=mode) as client:
        for tool, arguments in (("count", CALL), ("tool_call", {"name": "count", "arguments": CALL})):
            result = await client.call_tool(tool, arguments)
            told = result.structured_content or {}
            assert (told["status"], told["error"]["code"]) == ("pending", "approval_required")
            assert told["approval"] == waiting(crib)
            assert "A person has to accept it: toolcrib trust count" in str(result.content)
            assert not re.search("toolcrib (approvals|run)|--approve|--yes", result.model_dump_json())
    assert (crib.root / "count").read_text() == ""
    assert crib.audit()[0].event == "TOOL_WAITS"


def waiting(crib: Crib) -> str:
    (one,) = crib.open().approval_service.list("pending")
    return one.approval.id


async def decided(crib: Crib, *words: str) -> None:
    command = ["approvals", *words, "--yes", "--root", str(crib.root)]
    assert (await asyncio.to_thread(run, command, crib.root)).returncode == 0


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_says_so_waits_for_the_person(crib: Crib, mode: Mode) -> None:
    async with Client(server(crib), mode=mode) as client:
        assert code(await client.call_tool("count", CALL)) == "approval_required"
        wait: Any = {"toolcrib/wait": "block"}
        blocked = asyncio.create_task(client.call_tool("count", CALL, meta=wait))
        await decided(crib, "approve", waiting(crib))
        result = await blocked
        assert (code(result), (crib.root / "count").read_text()) == (None, "x\n")


@pytest.mark.parametrize("mode", MODES)
async def test_calls_with_one_key_run_once(crib: Crib, mode: Mode) -> None:
    key: Any = {"toolcrib/idempotency_key": "order-1"}
    async with Client(server(crib), mode=mode) as client:
        assert code(await client.call_tool("count", CALL, meta=key)) == "approval_required"
        await decided(crib, "approve", waiting(crib))
        for _ in range(2):
            result = await client.call_tool("count", CALL, meta=key)
            assert (code(result), (crib.root / "count").read_text()) == (None, "x\n")
    assert crib.last().event == "TOOL_REPLAYED"


@pytest.mark.parametrize("mode", MODES)
async def test_a_dry_run_says_what_a_call_would_do(crib: Crib, mode: Mode) -> None:
    dry: Any = {"toolcrib/dry_run": True}
    async with Client(server(crib), mode=mode) as client:
        result = await client.call_tool("count", CALL, meta=dry)
        plan = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert (code(result), plan["tool"], plan["policy"]) == (None, "count", "ask")
        assert (crib.root / "count").read_text() == ""


@pytest.mark.parametrize("mode", MODES)
async def test_a_dry_run_of_a_tool_with_an_output_schema_gives_the_plan_too(crib: Crib, mode: Mode) -> None:
    crib.tool(
        "list", "command", {"entrypoint": "/bin/ls"}, outputs={"format": "json", "schema": {"type": "array"}}
    )
    async with Client(server(crib), mode=mode) as client:
        dry: Any = {"toolcrib/dry_run": True}
        result = await client.call_tool("list", {}, meta=dry)
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
        assert (result.structured_content or {})["would"] == {"entrypoint": "/bin/ls"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "meta", [{"toolcrib/wait": "forever"}, {"toolcrib/idempotency_key": 7}, {"toolcrib/dry_run": 1}]
)
async def test_what_meta_cannot_mean_is_an_error_of_the_request(crib: Crib, mode: Mode, meta: Any) -> None:
    async with Client(server(crib), mode=mode) as client:
        with pytest.raises(MCPError, match="toolcrib/"):
            await client.call_tool("count", CALL, meta=meta)


@pytest.mark.parametrize("mode", MODES)
async def test_an_approval_for_a_session_ends_with_the_connection(crib: Crib, mode: Mode) -> None:
    crib.trust_tools("count")
    async with Client(server(crib), mode=mode) as client:
        assert code(await client.call_tool("count", CALL)) == "approval_required"
        await decided(crib, "approve", waiting(crib), "--scope", "session")
        for script in ("true", "false || true"):
            assert code(await client.call_tool("count", {"c": script})) is None
    async with Client(server(crib), mode=mode) as client:
        assert code(await client.call_tool("count", {"c": "true"})) == "approval_required"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("again", [False, True], ids=["ten minutes", "do not ask again"])
async def test_a_no_says_for_how_long_it_holds(crib: Crib, mode: Mode, again: bool) -> None:
    crib.write(".toolcrib/config.yml", CHANNEL)
    crib.trust()
    user = User(action="accept", content={"approve": False, "dont_ask_again": again})
    async with Client(server(crib), mode=mode, elicitation_callback=user) as client:
        result = await client.call_tool("count", CALL)
        told = (result.structured_content or {})["error"]
        assert told["code"] == "approval_denied"
        assert code(await client.call_tool("count", CALL)) == "approval_denied"
    assert len(user.asked) == 1
    assert "that counts for 10 minutes" in user.asked[0]
    assert told["details"]["until"] in told["hint"]
    until, at = (datetime.fromisoformat(told["details"][name]) for name in ("until", "decidedAt"))
    assert (until - at > timedelta(days=6)) is again
    assert (until - at == timedelta(minutes=10)) is not again


async def test_a_person_at_a_terminal_decides_and_the_agent_calls_again(crib: Crib) -> None:
    async with Client(server(crib)) as client:
        refused = await client.call_tool("count", CALL)
        approval = (refused.structured_content or {})["error"]["details"]["approval"]
        await decided(crib, "approve", approval)
        assert code(await client.call_tool("count", CALL)) is None
        assert code(await client.call_tool("count", CALL)) == "approval_required"


async def test_a_token_narrows_what_a_client_sees_and_calls(crib: Crib) -> None:
    secret = Tokens(Vault(crib.root)).create("ci", ["invoke"], ("free",), owner="ann")
    crib.trust_tools("free")
    async with Client(server(crib, TOOLCRIB_TOKEN=secret)) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["free"]
        assert code(await client.call_tool("free", {"c": "echo $TOOLCRIB_TOKEN"})) is None
        assert code(await client.call_tool("count", CALL)) == "invalid_token"
    assert crib.last().fields["caller"] == "token:ci"


async def test_a_revoked_token_ends_a_running_server_at_once(crib: Crib) -> None:
    tokens = Tokens(Vault(crib.root))
    secret = tokens.create("ci", ["invoke"], owner="ann")
    crib.trust_tools("free")
    async with Client(server(crib, TOOLCRIB_TOKEN=secret)) as client:
        assert code(await client.call_tool("free", {"c": "true"})) is None
        assert len((await client.list_tools()).tools) > 1
        tokens.revoke("ci")
        assert code(await client.call_tool("free", {"c": "true"})) == "invalid_token"
        assert code(await client.call_tool("tools_list", {})) == "invalid_token"
        with pytest.raises(MCPError, match="revoked"):
            await client.list_tools()
    assert crib.last().fields["code"] == "invalid_token"


async def test_rules_match_the_token_and_the_clients_name(crib: Crib) -> None:
    rules = """\
policy:
  rules:
    - {name: no-agents, effect: deny, callers: ["mcp:*"], tools: [free]}
    - {name: no-ci, effect: deny, callers: ["token:ci"], tools: [count]}
"""
    crib.write(".toolcrib/config.yml", rules)
    secret = Tokens(Vault(crib.root)).create("ci", ["invoke"], owner="ann")
    async with Client(server(crib, TOOLCRIB_TOKEN=secret)) as client:
        assert not {"free", "count"} & {tool.name for tool in (await client.list_tools()).tools}
        for tool in ("free", "count"):
            assert code(await client.call_tool(tool, {"c": "true"})) == "policy_denied"
    for caller, says in ((["mcp:x", "token:ci"], "deny: the rule 'no-agents'"), (["token:ci"], "allow:")):
        words = [word for name in caller for word in ("--as", name)]
        explained = run(["policy", "explain", "free", *words], crib.root)
        assert explained.stdout.decode().startswith(says)


def test_a_wrong_token_serves_nothing(crib: Crib) -> None:
    env = {**os.environ, "TOOLCRIB_TOKEN": "tcr_wrong"}
    done = run(["serve", "--stdio"], crib.root, env)
    assert (done.returncode, done.stdout) == (5, b"")
    assert b"error[invalid_token]" in done.stderr
