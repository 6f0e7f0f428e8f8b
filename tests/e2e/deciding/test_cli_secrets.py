"""`toolcrib secrets` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.commands import PROGRAM
from tests.crib import SH, Crib, accept
from tests.e2e.cli.test_cli import ENVIRONMENT, cli, on_terminal
from tests.integration.egress.servers import serving
from tests.integration.executors.http.token_server import CLIENT, TokenServer

VALUE = "s3cr3t-value"


@pytest.fixture
def keyed(crib: Crib) -> Crib:
    """Two tools: one needs A and B, the other takes B or C if there."""
    crib.write(".toolcrib/config.yml", "secrets: {sources: [{env: {}}, {env_file: {path: .env}}]}\n")
    crib.trust()
    crib.write(".env", f"A={VALUE}\n")
    config = {
        "method": "GET",
        "url": "https://api.example.com/x",
        "headers": {"X-Key": "${A}", "X-B": "${B}"},
    }
    crib.tool("api", "http", config, SH, permissions={"network": True, "secrets": {"A": {}, "B": {}}})
    optional = {"B": {"required": False}, "C": {"required": False}}
    crib.shell("sh", permissions={"secrets": optional})
    return crib


def test_the_states_are_told_and_no_value(keyed: Crib) -> None:
    done = cli(keyed, "secrets", "list", env={"B": VALUE})
    assert done.code == 0
    assert [line.split(maxsplit=1)[0] for line in done.out.splitlines()] == ["SECRET", "A", "B", "C"]
    a, b, c = done.out.splitlines()[1:]
    assert ("resolved" in a, ".env" in a, "api.example.com" in a, a.endswith("api")) == (True,) * 4
    assert ("resolved" in b, " env " in b, b.endswith("api, sh (optional)")) == (True,) * 3
    assert ("missing" in c, c.endswith("sh (optional)")) == (True,) * 2
    document = cli(keyed, "secrets", "check", "--json", env={"B": VALUE})
    assert document.code == 0
    assert document.document["ok"] is True
    assert document.document["secrets"][0]["hosts"] == ["api.example.com"]
    assert document.document["secrets"][1]["tools"] == [
        {"name": "api", "required": True},
        {"name": "sh", "required": False},
    ]
    assert VALUE not in done.out + done.err + document.out + document.err
    assert str(len(VALUE)) not in done.out.replace(str(keyed.root), "")


def test_what_a_rule_denies_some_callers_is_pinned_and_its_secrets_are_listed(crib: Crib) -> None:
    crib.shell("sh", permissions={"secrets": {"A": {}}})
    crib.write(".toolcrib/config.yml", "policy: {rules: [{effect: deny, tools: [sh], callers: [local]}]}\n")
    crib.trust()
    assert [one["name"] for one in cli(crib, "secrets", "check", "--json").document["secrets"]] == ["A"]
    assert cli(crib, "trust", "--yes").code == 0
    assert cli(crib, "trust", "--lock").code == 0
    assert list(json.loads((crib.root / "toolcrib.lock").read_text())["tools"]) == ["sh"]


def test_a_short_value_is_warned_of(keyed: Crib) -> None:
    keyed.write(".env", "A=1234567\nB=12345678\n")
    done = cli(keyed, "secrets", "check")
    assert done.code == 0
    assert "A has fewer than 8 characters" in done.err
    assert "B has" not in done.err
    document = cli(keyed, "secrets", "check", "--json").document
    assert [secret["short"] for secret in document["secrets"]] == [True, False, False]


def test_check_fails_where_a_tool_could_not_run(keyed: Crib) -> None:
    done = cli(keyed, "secrets", "check")
    assert done.code == 1
    assert "B is missing: api cannot run without it." in done.err
    assert cli(keyed, "secrets", "list").code == 0
    keyed.write(".env", f"A='{VALUE}\n")
    done = cli(keyed, "secrets", "check", "--json")
    assert done.code == 1
    a = done.document["secrets"][0]
    assert (a["name"], a["state"], a["reason"]) == (
        "A",
        "unreadable",
        "line 1 has an unclosed quote",
    )
    assert VALUE not in done.out + done.err


def test_the_table_comes_before_the_notes_in_one_pipe(keyed: Crib) -> None:
    """`toolcrib secrets check 2>&1 | cat`: both streams go to one pipe, and Python buffers the first."""
    done = subprocess.run(
        [PROGRAM, "secrets", "check"],
        cwd=keyed.root,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["SECRET", "A", "B", "C"]
    assert lines[4:] == ["B is missing: api cannot run without it.", "To set it: toolcrib secrets set B"]


def test_a_project_without_secrets(crib: Crib) -> None:
    done = cli(crib, "secrets", "check")
    assert (done.code, done.out, done.err) == (0, "", "No tool declares a secret.\n")
    assert cli(crib, "secrets", "list", "--json").document == {"ok": True, "secrets": []}


async def test_a_login_on_a_device_stores_a_token_for_the_tool(crib: Crib) -> None:
    server = TokenServer()
    async with serving(server.handle) as port:
        base = f"http://127.0.0.1:{port}"
        rule = {"grant": "device_code", "device_url": f"{base}/device", "token_url": f"{base}/token"}
        crib.tool(
            "api",
            "http",
            {"url": f"{base}/api"},
            auth={"type": "oauth2", "oauth2": {**rule, "client_id": CLIENT, "client_auth": "none"}},
            permissions={"network": {"allow": [f"127.0.0.1:{port}"]}},
        )
        crib.shell("sh")
        accept(crib.root)
        done = await asyncio.to_thread(cli, crib, "secrets", "login", "sh")
        assert (done.code, "sh has no login" in done.err) == (2, True)
        before = await asyncio.to_thread(cli, crib, "run", "api")
        assert "nobody has logged in" in before.err
        done = await asyncio.to_thread(cli, crib, "secrets", "login", "api", "--json")
        assert done.document == {"tool": "api", "loggedIn": True}
        assert "Open https://example.com/activate and enter the code WDJB-MJHT." in done.err
        after = await asyncio.to_thread(cli, crib, "run", "api")
        assert after.code == 0, after.err
        assert server.issued == ["access-token-0"]
        assert "access-token-0" not in done.out + done.err + after.out + after.err


def test_whoever_approves_sees_which_secret_is_missing(keyed: Crib) -> None:
    missing = "missing: secret B. To set it: toolcrib secrets set B\n"
    config = {"method": "GET", "url": "https://api.example.com/x", "headers": {"X": "${A}${B}"}}
    needs = {"network": True, "secrets": {"A": {}, "B": {}}}
    keyed.tool("dear", "http", config, permissions=needs, approval={"required": True, "reason": "it is dear"})
    accept(keyed.root)
    with on_terminal(keyed, "run", "dear", columns=200) as screen:
        screen.read_until("[y/N]")
        screen.type("n\n")
        screen.end()
    assert missing in screen.text
    assert "secret A. To set" not in screen.text
    assert cli(keyed, "run", "dear", "--wait", "pending").code == 5
    with on_terminal(keyed, "approvals", "approve", "--last", columns=200) as screen:
        screen.read_until("[y/N]")
        screen.type("n\n")
        screen.end()
    assert missing in screen.text
    with on_terminal(keyed, "approvals", "approve", "--last", env={"B": VALUE}) as screen:
        screen.read_until("[y/N]")
        screen.type("n\n")
        screen.end()
    assert "secret B. To set" not in screen.text
