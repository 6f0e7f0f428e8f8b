"""Deciding is a person's: at a terminal, or as their own settings say, and never with a token."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, decides
from tests.crib import Crib, accept
from tests.e2e.cli.test_cli import ENVIRONMENT, Done, cli
from tests.e2e.terminal import terminal
from toolcrib.guard import Tokens
from toolcrib.state import Vault

ID = "APPROVAL"
DECISIONS: list[Sequence[str]] = [
    ("approvals", "approve", ID, "--yes"),
    ("approvals", "deny", ID, "--yes"),
    ("approvals", "revoke", ID),
    ("policy", "add", "deny", "pay", "--yes"),
    ("run", "pay", "--approve"),
    ("serve", "--dev", "--stdio"),
    ("secrets", "set", "KEY"),
    ("token", "create", "new", "--scope", "invoke"),
    ("trace", "pay", "--approve"),
    ("trust", "--lock"),
    ("trust", "--locked", "0f" * 32),
    ("trust", "--revoke"),
    ("trust", "--yes"),
]


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """An environment with a folder of the user's own, and settings that allow nothing without a terminal."""
    settings = tmp_path / "own.yml"
    settings.write_text("decide_without_terminal: []\n")
    return {"TOOLCRIB_DATA": str(tmp_path / "data"), "TOOLCRIB_CONFIG": str(settings)}


@pytest.fixture
def shop(crib: Crib, own: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Crib:
    """A project with settings that wait for trust, and a call of `pay` that waits for approval."""
    monkeypatch.setenv("TOOLCRIB_DATA", own["TOOLCRIB_DATA"])
    crib.write("data", "x")
    pay = {"action": "write", "path": "data", "content": "paid"}
    asks = {"required": True, "reason": "it is dear"}
    crib.tool("pay", "file", pay, permissions={"fs": {"write": ["data"]}}, approval=asks)
    accept(crib.root)
    crib.write(".toolcrib/config.yml", "policy: {self_approval: true}\n")
    return crib


def waiting(shop: Crib) -> str:
    async def once() -> str:
        async with shop.open() as project:
            result = await project.call("pay", wait="pending")
            return str((result.details or {})["approval"])

    return asyncio.run(once())


def state(shop: Crib, own: dict[str, str]) -> Any:
    """All that a decision could change."""
    approvals = cli(shop, "approvals", "list", "--status", "all", "--json", env=own).document["approvals"]
    tokens = cli(shop, "token", "list", "--json", env=own).document
    trust = cli(shop, "trust", "--show", "--json", env=own).document
    locked = (shop.root / "toolcrib.lock").exists()
    decided = [one for one in approvals if one["status"] != "pending"]
    return [decided, tokens, trust, locked, (shop.root / "data").read_text()]


def words_for(words: Sequence[str], approval: str) -> list[str]:
    return [approval if word == ID else word for word in words]


def test_nothing_is_decided_without_a_terminal(shop: Crib, own: dict[str, str]) -> None:
    approval = waiting(shop)
    before = state(shop, own)
    for words in DECISIONS:
        done = cli(shop, *words_for(words, approval), env=own)
        assert (done.code, "error[denied]: only a person at a terminal" in done.err) == (5, True), (
            words,
            done.err,
        )
        what = {"approvals": "approve", "run": "approve", "token": "token", "trace": "approve"}.get(
            words[0], "trust"
        )
        entry = f'decide_without_terminal: [{{what: [{what}], where: ["{shop.root}"]}}]'
        assert f"add to {own['TOOLCRIB_CONFIG']}: {entry}" in done.err, (words, done.err)
    assert state(shop, own) == before
    assert not [entry for entry in shop.audit() if entry.event in ("TOOL_APPROVED", "TOOL_DENIED")]


def test_a_server_prints_no_login_link_where_nobody_is_at_a_terminal(shop: Crib, own: dict[str, str]) -> None:
    argv = [PROGRAM, "serve", "--http", "--host", "0.0.0.0", "--allow-host", "crib.example", "--port", "0"]
    pipe = subprocess.PIPE
    with Forked(
        argv, cwd=shop.root, env=ENVIRONMENT | own, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    ) as process:
        assert process.stderr is not None
        said = b""
        while b"login link" not in said and (line := process.stderr.readline()):
            said += line
        said += process.stderr.readline()
        process.terminate()
        out, _ = process.communicate()
    assert b"No login link is printed" in said
    assert b"decide_without_terminal: [{what: [approve]" in said
    # The address of all addresses is no name of one machine.
    assert re.findall(rb"REST on http://([^:]+):\d+\n", out) == [b"127.0.0.1", b"crib.example"]
    assert b"#code=" not in out


def test_no_token_decides_not_even_at_a_terminal(shop: Crib, own: dict[str, str]) -> None:
    approval = waiting(shop)
    token = Tokens(Vault(shop.root)).create("chief", ["admin"], owner="ann")
    before = state(shop, own)
    allowed = own | {"TOOLCRIB_CONFIG": os.environ["TOOLCRIB_CONFIG"], "TOOLCRIB_TOKEN": token}
    for words in (*DECISIONS, ("servers", "login", "any"), ("servers", "logout", "any")):
        done = cli(shop, *words_for(words, approval), env=allowed)
        assert (done.code, "error[denied]: a token cannot decide about" in done.err) == (5, True), done.err
        argv = [PROGRAM, *words_for(words, approval)]
        with terminal(argv, shop.root, ENVIRONMENT | allowed, 200) as screen:
            assert screen.end() == 5, words
            assert "error[denied]" in screen.text, words
    with terminal([PROGRAM, "run", "pay"], shop.root, ENVIRONMENT | allowed, 200) as screen:
        assert (screen.end(), "Run it once?" in screen.text) == (5, False), screen.text
    assert state(shop, own) == before


@pytest.mark.parametrize(
    ("keys", "words", "channel"), [("y\n", (), "terminal"), ("", ("--yes",), "flag")], ids=["typed", "flag"]
)
def test_the_audit_names_the_way_of_a_decision(
    shop: Crib, own: dict[str, str], keys: str, words: Sequence[str], channel: str
) -> None:
    argv = [PROGRAM, "approvals", "approve", waiting(shop), *words]
    with terminal(argv, shop.root, ENVIRONMENT | own, 200) as screen:
        if keys:
            screen.read_until("[y/N] ")
            screen.type(keys)
        assert screen.end() == 0, screen.text
    assert shop.last().fields["channel"] == channel
    more = ("--approve",) if words else ()
    with terminal([PROGRAM, "run", "pay", *more], shop.root, ENVIRONMENT | own, 200) as screen:
        if keys:
            screen.read_until("[y/N] ")
            screen.type(keys)
        assert screen.end() == 0, screen.text
    assert (shop.root / "data").read_text() == "paid"
    decided = [entry for entry in shop.audit() if entry.event == "TOOL_APPROVED"]
    assert [entry.fields["channel"] for entry in decided] == [channel, channel]


def test_a_job_in_the_background_of_a_terminal_decides_nothing(shop: Crib, own: dict[str, str]) -> None:
    words = f"approvals approve {waiting(shop)} --yes"
    script = f"set -m; {PROGRAM} {words} < /dev/tty & wait $!; echo ended $?"
    with terminal(["/bin/bash", "-c", script], shop.root, ENVIRONMENT | own, 200, accepted=False) as screen:
        screen.read_until("ended 5")
        assert "only a person at a terminal" in screen.text


def test_the_users_own_setting_allows_it_and_the_doctor_says_so(shop: Crib, own: dict[str, str]) -> None:
    assert "WARNING" not in cli(None, "doctor", env=own).out
    Path(own["TOOLCRIB_CONFIG"]).write_text(decides(shop.root, "approve"))
    assert cli(shop, "approvals", "approve", waiting(shop), "--yes", env=own).code == 0
    assert shop.last().fields["channel"] == "flag"
    told = cli(None, "doctor", env=own).out
    assert f"WARNING: by decide_without_terminal in {own['TOOLCRIB_CONFIG']}" in told
    assert f"  approve in {shop.root}\n" in told
    found = cli(None, "doctor", "--json", env=own).document["decideWithoutTerminal"]
    assert found == [{"what": ["approve"], "where": [str(shop.root)]}]


def test_the_setting_allows_what_it_names_where_it_names_it(
    shop: Crib, own: dict[str, str], tmp_path: Path
) -> None:
    settings, other = Path(own["TOOLCRIB_CONFIG"]), Crib(tmp_path / "other")
    settings.write_text(decides(shop.root, "approve"))
    decisions = (
        ("token", "create", "new", "--scope", "invoke"),
        ("secrets", "set", "KEY"),
        ("trust", "--revoke"),
    )
    for words in decisions:
        assert cli(shop, *words, env=own, stdin=b"12345678").code == 5, words
    settings.write_text(decides(shop.root, "token", "trust"))
    assert "what: [approve]" in cli(shop, "run", "pay", "--approve", env=own).err
    for words in decisions:
        assert cli(shop, *words, env=own, stdin=b"12345678").code == 0, words
        done = cli(other, *words, env=own, stdin=b"12345678")
        assert (done.code, str(other.root) in done.err) == (5, True), done.err


def test_an_approval_for_every_call_of_a_changed_tool_is_trust_too(shop: Crib, own: dict[str, str]) -> None:
    pay = {"action": "write", "path": "data", "content": "twice"}
    shop.tool("pay", "file", pay, permissions={"fs": {"write": ["data"]}})
    shop.accept = "trusted"
    always = ("approvals", "approve", waiting(shop), "--scope", "rule", "--yes")
    Path(own["TOOLCRIB_CONFIG"]).write_text(decides(shop.root, "approve"))
    for words in (always, ("run", "pay", "--approve")):
        done = cli(shop, *words, env=own, accepted=False)
        assert (done.code, "what: [trust]" in done.err) == (5, True), done.err
    Path(own["TOOLCRIB_CONFIG"]).write_text(decides(shop.root, "approve", "trust"))
    assert cli(shop, *always, env=own, accepted=False).code == 0


def test_a_project_that_takes_no_approval_here_runs_nothing_with_one(shop: Crib) -> None:
    shop.write(".toolcrib/config.yml", "approvals: {channels: [page]}\n")
    shop.trust()
    done = cli(shop, "run", "pay", "--approve", env={"TOOLCRIB_DATA": os.environ["TOOLCRIB_DATA"]})
    assert (done.code, "its approvals.channels: page" in done.err) == (5, True), done.err
    assert (shop.root / "data").read_text() == "x"


def test_its_user_is_told_how_to_approve_and_an_agent_is_not(shop: Crib, own: dict[str, str]) -> None:
    token = Tokens(Vault(shop.root)).create("agent", ["invoke"], owner="ann")
    for words in ((), ("--wait", "pending"), ("--json",)):
        done = cli(shop, "run", "pay", *words, env=own)
        assert done.code == 5
        assert "toolcrib approvals approve --last" in done.out + done.err
        done = cli(shop, "run", "pay", *words, env=own | {"TOOLCRIB_TOKEN": token})
        assert done.code == 5
        assert not [word for word in ("approvals", "--approve", "--yes") if word in done.out + done.err]
        assert "A person has been asked" in done.out + done.err
    shop.write(".toolcrib/config.yml", "approvals: {channels: [page]}\n")
    shop.trust()
    assert "A person has been asked" in cli(shop, "run", "pay", "--wait", "pending", env=own).err


# -- a token makes every command that caller ------------------------------------------------------------


@pytest.fixture
def agent(shop: Crib, own: dict[str, str]) -> dict[str, str]:
    """The environment of a command with a token that may call `look` and nothing else."""
    reads = {"action": "read", "path": "data"}
    for name in ("look", "other"):
        shop.tool(name, "file", reads, permissions={"fs": {"read": ["data"]}}, examples=[{"params": {}}])
    return own | {"TOOLCRIB_TOKEN": Tokens(Vault(shop.root)).create("ci", ["invoke"], ("look",), owner="ann")}


def test_a_token_sees_calls_and_is_recorded_as_itself(shop: Crib, agent: dict[str, str]) -> None:
    listed = cli(shop, "list", "--json", env=agent).document["tools"]
    assert [tool["name"] for tool in listed] == ["look"]
    found = cli(shop, "list", "look other pay", "--json", env=agent).document["tools"]
    assert [hit["name"] for hit in found] == ["look"]
    assert (cli(shop, "show", "look", env=agent).code, cli(shop, "show", "other", env=agent).code) == (0, 3)
    done = cli(shop, "run", "look", env=agent)
    assert (done.code, done.out) == (0, "x\n")
    assert shop.last().fields["caller"] == "token:ci"
    assert "error[invalid_token]" in cli(shop, "run", "other", env=agent).err
    assert "error[invalid_token]" in cli(shop, "run", "other", "--dry-run", env=agent).err
    tried = cli(shop, "test", "--json", env=agent).document["examples"]
    assert {(one["tool"], one["outcome"]) for one in tried} == {("look", "passed")}
    # No tool gets the token itself.
    needs = {"fs": {"read": ["data"]}, "secrets": {"TOOLCRIB_TOKEN": {}}}
    shop.tool("look", "file", {"action": "read", "path": "data"}, permissions=needs)
    accept(shop.root)
    assert "TOOLCRIB_TOKEN" in cli(shop, "run", "look", env=agent).err


@pytest.mark.parametrize(
    "words",
    [
        ("approvals", "list"),
        ("audit", "tail"),
        ("bundle", "list"),
        ("init",),
        ("lint",),
        ("trust", "--check"),
        ("policy", "show"),
        ("secrets", "list"),
        ("token", "list"),
        ("token", "revoke", "ci"),
        ("trace", "look"),
        ("trust", "--show"),
    ],
    ids=" ".join,
)
def test_a_token_is_no_owner(shop: Crib, agent: dict[str, str], words: Sequence[str]) -> None:
    done = cli(shop, *words, env=agent)
    assert (done.code, done.out, "error[invalid_token]" in done.err) == (5, "", True), done.err


def test_no_token_has_a_call_of_another_caller_run_again(shop: Crib, own: dict[str, str]) -> None:
    shop.tool("fail", "command", {"entrypoint": "false"})
    shop.tool("mine", "command", {"entrypoint": "false"})
    admin = own | {"TOOLCRIB_TOKEN": Tokens(Vault(shop.root)).create("chief", ["admin"], owner="ann")}
    for tool, env, retried in (("fail", own, 5), ("mine", admin, 0)):
        assert cli(shop, "calls", "submit", tool, env=env).code == 0
        assert cli(shop, "calls", "wait", "--last", env=env).code == 1
        done = cli(shop, "calls", "retry", "--last", env=admin)
        assert (done.code, "error[denied]" in done.err) == (retried, retried == 5), done.err
    assert cli(shop, "calls", "retry", "--last", env=own).code != 0  # It is ready already.


@pytest.mark.parametrize("token", ["", "tcr_wrong"])
def test_a_wrong_token_makes_nobody_the_owner(shop: Crib, own: dict[str, str], token: str) -> None:
    done: Done = cli(shop, "list", env=own | {"TOOLCRIB_TOKEN": token})
    assert (done.code, "error[invalid_token]" in done.err) == (5, True)
