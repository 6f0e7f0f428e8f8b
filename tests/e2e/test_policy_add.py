"""`toolcrib policy add` and `toolcrib secrets set`: what a person decides, and nobody else."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import decides
from tests.crib import SH, Crib
from tests.e2e.cli.test_cli import ENVIRONMENT, cli, on_terminal
from toolcrib.project import load_config
from toolcrib.project.new_rule import with_rule

RULE = {"effect": "deny", "tools": ["a"]}
WRITTEN = '- {"effect": "deny", "tools": ["a"]}\n'
VALUE = "drill-press-4711"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"policy:\n  rules:\n    {WRITTEN}"),
        ("# mine\ndatabase: sqlite", f"# mine\ndatabase: sqlite\npolicy:\n  rules:\n    {WRITTEN}"),
        ("policy: # why\ndatabase: sqlite\n", f"policy: # why\n  rules:\n    {WRITTEN}database: sqlite\n"),
        ("policy:\n    default: ask\n", f"policy:\n    rules:\n      {WRITTEN}    default: ask\n"),
        (
            "policy:\n  rules:\n  - effect: ask\n    tools: [b]\n  # last\n\ndatabase: sqlite\n",
            f"policy:\n  rules:\n  - effect: ask\n    tools: [b]\n  {WRITTEN}  # last\n\ndatabase: sqlite\n",
        ),
    ],
)
def test_everything_else_in_the_settings_stays(before: str, after: str) -> None:
    assert with_rule(before, RULE) == after


@pytest.mark.parametrize("text", ["policy: {rules: [{effect: ask}]}", "[]", "policy: {default: ask}", "{}"])
def test_settings_of_another_form_are_left_alone(text: str) -> None:
    with pytest.raises((ValueError, AttributeError)):
        with_rule(text, RULE)


@pytest.fixture
def shop(crib: Crib) -> Crib:
    crib.tool(
        "deploy", "command", {"entrypoint": "true"}, {"env": {"type": "string"}, "n": {"type": "integer"}}
    )
    crib.shell("look", annotations={"read_only": True})
    crib.write(".toolcrib/config.yml", "# ours\npolicy:\n  self_approval: true\n")
    crib.trust()
    return crib


def test_a_rule_is_tried_on_past_calls_and_nothing_changes(shop: Crib) -> None:
    for env in ("prod", "prod", "test"):
        shop.call("deploy", {"env": env}, caller="mcp:editor")
    settings = (shop.home / "config.yml").read_text()
    found = cli(shop, "policy", "try", "deny", "dep*", "env=prod", "--caller", "mcp:*", "--json").document
    (call,) = found["matching"]
    assert (call["times"], call["arguments"], call["now"], call["then"]) == (
        2,
        {"env": "prod"},
        "allow",
        "deny",
    )
    assert (found["then"]["deny"], found["now"]["deny"]) == (2, 0)
    printed = cli(shop, "policy", "try", "ask", "deploy", "env=test").out
    assert [line.split()[:1] for line in printed.splitlines()] == [
        ["ALLOW"],
        ["now"],
        ["then"],
        ["TIMES"],
        ["1"],
    ]
    nothing = cli(shop, "policy", "try", "ask", "look")
    assert "matches none" in nothing.err
    assert (shop.home / "config.yml").read_text() == settings


def decision(crib: Crib, *words: str) -> str:
    return str(cli(crib, "policy", "explain", *words, "--json").document["effect"])


def test_the_common_rules_are_added_shown_and_keep_the_trust(shop: Crib) -> None:
    with on_terminal(
        shop, "policy", "add", "ask", "--writes", "--reason", "it writes", columns=200
    ) as screen:
        shown = screen.read_until("Make this change? [y/N] ")
        assert '+    - {"effect": "ask", "annotations": {"read_only": false}, "reason": "it writes"}' in shown
        screen.type("n\n")
        assert screen.end() == 5
    assert "rules" not in (shop.home / "config.yml").read_text()
    for words in (("ask", "--writes"), ("deny", "look"), ("allow", "deploy", "env=test", "n=3")):
        done = cli(shop, "policy", "add", *words, "--yes", "--json")
        assert done.code == 0, done.err
        assert done.document["rule"]["effect"] == words[0]
    assert decision(shop, "deploy", "env=live") == "ask"
    assert decision(shop, "look") == "deny"
    rules = load_config(shop.home / "config.yml").policy.rules
    assert rules[2].when is not None
    assert rules[2].when.schema["properties"] == {"env": {"const": "test"}, "n": {"const": 3}}
    assert cli(shop, "trust", "--show", "--json").document["trusted"] is True
    assert [one.fields["channel"] for one in shop.audit() if one.event == "POLICY_CHANGED"] == ["flag"] * 3
    assert (shop.home / "config.yml").read_text().startswith("# ours\n")


def test_settings_keep_their_line_ends(shop: Crib) -> None:
    path = shop.home / "config.yml"
    path.write_text("policy:\n  self_approval: true\n", newline="\r\n")
    shop.trust()
    assert cli(shop, "policy", "add", "deny", "look", "--yes").code == 0
    assert path.read_bytes().count(b"\r\n") == path.read_bytes().count(b"\n") == 4
    assert cli(shop, "trust", "--show", "--json").document["trusted"] is True


def test_what_is_not_trusted_is_not_trusted_by_adding_a_rule(shop: Crib) -> None:
    shop.write(".toolcrib/config.yml", "sandbox: {minimum: none}\n")
    assert cli(shop, "policy", "add", "deny", "look", "--yes").code == 0
    assert cli(shop, "trust", "--show", "--json").document["trusted"] is False


def test_an_added_rule_stays_also_beside_rules_that_were_written_by_hand(shop: Crib) -> None:
    shop.write(".toolcrib/config.yml", "policy:\n  rules:\n  - {effect: ask, tools: [deploy]}\n")
    assert cli(shop, "policy", "add", "deny", "look", "--yes").code == 0
    shop.write(".toolcrib/config.yml", "policy: {default: allow}\n")
    assert decision(shop, "look") == "deny"
    shop.write(".toolcrib/config.yml", "policy:\n  default: allow\n")
    assert cli(shop, "policy", "add", "deny", "deploy", "--yes").code == 0
    assert decision(shop, "look") == "deny", "the rule that is gone was not let go by adding another one"


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (("deny", "lok"), 3, "look"),
        (("deny",), 2, "every call"),
        (("ask", "look", "--name", "#1"), 4, "`#`"),
        (("allow", "deploy", "env=a", "env=b"), 2, "twice"),
    ],
)
def test_a_rule_that_is_wrong_changes_nothing(
    shop: Crib, words: tuple[str, ...], code: int, printed: str
) -> None:
    before = (shop.home / "config.yml").read_bytes()
    done = cli(shop, "policy", "add", *words, "--yes")
    assert (done.code, printed in done.err) == (code, True), done.err
    assert (shop.home / "config.yml").read_bytes() == before


def test_settings_in_brackets_or_elsewhere_are_not_changed(shop: Crib, tmp_path: Path) -> None:
    shop.write(".toolcrib/config.yml", "policy: {rules: [{effect: ask}]}\n")
    done = cli(shop, "policy", "add", "deny", "look", "--yes")
    assert (done.code, '"tools": ["look"]' in done.err) == (2, True)
    (tmp_path / "elsewhere").write_text("")
    (shop.home / "config.yml").unlink()
    (shop.home / "config.yml").symlink_to(tmp_path / "elsewhere")
    assert cli(shop, "policy", "add", "deny", "look", "--yes").code != 0
    assert (tmp_path / "elsewhere").read_text() == ""


def test_a_secret_is_typed_unseen_and_only_its_tool_gets_it(crib: Crib, tmp_path: Path) -> None:
    env = {"TOOLCRIB_DATA": str(tmp_path / "data")}
    declared = {"secrets": {"KEY": {}}, "fs": {"read": ["."]}}
    crib.shell("keyed", permissions=declared)
    crib.shell("other", permissions={"fs": {"read": ["."]}})
    with on_terminal(crib, "secrets", "set", "KEY", env=env) as screen:
        screen.read_until("Value of KEY: ")
        screen.type(VALUE + "\n")
        assert screen.end() == 0, screen.text
        assert VALUE not in screen.raw
    (kept,) = tmp_path.glob("data/projects/*/secrets.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {"KEY": VALUE}
    found = cli(crib, "secrets", "list", "--json", env=env).document["secrets"]
    assert [(one["state"], one["source"]) for one in found] == [("resolved", "your own file")]
    script = f"c=echo $KEY | rev; cat {kept} 2>&1; echo end"
    done = cli(crib, "run", "keyed", script, env=env)
    assert VALUE[::-1] in done.out, done.err
    assert "No such file" in done.out
    assert "1174" not in cli(crib, "run", "other", script, env=env).out
    (line,) = [one for one in crib.audit() if one.event == "SECRET_SET"]
    assert (line.fields["secret"], line.fields["channel"]) == ("KEY", "terminal")
    done = cli(crib, "secrets", "set", "KEY", "--remove", "--json", env=env)
    assert done.document == {"secret": "KEY", "set": False, "place": "your own file"}
    assert json.loads(kept.read_text()) == {}


def test_without_a_terminal_the_value_comes_from_standard_input(crib: Crib, tmp_path: Path) -> None:
    env = {"TOOLCRIB_DATA": str(tmp_path / "data")}
    crib.tool("keyed", "command", {"entrypoint": "true"}, SH, permissions={"secrets": {"KEY": {}}})
    assert cli(crib, "secrets", "set", "KEY", stdin=b"", env=env).code == 2
    assert cli(crib, "secrets", "set", "KEY", stdin=b"x\0y", env=env).code == 2
    assert cli(crib, "secrets", "set", "../KEY", stdin=b"x", env=env).code == 2
    assert cli(crib, "secrets", "set", "KEY", stdin=VALUE.encode() + b"\n", env=env).code == 0
    assert cli(crib, "secrets", "check", env=env).code == 0
    (kept,) = tmp_path.glob("data/projects/*/secrets.json")
    kept.write_text("damaged")
    done = cli(crib, "run", "keyed", "c=x", env=env | {"KEY": "from-the-environment"})
    assert (done.code, "is damaged" in done.err) == (1, True), done.err


def test_a_keyring_of_the_settings_keeps_it(crib: Crib, tmp_path: Path) -> None:
    """In the place of secret-tool, which needs a desktop, a program of the same arguments and answers."""
    tool = crib.write(
        "bin/secret-tool", f'#!/bin/sh\necho "$@" >> {tmp_path}/log; cat > {tmp_path}/value\n', 0o755
    )
    crib.write(".toolcrib/config.yml", "secrets: {sources: [{keyring: {service: shop}}]}\n")
    crib.trust()
    settings = tmp_path / "own.yml"
    settings.write_text(decides(crib.root))
    block = "import sys; sys.modules['keyring'] = None; from toolcrib.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", block, "secrets", "set", "KEY"],
        cwd=crib.root,
        env=ENVIRONMENT | {"PATH": f"{tool.parent}:{os.environ['PATH']}", "TOOLCRIB_CONFIG": str(settings)},
        input=VALUE,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "value").read_text() == VALUE
    assert (tmp_path / "log").read_text() == "store --label=shop KEY service shop username KEY\n"
