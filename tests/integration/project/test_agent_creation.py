"""Agents made by agents, and agents of other programs: what is written, what is refused, what waits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib.errors import (
    ApprovalRequired,
    ConflictError,
    InvalidInput,
    ManifestError,
    PermissionDenied,
    RateLimited,
    ToolcribError,
)
from toolcrib.project.authoring.agent_creation import create_agent
from toolcrib.project.authoring.agent_import import import_agent, importable
from toolcrib.runs.agents import Agent

HELPER: dict[str, Any] = {
    "model": "scripted",
    "description": "Helps.",
    "tools": ["look"],
    "script": [{"text": "done"}],
}


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    crib = Crib(tmp_path / "project")
    ceiling = {"security": {"max_permissions": {"fs": {"read": ["notes"], "write": []}}}}
    settings = {**ceiling, "limits": {"created_tools": 2}}
    crib.write(".toolcrib/config.yml", json.dumps(settings))
    crib.trust()
    for name, folder in (("look", "notes"), ("reach", ".")):
        config = {"action": "read", "path": "${path}"}
        schema = {"path": {"type": "string"}}
        crib.tool(name, "file", config, schema, permissions={"fs": {"read": [folder], "write": []}})
    return crib


def agents(crib: Crib) -> list[str]:
    folder = crib.home / "agents"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def test_an_agent_makes_an_agent_that_runs_only_once_trusted(crib: Crib) -> None:
    async with crib.open() as project:
        made = create_agent(project, "helper", HELPER, "claude\n\x1b[2J")
        assert made.tools == ("look",)
        boss = Agent("boss", "scripted", agents=("helper",), script=({"text": "well"},))
        for asked in ("helper", boss):
            with pytest.raises(
                ApprovalRequired, match=r"trusted the agent helper, which the agent claude.* made"
            ):
                project.runs.start(None, asked, "Go.")
        assert project.agents.listed() == {}

        (waiting,) = [sheet for sheet in project.trust.sheets()[0] if sheet.waits]
        project.trust.accept("ann", [waiting])
        run = project.runs.find(project.runs.start(None, boss, "Go."))
        assert run.state == "ready"
        assert project.agents.listed() == {"helper": ("look",)}

        file = crib.home / "agents" / "helper.yml"
        file.write_bytes(file.read_bytes() + b"instructions: Something else.\n")
        with pytest.raises(ApprovalRequired):
            project.agents.get("helper")

    created = next(entry for entry in crib.audit() if entry.event == "AGENT_CREATED")
    assert (created.fields["name"], created.fields["creator"]) == ("helper", "claude \\x1b[2J")
    assert file.read_bytes().startswith(b"# Made by the agent claude \\x1b[2J.\nname: helper\n")
    assert agents(crib) == ["helper.yml"]


def test_what_an_agent_may_not_make_is_refused_and_writes_nothing(crib: Crib) -> None:
    crib.write(
        ".toolcrib/agents/mighty.yml", "name: mighty\nmodel: scripted\ntools: [reach]\nscript: [{text: a}]\n"
    )
    crib.write(".toolcrib/agents/Taken.yml", "name: Taken\nmodel: scripted\nscript: [{text: a}]\n")
    there = agents(crib)
    refused: list[tuple[str, Any, type[ToolcribError], str]] = [
        ("a", {**HELPER, "tools": ["reach"]}, PermissionDenied, "read . is beyond|beyond security"),
        ("a", {**HELPER, "agents": ["mighty"]}, PermissionDenied, "reach: "),
        ("a", {**HELPER, "budgets": {"iterations": 51, "cost_usd": 11}}, PermissionDenied, "cost_usd of 11"),
        ("a", {**HELPER, "tools": ["exec"]}, ManifestError, "no tool `exec`"),
        ("a", {**HELPER, "tools": ["lok"]}, ManifestError, "no tool `lok`"),
        ("a", {**HELPER, "agents": ["nobody"]}, ManifestError, "no agent `nobody`"),
        ("a", {**HELPER, "color": "red"}, ManifestError, "color"),
        ("a", {**HELPER, "name": "b"}, InvalidInput, "to be named 'a'"),
        ("a", {**HELPER, "instructions": "go\u202eon"}, InvalidInput, "invisible"),
        ("a", ["not", "an", "object"], InvalidInput, "must be an object"),
        ("../a", HELPER, InvalidInput, "cannot be named"),
        ("task", HELPER, InvalidInput, "cannot be named"),
        ("taken", HELPER, ConflictError, "named Taken already"),
        ("look", HELPER, ConflictError, "named look already"),
    ]
    project = crib.open()
    for name, definition, kind, message in refused:
        with pytest.raises(kind, match=message):
            create_agent(project, name, definition, "claude")
        assert agents(crib) == there, definition

    create_agent(project, "one", HELPER, "claude")
    create_agent(project, "two", {**HELPER, "agents": ["one", "two"]}, "claude")
    with pytest.raises(RateLimited, match="2 agents here"):
        create_agent(project, "three", HELPER, "claude")


REVIEWER = """---
name: code-reviewer
description: Reviews code.
  Use it after each change.
tools: Read, Grep, Bash, mcp__github__get_issue
model: sonnet
color: red
maxTurns:
---

You review code.

---
Be brief.
"""
AUDITOR = """---
name: auditor
description: Finds holes
kind: local
model: gemini-3-pro
tools:
  - read_file
  - look
  - grep_search
temperature: 0.2
max_turns: 7
timeout_mins: 5
---
You audit.
"""


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("timeout_mins", "", "must be a number, not nothing"),
        ("timeout_mins", "{}", "must be a number, not a mapping"),
        ("timeout_mins", "0", "must be greater than 0"),
        ("max_turns", "many", "must be a whole number, not the text `many`"),
        ("temperature", "[]", "must be a number, not a list"),
        ("description", "[a, b]", "must be text, not a list"),
        ("tools", "true", "must be text or a list, not true"),
        ("kind", "3", "must be text, not the number 3"),
    ],
)
def test_a_wrong_value_in_an_imported_agent_is_found_at_its_line(
    crib: Crib, key: str, value: str, message: str
) -> None:
    source = crib.write("a.md", f"---\nname: a\nmodel: claude-x\n{key}: {value}\n---\nDo it.\n")
    with pytest.raises(ManifestError, match=rf"a\.md:4:\d+: .*`{key}` {re.escape(message)}"):
        import_agent(crib.open(), source)


def test_agents_of_claude_and_gemini_are_imported_with_notes(crib: Crib) -> None:
    crib.write(".claude/agents/code-reviewer.md", REVIEWER)
    crib.write(".gemini/agents/auditor.md", AUDITOR)
    remote = crib.write("remote.md", "---\nname: far\nkind: remote\nagent_card_url: https://x.example\n---\n")
    project = crib.open()
    reviewer, auditor = importable(project.root)
    with pytest.raises(InvalidInput, match="its model as 'sonnet'"):
        import_agent(project, reviewer)
    with pytest.raises(InvalidInput, match="kind 'remote'"):
        import_agent(project, remote, "scripted")
    with pytest.raises(ManifestError, match="front matter"):
        import_agent(project, crib.write("README.md", "# Hello\n"))

    first = import_agent(project, reviewer, "anthropic:claude-sonnet-5")
    second = import_agent(project, auditor)
    with pytest.raises(ConflictError, match="code-reviewer"):
        import_agent(project, reviewer, "anthropic:claude-sonnet-5")

    assert first.notes == [
        "`model: sonnet` became anthropic:claude-sonnet-5",
        "the tool `Read` became `read_file`",
        "the tool `Grep` has no equal and is left out",
        "the tool `Bash` became `exec`",
        "the tool `mcp__github__get_issue` became `github__get_issue`",
        "`color` has no equal and is left out",
    ]
    assert second.notes == ["the tool `grep_search` has no equal and is left out"]
    there = crib.open().agents
    one, other = there.get("code-reviewer"), there.get("auditor")
    assert one.description == "Reviews code. Use it after each change."
    assert one.instructions == "You review code.\n\n---\nBe brief."
    assert one.tools == ("read_file", "exec", "github__get_issue")
    assert (other.model, other.tools) == ("google:gemini-3-pro", ("read_file", "look"))
    assert other.settings == {"temperature": 0.2}
    assert (other.budgets.iterations, other.budgets.time_s) == (7, 300)
