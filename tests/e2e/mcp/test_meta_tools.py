"""Tools made by agents, first use and the meta-tools, through the official MCP client."""

from __future__ import annotations

import json
import os
import venv
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from ruamel.yaml import YAML

from tests.commands import shared_server
from tests.crib import Crib, accept
from tests.e2e.cli.test_cli import Done, on_terminal
from tests.e2e.cli.test_cli import cli as plain
from toolcrib import Project
from toolcrib.guard import Tokens
from toolcrib.state import Vault

pytestmark = pytest.mark.usefixtures("kernel")

META = ["tool_call", "tool_create", "tools_list", "tools_search"]
GLEE = ["glee_tool", "glee_tool_create", "glee_tools_list"]
PRINTED = Path(__file__).parents[2] / "data" / "glee"
"""The manifests in Glee's own documentation."""
HELLO: dict[str, Any] = {
    "description": "Say hello",
    "kind": "command",
    "version": 1,
    "exec": {"command": {"entrypoint": "echo", "args": ["hello"]}},
    "outputs": {"format": "text"},
    "approval": {"required": False},
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    return str(tmp_path / "data")


def server(crib: Crib, **env: str) -> StdioServerParameters:
    words = ["serve", "--stdio", "--root", str(crib.root)]
    accept(crib.root, Path(os.environ["TOOLCRIB_DATA"]))
    return StdioServerParameters(
        command=str(shared_server().program()), args=words, env={**os.environ, **env}
    )


def client(crib: Crib, **env: str) -> Client:
    return Client(server(crib, **env), client_info=mcp_types.Implementation(name="claude", version="1"))


def cli(crib: Crib, *words: str) -> Done:
    """The command line, with the data folder of this test."""
    return plain(crib, *words, env={"TOOLCRIB_DATA": os.environ["TOOLCRIB_DATA"]}, accepted=False)


def value(result: mcp_types.CallToolResult) -> Any:
    assert not result.is_error, result.content
    block = result.content[0]
    assert isinstance(block, mcp_types.TextContent)
    return block.text


def error(result: mcp_types.CallToolResult) -> dict[str, Any]:
    assert result.is_error
    assert result.structured_content is not None
    found: dict[str, Any] = result.structured_content["error"]
    return found


async def names(agent: Client) -> list[str]:
    return [tool.name for tool in (await agent.list_tools()).tools]


@pytest.mark.parametrize(("home", "prefix"), [(".toolcrib", "tool"), (".glee", "glee_tool")])
async def test_an_agent_makes_a_tool_a_person_agrees_and_it_runs(
    tmp_path: Path, data: str, home: str, prefix: str
) -> None:
    crib = Crib(tmp_path / "project", home)
    call, make = ("tool_call", "tool_create") if prefix == "tool" else ("glee_tool", "glee_tool_create")
    async with client(crib) as agent:
        assert await names(agent) == META + (GLEE if home == ".glee" else [])
        made = await agent.call_tool(make, {"name": "hello", "definition": HELLO})
        assert json.loads(value(made)) == {
            "name": "hello",
            "path": f"{home}/tools/hello/tool.yml",
            "approval": {"required": True, "reason": "Made by the agent claude"},
            "warnings": [],
        }
        assert "hello" not in await names(agent), "nobody has trusted it yet"
        first = error(await agent.call_tool(call, {"name": "hello"}))
        assert (first["code"], "claude" in first["message"]) == ("approval_required", True)
        done = cli(crib, "approvals", "approve", first["details"]["approval"], "--yes")
        assert done.code == 0, done
        assert value(await agent.call_tool(call, {"name": "hello"})) == "hello\n"
        assert error(await agent.call_tool("hello", {}))["code"] == "approval_required"
    lines = [(entry.event, entry.fields.get("name")) for entry in crib.audit()]
    assert [event for event, name in lines if name == "hello"] == [
        *("TOOL_CREATED", "TOOL_REFUSED", "TOOL_APPROVED", "TOOL_EXECUTED", "TOOL_WAITS")
    ]
    created = next(entry for entry in crib.audit() if entry.event == "TOOL_CREATED")
    assert created.fields["creator"] == "claude"
    ran = next(
        entry for entry in crib.audit() if entry.event == "TOOL_EXECUTED" and entry.fields["name"] == "hello"
    )
    assert ran.fields["caller"] == "mcp:claude"


FLOW = "name: flow\nsteps:\n  - {id: one, agent: helper, prompt: Hi}\noutput: ${steps.one.value}\n"


async def test_an_agent_makes_an_agent_a_person_agrees_and_it_gets_tasks(tmp_path: Path, data: str) -> None:
    crib = Crib(tmp_path / "project", ".glee")
    (crib.home / "agents").mkdir()
    crib.write(".glee/workflows/flow.yml", FLOW)
    definition = {"model": "scripted", "description": "Helps with tests", "script": [{"text": "{{prompt}}!"}]}
    async with client(crib) as agent:
        made = await agent.call_tool("glee_agent_create", {"name": "helper", "definition": definition})
        assert json.loads(value(made)) == {
            "name": "helper",
            "path": ".glee/agents/helper.yml",
            "trust": "a person has to trust it before it runs",
        }
        refused = error(await agent.call_tool("glee_task", {"prompt": "Write tests"}))
        assert refused["code"] == "approval_required"
        assert "which the agent claude made" in refused["message"]
        done = cli(crib, "trust", "--yes")
        assert (done.code, "(made by an agent: agent:helper)" in done.out) == (0, True), done
        first = json.loads(value(await agent.call_tool("glee_task", {"prompt": "Write tests"})))
        assert (first["agent"], first["answer"], first["log"]) == ("helper", "Write tests!", None)
        more = {"prompt": "And run them", "session": first["session"]}
        assert json.loads(value(await agent.call_tool("task", more)))["answer"] == "And run them!"
        flow = json.loads(value(await agent.call_tool("glee_workflow", {"name": "flow"})))
        assert flow["value"] == "Hi!"
        listed = await names(agent)
        assert {"agent_create", "workflow_run"} < set(listed)
    events = [(one.event, one.fields.get("name"), one.fields.get("subjects")) for one in crib.audit()]
    assert ("AGENT_CREATED", "helper", None) in events
    assert [subjects for event, _, subjects in events if event == "TRUSTED"] == [["agent:helper"]]


async def test_what_an_agent_may_not_make_is_an_error_that_teaches(crib: Crib, data: str) -> None:
    async with client(crib) as agent:
        asks = {"network": True, "secrets": {"KEY": {"type": "string"}}}
        refused = await agent.call_tool(
            "tool_create", {"name": "hello", "definition": {**HELLO, "permissions": asks}}
        )
        told = error(refused)
        assert told["code"] == "permission_denied"
        assert [one["path"] for one in told["violations"]] == [
            "$.permissions.network",
            "$.permissions.secrets.KEY",
        ]
        for name in ("../x", "tool_call"):
            again = await agent.call_tool("tool_create", {"name": name, "definition": HELLO})
            assert error(again)["code"] == "invalid_input"
        assert await names(agent) == META
    assert list((crib.home / "tools").iterdir()) == []


async def test_tools_are_listed_found_and_called(crib: Crib, data: str) -> None:
    crib.shell("repo_scan", description="Look for open tasks")
    crib.shell("notify", description="Send a message")
    crib.write(".toolcrib/config.yml", "mcp: {max_listed: 1, pinned: [notify]}")
    crib.trust_tools("repo_scan")
    async with client(crib) as agent:
        assert sorted(await names(agent)) == sorted([*META, "notify"])
        listed = json.loads(value(await agent.call_tool("tools_list", {})))
        assert listed == [
            {"name": "notify", "description": "Send a message"},
            {"name": "repo_scan", "description": "Look for open tasks"},
        ]
        page = json.loads(value(await agent.call_tool("tools_list", {"offset": 1, "limit": 5})))
        assert [one["name"] for one in page] == ["repo_scan"]
        for query in (
            "repo",
            "REPO-SCAN",
            "open tasks",
            "repo_scann",
            "what is still to do in this codebase",
        ):
            found = json.loads(value(await agent.call_tool("tools_search", {"query": query})))
            assert [one["name"] for one in found] == ["repo_scan"], query
            assert found[0]["input_schema"]["properties"] == {"c": {"type": "string"}}
        assert json.loads(value(await agent.call_tool("tools_search", {"query": "zzz"}))) == []
        ran = await agent.call_tool("tool_call", {"name": "repo_scan", "arguments": {"c": "echo ran"}})
        assert value(ran) == "ran\n"
        assert value(await agent.call_tool("repo_scan", {"c": "echo outright"})) == "outright\n"


async def test_calls_as_glee_prints_them(tmp_path: Path, data: str) -> None:
    crib = Crib(tmp_path / "project", ".glee")
    for name in ("web_search", "repo_scan", "slack_notify"):
        crib.write(f".glee/tools/{name}/tool.yml", (PRINTED / name / "tool.yml").read_text())
    weather = YAML(typ="safe").load(PRINTED / "weather" / "tool.yml")
    crib.write("scripts/scan_todos.sh", "#!/bin/sh\necho Matches found: 2\n", 0o755)
    most = {"network": True, "secrets": ["WEATHER_API_KEY"]}
    crib.write(".glee/config.yml", json.dumps({"security": {"max_permissions": most}}))
    crib.trust()
    async with client(crib) as agent:
        listed = json.loads(value(await agent.call_tool("glee_tools_list", {})))
        assert listed == [
            {"name": "repo_scan", "description": "Scan repo for TODOs"},
            {"name": "slack_notify", "description": "Send a message to a Slack channel"},
            {"name": "web_search", "description": "Search the web for information using Brave Search API"},
        ]
        (shown,) = [tool for tool in (await agent.list_tools()).tools if tool.name == "web_search"]
        assert "best python web frameworks 2025" in (shown.description or "")  # its example
        params = {"query": "best python frameworks", "count": 5}
        asked = error(await agent.call_tool("glee_tool", {"name": "web_search", "params": params}))
        assert asked["code"] == "approval_required"
        del weather["name"]
        made = await agent.call_tool("glee_tool_create", {"name": "weather", "definition": weather})
        assert json.loads(value(made))["path"] == ".glee/tools/weather/tool.yml"
        assert (crib.home / "tools" / "weather" / "tool.yml").exists()
        scanned = await agent.call_tool("glee_tool", {"name": "repo_scan", "params": {"path": "."}})
        assert value(scanned) == "Matches found: 2\n"


async def test_the_inner_call_is_held_to_all_that_holds_for_it_outright(crib: Crib, data: str) -> None:
    crib.shell("secret_door")
    crib.shell("door")
    crib.write(".toolcrib/config.yml", "policy: {rules: [{effect: deny, tools: [secret_door]}]}")
    async with client(crib) as agent:
        listed = json.loads(value(await agent.call_tool("tools_list", {})))
        assert [one["name"] for one in listed] == ["door"]
        inner = {"name": "secret_door", "arguments": {"c": "echo x"}}
        assert error(await agent.call_tool("tool_call", inner))["code"] == "policy_denied"
        wrong = error(await agent.call_tool("tool_call", {"name": "door", "arguments": {"d": 1}}))
        assert (wrong["code"], wrong["violations"][0]["path"]) == ("invalid_input", "$.d")
        missing = error(await agent.call_tool("tool_call", {"name": "dor", "arguments": {}}))
        assert (missing["code"], missing["details"]) == ("tool_not_found", {"nearest": "door"})
        again = {"name": "tool_call", "arguments": inner}
        assert error(await agent.call_tool("tool_call", again))["code"] == "invalid_input"


async def test_a_token_reaches_no_more_through_a_meta_tool(crib: Crib, data: str) -> None:
    crib.shell("door")
    crib.shell("other")
    crib.trust_tools("door", "other")
    tools = ["door", "tool_*", "tools_*"]
    token = Tokens(Vault(crib.root)).create("bot", ["read", "invoke"], tools, owner="ann")
    async with client(crib, TOOLCRIB_TOKEN=token) as agent:
        assert sorted(await names(agent)) == sorted([*META, "door"])
        ran = await agent.call_tool("tool_call", {"name": "door", "arguments": {"c": "echo ran"}})
        assert value(ran) == "ran\n"
        refused = await agent.call_tool("tool_call", {"name": "other", "arguments": {"c": "echo ran"}})
        assert error(refused)["code"] == "invalid_token"


async def test_the_projects_own_tool_keeps_its_name(crib: Crib, data: str) -> None:
    crib.shell("tool_call")
    crib.trust_tools("tool_call")
    async with client(crib) as agent:
        assert value(await agent.call_tool("tool_call", {"c": "echo mine"})) == "mine\n"
        assert sorted(await names(agent)) == sorted(META)


async def test_the_pages_of_tools_and_ones_own_calls_are_resources(crib: Crib, data: str) -> None:
    icon = {"src": "https://example.com/hello.png", "mimeType": "image/png", "sizes": ["48x48"]}
    hello = {"entrypoint": "echo", "args": ["${name}"]}
    example = {"description": "Greet Ann", "params": {"name": "Ann"}}
    properties = {"name": {"type": "string"}}
    crib.tool("hello", "command", hello, properties, mcp={"icons": [icon]}, examples=[example])
    crib.tool("hidden", "command", {"entrypoint": "true"})
    crib.trust_tools("hello")
    tools = ["hello", "tool_page", "own_calls"]
    token = Tokens(Vault(crib.root)).create("bot", ["read", "invoke"], tools, owner="ann")

    async def text(agent: Client, uri: str) -> str:
        found: str = (await agent.read_resource(uri)).contents[0].text  # type: ignore[union-attr]
        return found

    async with client(crib) as agent:
        assert not {"tool_page", "own_calls"} & {*await names(agent)}
        listed = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert [one.model_dump(exclude_none=True, by_alias=True) for one in listed["hello"].icons or ()] == [
            icon
        ]
        resources = [str(one.uri) for one in (await agent.list_resources()).resources]
        templates = [one.uri_template for one in (await agent.list_resource_templates()).resource_templates]
        assert resources == ["toolcrib://calls", "toolcrib://artifacts"]
        assert templates == ["toolcrib://tools/{name}"]
        assert "Does hidden." in await text(agent, "toolcrib://tools/hidden")
    async with client(crib, TOOLCRIB_TOKEN=token) as agent:
        await agent.call_tool("hello", {"name": "Ann"})
        page = await text(agent, "toolcrib://tools/hello")
        assert page.startswith("# hello\n\nDoes hello.")
        assert "Greet Ann" in page
        with pytest.raises(MCPError, match="no tool named 'hidden'"):
            await text(agent, "toolcrib://tools/hidden")
        lines = json.loads(await text(agent, "toolcrib://calls"))
        assert {line["fields"]["caller"] for line in lines} == {"token:bot"}
        assert "hello" in {line["fields"].get("name") for line in lines}


async def test_a_long_text_as_a_resource_ends_with_how_to_read_on(crib: Crib, data: str) -> None:
    crib.shell("long")
    crib.trust_tools("long")
    async with client(crib) as agent:
        cut = str(value(await agent.call_tool("long", {"c": "seq 20000"})))
        artifact = cut.rpartition("artifact_read with id=")[2].partition(" ")[0]
        (content,) = (await agent.read_resource(f"toolcrib://artifacts/{artifact}")).contents
        text = content.text  # type: ignore[union-attr]
        part, _, note = text.rpartition(
            "\n[cut: bytes 0 to 50,000 of 108,894. To read on, call artifact_read with "
        )
        assert note == f"id={artifact} and offset=50000.]"
        rest = await agent.call_tool("artifact_read", {"id": artifact, "offset": 50_000, "limit": 50_000})
        assert (part + value(rest)).startswith("1\n2\n3\n")
        assert f"id={artifact} and offset=100000." in value(rest)


# -- the command line --------------------------------------------------------------------------------


def far(crib: Crib, **more: Any) -> Path:
    """A tool that reaches beyond the project."""
    return crib.shell("far", permissions={"env": ["LANG"]}, **more)


def test_trust_shows_asks_and_records(crib: Crib, data: str) -> None:
    assert cli(crib, "trust", "--yes").code == 0
    reader = {"args": ["-c", "echo ran"], "allow_code": False}
    folder = far(crib, config=reader)
    crib.shell("near", config=reader)
    (document,) = json.loads(cli(crib, "trust", "--show", "--json").out)["tools"]
    assert (document["name"], document["status"]) == ("far", "new")
    assert document["reasons"] == ["environment variable LANG"]
    assert cli(crib, "trust", "--check").code == 5
    unasked = cli(crib, "trust", "--show", "far")
    assert "environment variable LANG" in unasked.out
    assert document["digest"][:12] in unasked.out
    assert cli(crib, "trust", "far", "--yes").code == 0
    assert cli(crib, "trust", "--check").code == 0
    (folder / "tool.yml").write_text((folder / "tool.yml").read_text().replace("Does far.", "Does evil."))
    changed = cli(crib, "trust", "--show", "far")
    assert "changed since it was trusted" in changed.out
    assert "Does evil" in changed.out
    assert cli(crib, "trust", "nope").code == 3


@pytest.mark.parametrize(("answer", "status"), [("y\r", "trusted"), ("n\r", "new"), ("\r", "new")])
def test_trust_asks_at_a_terminal(crib: Crib, data: str, answer: str, status: str) -> None:
    assert cli(crib, "trust", "--yes").code == 0
    far(crib, description="Does \u202e far")
    with on_terminal(crib, "trust", env={"TOOLCRIB_DATA": data}) as screen:
        shown = screen.read_until("[y/d/s/N]")
        screen.type(answer)
        assert screen.end() == (0 if status == "trusted" else 5)
    assert "\u202e" not in shown
    project = crib.open()
    assert project.trust.sheet(project.get("far")).status == status


def test_an_approval_of_a_run_is_trust_in_its_tool(crib: Crib, data: str) -> None:
    assert cli(crib, "trust", "--yes").code == 0
    far(crib)
    first = cli(crib, "run", "far", "c=echo ran")
    assert (first.code, first.out) == (5, "")
    assert "nobody has trusted this tool" in first.err
    agreed = cli(crib, "run", "far", "c=echo ran", "--approve")
    assert (agreed.code, agreed.out) == (0, "ran\n")
    assert cli(crib, "run", "far", "c=echo ran").out == "ran\n"
    assert "Nothing waits for trust" in cli(crib, "trust").err


def test_what_init_writes_is_trusted(tmp_path: Path, data: str) -> None:
    crib = Crib(tmp_path / "other")
    venv.create(tmp_path / "new/.venv", symlinks=True)  # One with pip takes seconds.
    assert cli(crib, "init", str(tmp_path / "new"), "--examples").code == 0
    project = Project.open(tmp_path / "new")
    assert project.trust.sheet(project.get("web_search")).status == "trusted"
