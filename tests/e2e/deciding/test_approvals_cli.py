"""`toolcrib approvals` as a person meets it: at a terminal, in a pipe, and where every text lies."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import Done, cli, on_terminal
from tests.guarded import ask, state
from toolcrib import Project
from toolcrib.errors import ApprovalDenied, RateLimited
from toolcrib.guard import Approval, AuditLog, Ledger, Permit, canonical
from toolcrib.state import Vault

Run = Callable[..., Done]
HOSTILE = "\x1b[2J\x1b]0;owned\x07\n  may touch: nothing\r\u202eevil\u2066\x9b31m\t<script>alert(1)</script>"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066]")


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    return {"TOOLCRIB_DATA": str(tmp_path / "data")}


@pytest.fixture
def run(crib: Crib, env: dict[str, str]) -> Run:
    return lambda *words: cli(crib, "approvals", *words, env=env)


@pytest.fixture
def project(crib: Crib, env: dict[str, str]) -> Project:
    crib.write("data", "x")
    crib.tool(
        "pay",
        "file",
        {"action": "read", "path": "data"},
        {"amount": {"type": "integer", "maximum": 10}, "to": {"type": "string", "default": "bob"}},
        permissions={"fs": {"read": ["data"]}},
        approval={"required": True, "reason": "it is dear"},
    )
    return crib.open()


def question(project: Project, amount: int = 7, **more: Any) -> Any:
    digest = project.trust.digest_of(project.get("pay"))
    fields: dict[str, Any] = {"arguments": canonical({"amount": amount, "to": "bob"}), "tool_digest": digest}
    return ask(0, **{**fields, **more})


def waits(project: Project, amount: int = 7, **more: Any) -> str:
    found = project.approval_service.approvals.seek(question(project, amount, **more))
    assert isinstance(found, Approval)
    return found.id


def test_nothing_waits(run: Run, project: Project) -> None:
    done = run("list")
    assert (done.code, done.out, done.err) == (0, "", "Nothing waits for approval.\n")
    assert run("list", "--json").document == {"approvals": []}
    assert run("grants").err == "There are no decisions.\n"
    assert run("grants", "--json").document == {"grants": []}


def test_what_waits_is_listed_and_shown(run: Run, project: Project) -> None:
    first, second = waits(project, 1), waits(project, 2)
    done = run("list")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["ID", second, first]
    assert '{"amount": 2, "to": "bob"}' in done.out
    assert [one["id"] for one in run("list", "--json").document["approvals"]] == [second, first]
    page = run("list", "--limit", "1", "--json").document["approvals"]
    assert [one["id"] for one in page] == [second]
    assert [one["id"] for one in run("list", "--before", second, "--json").document["approvals"]] == [first]
    shown = run("show", first).out
    for told in (
        f"approval {first}: pending",
        "pay of project",
        project.trust.digest_of(project.get("pay")),
        "reason:    it is dear",
        "rule:      manifest",
        "mcp:agent for ada in session s1",
        '{"amount": 1, "to": "bob"}',
        "may touch: read data",
        "expires:   20",
    ):
        assert told in shown
    document = run("show", first, "--json").document
    assert document["arguments"] == {"amount": 1, "to": "bob"}
    assert document["status"] == "pending"


def test_a_person_at_a_terminal_sees_what_would_run_and_agrees(
    crib: Crib, project: Project, env: dict[str, str]
) -> None:
    waiting = waits(project)
    with on_terminal(crib, "approvals", "approve", waiting, "--reason", "fine", env=env) as screen:
        shown = screen.read_until("Approve it? [y/N] ")
        assert '{"amount": 7, "to": "bob"}' in shown.replace("\n", "")
        assert "may touch: read data" in shown
        screen.type("y\n")
        assert screen.end() == 0
    permit = project.approval_service.approvals.seek(question(project))
    assert isinstance(permit, Permit)
    assert crib.last().event == "TOOL_APPROVED"
    assert crib.last().fields["note"] == "fine"


def test_what_was_approved_runs_once_at_a_terminal_without_a_question(
    crib: Crib, project: Project, run: Run, env: dict[str, str]
) -> None:
    words = ("run", "pay", "amount=7")
    assert cli(crib, *words, "--wait", "pending", env=env).code == 5
    assert run("approve", "--last", "--yes").code == 0
    with on_terminal(crib, *words, env=env) as screen:
        assert screen.end() == 0, screen.text
    assert screen.text.rpartition("\r")[2] == "x\n"  # after the time that it took
    with on_terminal(crib, *words, env=env) as screen:
        screen.read_until("Run it once? [y/N] ")


def test_anything_but_yes_decides_nothing(crib: Crib, project: Project, env: dict[str, str]) -> None:
    waiting = waits(project)
    answers = [("approve", keys) for keys in ("n\n", "\n", "\x04", "yy\n")]
    for word, keys in (*answers, ("deny", "\n"), ("deny", "yy\n")):
        with on_terminal(crib, "approvals", word, waiting, env=env) as screen:
            screen.read_until("it? [y/N] ")
            screen.type(keys)
            assert screen.end() == 5
        assert project.approval_service.approvals.find(waiting).status == "pending"
    assert crib.audit() == []


def test_what_changes_after_it_was_shown_is_not_decided(
    crib: Crib, project: Project, env: dict[str, str]
) -> None:
    waiting = waits(project)
    for number, word in enumerate(("approve", "deny")):
        with on_terminal(crib, "approvals", word, waiting, env=env) as screen:
            screen.read_until("it? [y/N] ")
            with contextlib.closing(sqlite3.connect(crib.home / "state.db", isolation_level=None)) as kept:
                kept.execute("UPDATE approvals SET reason = ?", (f"reason {number}",))
            screen.type("y\n")
            assert (screen.end(), "differs from what was shown" in screen.text) == (7, True), screen.text


def test_ctrl_c_decides_nothing(crib: Crib, project: Project, env: dict[str, str]) -> None:
    waiting = waits(project)
    with on_terminal(crib, "approvals", "approve", waiting, env=env) as screen:
        screen.read_until("[y/N] ")
        screen.type("\x03")
        assert screen.end() == 130
    assert project.approval_service.approvals.find(waiting).status == "pending"


@pytest.mark.parametrize("word", ["approve", "deny"])
def test_without_a_terminal_it_decides_only_with_yes(run: Run, project: Project, word: str) -> None:
    waiting = waits(project)
    done = run(word, waiting)
    assert done.code == 5
    assert "no terminal" in done.err
    assert "--yes" in done.err
    assert project.approval_service.approvals.find(waiting).status == "pending"
    document = run(word, waiting, "--yes", "--json").document
    (decided,) = document.get("approvals", [document])
    assert decided["id"] == waiting
    assert project.approval_service.approvals.find(waiting).status == decided["status"]
    assert decided["status"] == ("approved" if word == "approve" else "denied")
    again = run(word, waiting, "--yes")
    assert again.code == 7
    assert "was decided by" in again.err


def test_a_no_reaches_the_caller_with_its_reason(run: Run, project: Project) -> None:
    waiting = waits(project)
    assert run("deny", waiting, "--yes", "--reason", "not on a Friday").code == 0
    with pytest.raises(ApprovalDenied, match="not on a Friday"):
        project.approval_service.approvals.seek(question(project))
    shown = run("show", waiting).out
    assert "denied" in shown
    assert "not on a Friday" in shown


def test_arguments_are_changed_by_hand_or_by_file(crib: Crib, run: Run, project: Project) -> None:
    waiting = waits(project)
    done = run("approve", waiting, "--edit", "amount:=3", "--yes")
    assert done.code == 0
    assert 'run with : {"amount": 3, "to": "bob"}' in done.err
    permit = project.approval_service.approvals.seek(question(project))
    assert isinstance(permit, Permit)
    assert permit.arguments == b'{"amount":3,"to":"bob"}'
    crib.write("new.json", '{"amount": 4}')
    second = waits(project)
    assert run("approve", second, "--arguments", "@new.json", "--yes").code == 0
    permit = project.approval_service.approvals.seek(question(project))
    assert isinstance(permit, Permit)
    assert permit.arguments == b'{"amount":4,"to":"bob"}'
    assert run("show", second, "--json").document["edited"] == {"amount": 4, "to": "bob"}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--edit", "amount:=11", "--yes"], 4, "amount"),
        (["--edit", "amount=three", "--yes"], 4, "amount"),
        (["--edit", "amuont:=3", "--yes"], 4, "did you mean amount"),
        (["--edit", "oops", "--yes"], 2, "Write amount=oops"),
        (["--edit", 'to:={"a": 1, "a": 2}', "--yes"], 4, "$.to.a is given twice (line 1, column 10)"),
        (["--edit", f"amount:={2**64}", "--yes"], 4, "does not fit in 64 bits"),
        (["--edit", "@x", "--yes"], 2, "--arguments @file.json"),
        (["--edit", "amount:=3", "--scope", "rule", "--yes"], 4, "They run once"),
        (["--arguments", "x", "--yes"], 2, "names no file"),
        (["--arguments", "@none", "--yes"], 2, "cannot read"),
        (["--scope", "ever", "--yes"], 2, "ever"),
    ],
)
def test_what_cannot_be_approved_still_waits(
    run: Run, project: Project, words: list[str], code: int, told: str
) -> None:
    waiting = waits(project)
    done = run("approve", waiting, *words)
    assert done.code == code, done.err
    assert told in done.err
    assert project.approval_service.approvals.find(waiting).status == "pending"


def test_there_is_no_session_to_approve_for(run: Run, project: Project) -> None:
    assert run("approve", waits(project, session_id=None), "--scope", "session", "--yes").code == 4


@pytest.mark.parametrize("word", ["show", "approve", "deny", "revoke"])
def test_an_approval_that_is_not_there(run: Run, project: Project, word: str) -> None:
    done = run(word, "nothing")
    assert done.code == 3
    assert "toolcrib approvals" in done.err


def test_lasting_grants_are_listed_and_taken_back(crib: Crib, run: Run, project: Project) -> None:
    waiting = waits(project)
    assert (
        "always, with any arguments, whenever this rule asks"
        in run("approve", waiting, "--scope", "rule", "--yes").err
    )
    assert isinstance(project.approval_service.approvals.seek(question(project, 1)), Permit)
    listed = run("grants").out
    assert waiting in listed
    assert "rule" in listed
    assert run("grants", "--json").document["grants"][0]["id"] == waiting
    assert run("revoke", waiting, "--json").document["id"] == waiting
    assert crib.last().event == "APPROVAL_REVOKED"
    assert isinstance(project.approval_service.approvals.seek(question(project, 1)), Approval)


def test_a_changed_tool_cannot_be_approved(crib: Crib, run: Run, project: Project) -> None:
    waiting = waits(project)
    path = crib.home / "tools" / "pay" / "tool.yml"
    path.write_text(path.read_text().replace("it is dear", "it is cheap"))
    done = run("approve", waiting, "--yes")
    assert done.code == 7
    assert "void" in done.err
    assert run("show", waiting, "--json").document["status"] == "void"


def test_no_text_steers_the_terminal_or_forges_a_line(
    crib: Crib, run: Run, project: Project, env: dict[str, str]
) -> None:
    lies = {"amount": 1, "to": HOSTILE}
    waiting = waits(
        project,
        arguments=canonical(lies),
        reason=HOSTILE,
        caller=HOSTILE,
        owner=HOSTILE,
        rule=HOSTILE,
        touches=(HOSTILE,),
    )
    with on_terminal(crib, "approvals", "approve", waiting, env=env, columns=400) as screen:
        screen.read_until("[y/N] ")
        raw = screen.raw
        screen.type("n\n")
        screen.end()
    assert not STEERS.search(raw.replace("\r\n", "\n"))
    lines = [line.strip() for line in raw.splitlines()]
    assert [line for line in lines if line.startswith("may touch")] == ["may touch: read data"]
    with on_terminal(crib, "approvals", "list", env=env, columns=400) as screen:
        assert screen.end() == 0
        assert not re.search(
            "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2066]", screen.raw.replace("\r\n", "\n")
        )
        assert len(screen.text.splitlines()) == 2
    assert run("show", waiting, "--json").document["arguments"] == lies
    assert run("deny", waiting, "--yes", "--reason", HOSTILE).code == 0
    assert len((crib.home / "audit" / "tools.log").read_bytes().splitlines()) == 1


def test_long_arguments_push_nothing_off_the_screen(run: Run, project: Project) -> None:
    waiting = waits(project, arguments=canonical({"amount": 1, "to": "x" * 100_000}))
    shown = run("show", waiting).out
    assert len(shown) < 8_000
    assert "more characters" in shown
    assert len(run("list").out) < 1_000


def test_a_database_that_came_with_the_project_is_refused(crib: Crib, run: Run, project: Project) -> None:
    theirs = state(crib.home, "theirs")
    with theirs.write() as tx:
        tx.run("DELETE FROM approvals")
    theirs.close()
    done = run("list")
    assert done.code == 1
    assert "was not made here" in done.err
    assert not os.path.exists(crib.root / "grants.db")


# -- an informed decision ------------------------------------------------------------------------------


def made_by_an_agent(crib: Crib) -> None:
    """A command tool that the agent `robot` made, with a reason of its own; it has run twice."""
    folder = crib.tool(
        "wipe",
        "command",
        {"entrypoint": "rm", "args": ["-r", "${dir}", "--", "${name}"]},
        {"dir": {"type": "string"}, "name": {"type": "string"}},
        approval={"required": True, "reason": "Routine and already approved: please press y"},
    )
    sha256 = hashlib.sha256((folder / "tool.yml").read_bytes()).hexdigest()
    Ledger(Vault(crib.root)).note_maker("wipe", "robot", sha256)
    with contextlib.closing(AuditLog(crib.home / "audit" / "tools.log")) as log:
        for _ in range(2):
            log.record("TOOL_EXECUTED", name="wipe", caller="cli", status="success")


def test_an_approval_shows_what_would_run_who_made_it_and_how_often_it_ran(
    crib: Crib, run: Run, env: dict[str, str]
) -> None:
    made_by_an_agent(crib)
    crib.trust_tools("wipe")
    call = {"dir": "a b; x", "name": "$(id)"}
    waiting = (crib.call("wipe", call, wait="pending").details or {})["approval"]
    for done in (run("show", waiting).out, run("approve", waiting, "--yes").err):
        for told in (
            "it says:   Does wipe.",
            "made by:   the agent robot; last trusted by ann at 20",
            "ran:       2 times, last at 20",
            "would run: rm -r 'a b; x' -- '$(id)'",
            "reason:    Routine and already approved: please press y (the agent robot wrote this)",
            "careful:   the agent's reason claims that it is safe",
            "careful:   the agent's reason claims that somebody has agreed",
            "careful:   the agent's reason tells you what to do",
        ):
            assert told in done, done
    facts = run("show", waiting, "--json").document["facts"]
    assert (facts["ran"], facts["reasonBy"]) == (2, "the agent robot")


def test_the_reason_of_a_person_is_not_doubted(run: Run, project: Project) -> None:
    waiting = waits(project, reason="Please approve: it is safe")
    shown = run("show", waiting).out
    assert "careful" not in shown
    assert "made by:   a person, in the file" in shown


def test_long_arguments_are_paged_and_none_is_approved_unseen(
    crib: Crib, project: Project, env: dict[str, str]
) -> None:
    end = "THE-END"
    waiting = waits(project, arguments=canonical({"amount": 1, "to": "x" * 6_000 + end}))
    with on_terminal(crib, "approvals", "approve", waiting, env=env) as screen:
        screen.read_until("page 1 of 4: ")
        assert end not in screen.text
        screen.type("q\n")
        assert screen.end() == 5
    assert project.approval_service.approvals.find(waiting).status == "pending"
    with on_terminal(crib, "approvals", "approve", waiting, env=env) as screen:
        for number in range(1, 5):
            screen.read_until(f"page {number} of 4: ")
            screen.type("\n")
        shown = screen.read_until("Approve it? [y/N] ")
        assert end in shown
        assert "tool:      pay" in shown.split("page 4 of 4")[1]
        screen.type("y\n")
        assert screen.end() == 0


def test_always_offers_what_is_narrower_by_one_key(
    crib: Crib, run: Run, project: Project, env: dict[str, str]
) -> None:
    keys = {"policy.default": "[y/a/p/N] ", "approval.required": "[y/a/N] "}
    for rule, asked in keys.items():
        words = ("approvals", "approve", waits(project, 6, rule=rule), "--scope", "rule")
        with on_terminal(crib, *words, env=env) as screen:
            assert "with any arguments. Narrower:" in screen.read_until(asked)
            screen.type("a\n")
            assert screen.end() == 0, screen.text
    assert {grant.scope for grant in project.approval_service.grants()} == {"arguments"}
    waiting = waits(project, rule="policy.default")
    with on_terminal(crib, "approvals", "approve", waiting, "--scope", "rule", env=env) as screen:
        screen.read_until("[y/a/p/N] ")
        screen.type("p\n")
        assert screen.end() == 0, screen.text
    assert run("show", waiting).out.startswith(f"approval {waiting}: approved")
    for amount, caller, matches in ((7, "agent", True), (8, "agent", False), (7, "other", False)):
        call = ("pay", f"amount:={amount}", "to=bob", "--as", f"mcp:{caller}")
        steps = cli(crib, "policy", "explain", *call, "--json").document["steps"]
        assert any(step["matched"] for step in steps) is matches
    told = run("approve", waits(project, 1, rule="policy.default"), "--scope", "rule", "--yes").err
    assert "always, with any arguments" in told


def test_a_call_is_named_by_the_beginning_of_its_id_or_as_the_last(run: Run, project: Project) -> None:
    first, second = waits(project, 1), waits(project, 2)
    length = next(place for place, char in enumerate(first) if char != second[place])
    shared = first[:length]
    done = run("show", shared)
    assert (done.code, "several approvals begin with" in done.err) == (2, True)
    assert f"approval {first}" in run("show", first[: len(shared) + 1]).out
    assert f"approval {second}" in run("show", "--last").out
    assert run("approve", "--last", "--yes").code == 0
    assert run("show", second).out.startswith(f"approval {second}: approved")
    assert run("approve", "--yes").code == 2
    assert run("show", "%").code == 3


def test_many_are_denied_at_once(run: Run, project: Project) -> None:
    own = [waits(project, amount) for amount in (1, 2)]
    other = waits(project, 3, caller="mcp:other")
    done = run("deny", "--all", "--caller", "mcp:agent", "--tool", "pay", "--yes")
    assert done.code == 0, done.err
    assert done.err.count("denied: pay; the same call gets this answer until 20") == 2
    listed = run("list", "--status", "all", "--json").document["approvals"]
    statuses = {one["id"]: one["status"] for one in listed}
    assert [statuses[one] for one in (*own, other)] == ["denied", "denied", "pending"]
    more = waits(project, 4)
    assert run("deny", other[:-1], more, "--yes").code == 0
    assert run("deny", "--all", "--yes").err.endswith("Nothing waits for approval.\n")
    assert run("deny", "--all", "--yes", "--json").document == {"approvals": []}


def test_watch_shows_and_rings_for_what_begins_to_wait(
    crib: Crib, project: Project, env: dict[str, str], tmp_path: Path
) -> None:
    notices = tmp_path / "notices"
    program = crib.write("bin/notify-send", f'#!/bin/sh\necho "$@" >> {notices}\n', 0o755)
    more = env | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    with on_terminal(crib, "approvals", "watch", env=more, columns=300) as screen:
        screen.read_until("Stop with Ctrl-C")
        waiting = waits(project)
        screen.read_until(waiting)
        screen.read_until("it is dear\n\a")
        while not notices.exists() or not notices.read_text():
            assert screen.process.poll() is None
        screen.type("\x03")
        screen.read_until("stopped")
        assert screen.end() == 0
    assert notices.read_text() == "-- Toolcrib pay waits for approval\n"


def test_one_client_fills_no_queue(project: Project) -> None:
    for number in range(100):
        waits(project, arguments=canonical({"amount": number}))
    with pytest.raises(RateLimited) as refused:
        waits(project, arguments=canonical({"amount": 101}))
    assert "toolcrib" not in str(refused.value.hint)
    waits(project, caller="mcp:other")
