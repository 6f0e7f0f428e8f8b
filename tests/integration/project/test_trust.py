"""Trust in tools, and the user's own folder: what a project's tools run by, and cannot reach."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed
from toolcrib import Project, Result
from toolcrib.guard import Ledger
from toolcrib.project.authoring.creation import create_tool
from toolcrib.spec import Call, Caller
from toolcrib.state import Vault

pytestmark = pytest.mark.usefixtures("kernel")

AGENT = "mcp:agent"
ENV: dict[str, Any] = {"permissions": {"env": ["PATH"]}}
"""Asks for the least that lies beyond the project."""
TRUE = {"c": "echo ran"}


def ask(crib: Crib, tool: str = "sh", caller: str = AGENT, arguments: Any = TRUE, **more: Any) -> Result:
    crib.accept = "trusted"

    async def once() -> Result:
        async with crib.open() as project:
            return await project.invoke(Call(tool, arguments, caller=caller, **more))

    return asyncio.run(once())


def approve(crib: Crib, result: Result, scope: Any = "once") -> str:
    assert result.error is not None
    project = crib.open()
    project.approval_service.approve(result.error.details["approval"], "ann", scope)
    asyncio.run(project.aclose())
    return str(result.error.details["approval"])


def untrusted(crib: Crib) -> int:
    project = crib.open()
    return project.untrusted()


def status(crib: Crib, name: str = "sh") -> str:
    project = crib.open()
    return project.trust.sheet(project.get(name)).status


# -- who is asked --------------------------------------------------------------------------------


READER: dict[str, Any] = {"config": {"args": ["-c", "echo ran"], "allow_code": False}}


@pytest.mark.parametrize(
    ("permissions", "reason"),
    [
        ({"network": True}, "network: any public host"),
        ({"network": {"allow": ["example.com"]}}, "network: example.com"),
        ({"env": ["PATH"]}, "environment variable PATH"),
        ({"secrets": {"S": {"type": "string", "required": False}}}, "secret S"),
        ({"fs": {"read": ["/usr/share"]}}, "read /usr/share"),
        ({"fs": {"write": ["."]}}, "write ."),
    ],
)
def test_what_changes_or_reaches_something_waits_for_a_person(
    crib: Crib, permissions: dict[str, Any], reason: str
) -> None:
    crib.shell(permissions=permissions, annotations={"read_only": True}, **READER)
    for caller in (AGENT, "cli", "local"):
        message = failed(ask(crib, caller=caller), "approval_required")
        assert reason in message
        assert "toolcrib trust" not in message, "a model may read it"
    failed(ask(crib, caller="cli", identity=Caller("t", frozenset({"invoke"}))), "approval_required")
    assert untrusted(crib) == 1
    crib.trust_tools("sh")
    assert untrusted(crib) == 0
    assert ask(crib, caller="local").unwrap() == "ran\n"


@pytest.mark.parametrize("permissions", [{}, {"fs": {"read": ["."]}}])
def test_what_only_reads_in_the_project_does_not(crib: Crib, permissions: dict[str, Any]) -> None:
    crib.shell(permissions=permissions, **READER)
    for caller in (AGENT, "cli", "local"):
        assert ask(crib, caller=caller).unwrap() == "ran\n"
    assert untrusted(crib) == 0


def test_a_composite_tool_waits_if_a_tool_of_its_steps_acts(crib: Crib) -> None:
    crib.shell("look", **READER)
    crib.shell("save", permissions={"fs": {"write": ["."]}}, **READER)
    crib.trust_tools("save")
    step: dict[str, Any] = {"id": "one", "tool": "look", "args": TRUE}
    crib.tool("both", "composite", {"steps": [step]})
    assert ask(crib, "both", arguments={}).unwrap() == "ran\n"
    crib.tool("both", "composite", {"steps": [{**step, "tool": "save"}]})
    assert "call save: write ." in failed(ask(crib, "both", arguments={}), "approval_required")
    crib.trust_tools("both")
    assert ask(crib, "both", arguments={}).ok


def test_more_attempts_and_more_memory_than_others_have_wait(crib: Crib) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"retry": {"max_attempts": 3}}, "run 3 times"),
        ({"limits": {"memory_bytes": 5 << 30}}, "limits.memory_bytes"),
    ]
    for more, word in cases:
        crib.shell(**READER, **more)
        assert word in failed(ask(crib), "approval_required")
    crib.shell(**READER, retry={"max_attempts": 2})
    assert ask(crib).ok


def test_a_tool_that_no_longer_asks_for_each_call_waits(crib: Crib) -> None:
    crib.shell(**READER, approval={"required": True, "reason": "it is dear"})
    crib.trust_tools("sh")
    crib.shell(**READER)
    assert "without the approval of each call" in failed(ask(crib), "approval_required")
    crib.trust_tools("sh")
    assert ask(crib).ok


def test_a_program_that_accepts_everything_is_not_asked(crib: Crib) -> None:
    crib.shell(**ENV)
    Ledger(Vault(crib.root)).revoke()

    async def once() -> Result:
        async with Project.open(crib.root, accept="all") as project:
            return await project.call("sh", TRUE)

    assert asyncio.run(once()).ok
    failed(ask(crib), "not_trusted")


def test_a_program_whose_path_leads_out_of_the_project_waits(crib: Crib, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "run.sh").chmod(0o755)
    crib.tool("run", "command", {"entrypoint": str(tmp_path / "run.sh")}, {"c": {"type": "string"}})
    assert f"run {tmp_path}" in failed(ask(crib, "run"), "approval_required")


# -- how long trust lasts ----------------------------------------------------------------------------


def test_a_yes_to_the_rule_is_trust_for_every_caller_until_anything_changes(crib: Crib) -> None:
    folder = crib.shell(**ENV)
    first = ask(crib)
    failed(first, "approval_required")
    approve(crib, first, "rule")
    assert status(crib) == "trusted"
    assert ask(crib).ok
    assert ask(crib, caller="mcp:another").ok
    (folder / "beside.txt").write_text("new")
    assert "not what ann trusted" in failed(ask(crib), "approval_required")
    project = crib.open()
    sheet = project.trust.sheet(project.get("sh"))
    assert (sheet.status, sheet.changed) == ("changed", ["files/beside.txt"])


def test_a_yes_to_one_call_is_no_trust(crib: Crib) -> None:
    crib.shell(**ENV)
    approve(crib, ask(crib))
    assert ask(crib).ok
    failed(ask(crib), "approval_required")
    assert status(crib) == "new"


def test_trust_that_is_taken_back_is_none(crib: Crib) -> None:
    crib.shell(**ENV)
    approval = approve(crib, ask(crib), "rule")
    crib.open().approval_service.revoke(approval, "ann")
    failed(ask(crib), "approval_required")


def test_one_yes_to_the_very_call_is_enough_where_the_tool_asks_as_well(crib: Crib) -> None:
    crib.shell(approval={"required": True, "reason": "it is dear"}, **ENV)
    approve(crib, ask(crib))
    assert ask(crib).ok
    # A yes to the rule says that the tool may be used, not that this call may be made.
    approve(crib, ask(crib), "rule")
    again = ask(crib)
    assert "it is dear" in failed(again, "approval_required")
    approve(crib, again)
    assert ask(crib).ok


async def test_who_waits_is_asked_both_when_the_first_yes_was_for_good(crib: Crib) -> None:
    crib.shell(approval={"required": True, "reason": "it is dear"}, **ENV)
    crib.accept = "trusted"
    async with crib.open() as project:
        call = asyncio.create_task(project.invoke(Call("sh", TRUE, caller=AGENT, wait="block")))
        seen: list[str] = []
        async with asyncio.timeout(100):
            for scope in ("rule", "once"):
                while not (waiting := project.approval_service.list("pending")):  # noqa: ASYNC110 - as a person looks
                    await asyncio.sleep(0.01)
                seen.append(waiting[0].approval.rule)
                project.approval_service.approve(waiting[0].approval.id, "ann", scope)
            assert (await call).ok
    assert seen == ["trust", "approval.required"]


def test_what_an_agent_made_waits_whatever_it_asks_for(crib: Crib) -> None:
    schema = {"type": "object", "properties": {"c": {"type": "string", "description": "Script"}}}
    exec_ = {"command": {"entrypoint": "sh", "args": ["-c", "${c}"], "allow_code": True}}
    definition = {"description": "Do", "kind": "command", "version": 1, "inputs": {"schema": schema}}
    create_tool(crib.open(), "sh", {**definition, "exec": exec_, "outputs": {"format": "text"}}, "claude")
    first = ask(crib)
    assert "claude" in failed(first, "approval_required")
    approve(crib, first)
    assert ask(crib).unwrap() == "ran\n"
    events = [entry.event for entry in crib.audit()]
    assert events == ["TOOL_CREATED", "TOOL_REFUSED", "TOOL_APPROVED", "TOOL_EXECUTED"]


def test_a_diff_shows_what_cannot_be_seen(crib: Crib) -> None:
    folder = crib.shell(**ENV)
    project = crib.open()
    project.trust.trust(project.get("sh"), "ann")
    manifest = folder / "tool.yml"
    manifest.write_text(manifest.read_text().replace("Does sh.", "Does\u202e \x1b[31mred\u200b."), "utf-8")
    manifest.write_text(manifest.read_text().replace("\x1b", "\\u001b"))
    project = crib.open()
    sheet = project.trust.sheet(project.get("sh"))
    told = "\n".join(sheet.manifest())
    assert "\\u202e" in told
    assert "\\u200b" in told
    assert all(char.isprintable() or char == "\n" for char in told)


# -- the user's own folder ---------------------------------------------------------------------------


@pytest.fixture
def at_home(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project lies where its user's data folder lies, too."""
    data = crib.root / ".local/share/toolcrib"
    monkeypatch.setenv("TOOLCRIB_DATA", str(data))
    return data


ALL: dict[str, Any] = {"fs": {"read": ["."], "write": ["."]}}


def test_a_tool_that_may_write_all_of_the_home_folder_cannot_see_or_make_decisions(
    crib: Crib, at_home: Path
) -> None:
    crib.shell(permissions=ALL)
    assert not at_home.exists()
    told = crib.sh("mkdir -p .local/share/toolcrib/projects/x && echo forged; ls .local/share/toolcrib")
    assert "forged" not in told
    project = crib.open()
    project.trust.trust(project.get("sh"), "the-one-who-looked")
    told = crib.sh("cat .local/share/toolcrib/projects/*/*; mv .local .gone; rm -rf .local; ls .local/share")
    assert "the-one-who-looked" not in told
    assert (at_home / "projects").is_dir()
    assert status(crib) == "trusted"


def test_a_file_tool_does_not_open_them_either(crib: Crib, at_home: Path) -> None:
    config = {"action": "read", "path": "${p}"}
    crib.tool("read", "file", config, {"p": {"type": "string"}}, permissions={"fs": {"read": ["."]}})
    at_home.mkdir(parents=True)
    (at_home / "note").write_text("decision")
    crib.write("seen", "fine")
    assert crib.call("read", {"p": "seen"}).unwrap() == "fine"
    result = crib.call("read", {"p": ".local/share/toolcrib/note"})
    assert result.error is not None
    assert "decision" not in str(result.as_dict())


@pytest.mark.parametrize("path", [".local/share/toolcrib", ".local/share/toolcrib/projects", "link"])
def test_a_grant_into_them_is_refused(crib: Crib, at_home: Path, path: str) -> None:
    (at_home / "projects").mkdir(parents=True)
    (crib.root / "link").symlink_to(at_home)
    crib.shell(permissions={"fs": {"read": [path]}})
    assert "decisions" in failed(crib.call("sh", TRUE), "permission_denied")
