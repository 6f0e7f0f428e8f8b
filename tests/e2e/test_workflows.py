"""Workflows on the command line, over REST and over MCP."""

from __future__ import annotations

import json
import time
from pathlib import Path

import mcp_types
import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import cli
from tests.e2e.mcp.test_meta_tools import client, value
from tests.http_server import LIMIT_S, http_server
from tests.patience import patient

pytestmark = pytest.mark.usefixtures("kernel")

WORDS = """
name: words
description: Says a word twice, louder the second time
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [word]
    properties:
      word: {type: string, description: The word}
      times: {type: integer, default: 1, description: Ignored (default 1)}
steps:
  - {id: first, tool: say, args: {word: "${word}"}}
  - {id: second, tool: say, args: {word: "${steps.first.value}!"}}
output: [{said: "${steps.first.value}"}, {said: "${steps.second.value}"}]
"""
SAID = [{"said": "hi"}, {"said": "hi!"}]


@pytest.fixture
def crib(crib: Crib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    word = {"word": {"type": "string", "description": "A word"}}
    crib.tool(
        "say",
        "command",
        {"entrypoint": "printf", "args": ["%s", "${word}"]},
        word,
        outputs={"format": "text"},
    )
    crib.write(".toolcrib/workflows/words.yml", WORDS)
    return crib


def test_on_the_command_line(crib: Crib) -> None:
    listed = json.loads(cli(crib, "workflows", "list", "--json").out)
    assert [one["name"] for one in listed["workflows"]] == ["words"]
    shown = cli(crib, "workflows", "show", "words").out
    assert "  second: tool say, after first\n" in shown
    ran = cli(crib, "workflows", "run", "words", "word=hi", "times=2")
    assert (ran.code, json.loads(ran.out)) == (0, SAID), ran.err
    ran = cli(crib, "workflows", "run", "words", "wrd=hi")
    assert (ran.code, "did you mean word?" in ran.err) == (4, True)
    assert cli(crib, "workflows", "run", "wrds").code == 3
    stored = cli(crib, "workflows", "run", "words", "word=hi", "--detach", "--json")
    assert json.loads(stored.out)["state"] == "ready"
    crib.tool("fails", "command", {"entrypoint": "false"}, {})
    crib.write(".toolcrib/workflows/failing.yml", "name: failing\nsteps: [{id: a, tool: fails}]")
    assert cli(crib, "workflows", "run", "failing").code != 0
    assert "step a of failing failed: fails ended with exit code 1" in cli(crib, "runs", "list").out
    crib.write(".toolcrib/workflows/bad.yml", "name: bad\nsteps:\n  - {id: a, tool: sey}\n")
    listed_again = cli(crib, "workflows", "list")
    assert listed_again.code == 4
    assert "there is no tool `sey`" in listed_again.err
    assert "did you mean `say`?" in listed_again.err


def test_over_rest(crib: Crib) -> None:
    with http_server(crib.root) as server:
        (listed,) = server.send("GET", "/workflows").json["workflows"]
        assert listed["inputs"]["required"] == ["word"]
        assert server.send("GET", "/workflows/words").json["steps"][0]["id"] == "first"
        assert server.send("GET", "/workflows/none").status == 404
        wrong = server.send("POST", "/workflows/words/runs", {"inputs": {}})
        assert (wrong.status, wrong.code) == (400, "invalid_input")
        reader = server.create_token("reader", "read")
        assert server.send("POST", "/workflows/words/runs", {}, token=reader).status == 403
        started = server.send("POST", "/workflows/words/runs", {"inputs": {"word": "hi"}})
        assert started.status == 202, started.body
        end = time.monotonic() + patient(LIMIT_S)
        while (run := server.send("GET", f"/runs/{started.json['runId']}").json)["state"] != "done":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert json.loads(run["answer"]) == SAID


async def test_over_mcp(crib: Crib) -> None:
    async with client(crib) as host:
        tools = {tool.name: tool for tool in (await host.list_tools()).tools}
        assert "words" in (tools["workflow_run"].description or "")
        first = await host.call_tool("workflow_run", {"name": "words", "inputs": {"word": "hi"}})
        done = json.loads(value(first))
        assert (done["state"], done["value"]) == ("done", SAID)
        later = await host.call_tool("workflow_run", {"name": "words", "inputs": {"word": "hi"}, "wait_s": 0})
        assert json.loads(value(later))["state"] in ("ready", "running", "waiting")
        wrong = await host.call_tool("workflow_run", {"name": "words", "inputs": {"word": 1}})
        assert wrong.is_error
        block = wrong.content[0]
        assert isinstance(block, mcp_types.TextContent)
        assert "$.word" in block.text
    lines = (crib.home / "audit/tools.log").read_text().splitlines()
    callers = {line.split("caller=")[1].split()[0] for line in lines if "TOOL_EXECUTED name=say" in line}
    assert callers == {"workflow:words"}
