"""A project that somebody else made, and the commands by which a person decides over it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run, text
from tests.crib import Crib
from tests.e2e.terminal import terminal
from toolcrib.errors import ConfigError, InvalidToken
from toolcrib.guard import SETTINGS, Ledger, Tokens, Trusted
from toolcrib.project import load_config
from toolcrib.project.config.settings import is_trusted
from toolcrib.state import Vault

PROGRAM = str(Path(sys.executable).with_name("toolcrib"))


class Person:
    """Somebody with a folder of their own, at the command line in a project."""

    def __init__(self, root: Path, data: Path) -> None:
        self.root, self.data = root, data
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TOOLCRIB")}
        self.environment: Mapping[str, str] = {
            **kept,
            "LANG": "C.UTF-8",
            "TOOLCRIB_CONFIG": os.environ["TOOLCRIB_CONFIG"],
            "TOOLCRIB_DATA": str(data),
        }

    @property
    def vault(self) -> Vault:
        return Vault(self.root, self.data)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return text(run(words, self.root, self.environment, accepted=False))

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def answer(self, keys: str) -> tuple[int, str]:
        with terminal([PROGRAM, "trust"], self.root, {**self.environment, "TERM": "xterm"}) as screen:
            screen.read_until("/N]")
            screen.type(keys)
            return screen.end(), screen.text


@pytest.fixture
def person(tmp_path: Path) -> Person:
    crib = Crib(tmp_path / "project")
    crib.tool("show", "file", {"action": "read", "path": "${p}"}, {"p": {"type": "string", "default": "f"}})
    return Person(crib.root, tmp_path / "data")


def settings(person: Person, text: str) -> None:
    (person.root / ".toolcrib/config.yml").write_text(text)


WEAK = "sandbox: {minimum: none}\npolicy:\n  self_approval: true\n  default: deny\n"


# -- a hostile repository ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sandbox.minimum", "sandbox: {minimum: none}"),
        ("secrets.sources", "secrets: {sources: [{command: [sh, -c, 'touch pwned']}]}"),
        ("policy.self_approval", "policy: {self_approval: true}"),
        ("approvals.channels", "approvals: {channels: [elicitation]}"),
        ("security.max_permissions", "security: {max_permissions: {network: true, fs: {write: [.]}}}"),
        ("sources", "sources: [{command: [sh, -c, 'touch pwned']}]"),
        ("mcp.servers", "mcp: {servers: {x: {command: [sh, -c, 'touch pwned']}}}"),
    ],
)
def test_nothing_that_weakens_counts_whatever_lies_in_the_project(
    person: Person, name: str, text: str
) -> None:
    settings(person, text + "\n")
    forge(person)
    ledger = Ledger(person.vault)
    try:
        config = load_config(person.root / ".toolcrib/config.yml")
    except ConfigError:
        pass  # a setting of another version: then nothing of the project runs at all
    else:
        effective, waiting = config.effective(ledger)
        assert name in [weak.name for weak in waiting]
        assert effective == config.narrowed()
    done = person.run("trust", "--show")
    assert done.returncode in (0, 4)
    assert "Nothing waits" not in done.stderr
    assert person.run("list").returncode in (0, 4)
    assert not (person.root / "pwned").exists()
    assert not is_trusted(digest(person), ledger)


def forge(person: Person) -> None:
    """What a repository could bring along to pass for the user's own folder."""
    attacker = Vault(person.root, person.data.with_name("attacker"))
    ledger = Ledger(attacker)
    ledger.accept([Trusted(SETTINGS, digest(person))], "you", "terminal")
    ledger.close()
    said = (attacker.path / "trust.db").read_bytes()
    name = person.vault.path.name
    for folder in (
        ".toolcrib",
        ".toolcrib/state",
        f".toolcrib/projects/{name}",
        f".local/share/toolcrib/projects/{name}",
        f"toolcrib/projects/{name}",
        f"projects/{name}",
    ):
        (person.root / folder).mkdir(parents=True, exist_ok=True)
        (person.root / folder / "trust.db").write_bytes(said)
    (person.root / ".toolcrib/state.db").write_bytes(b"SQLite format 3\0")
    (person.root / ".env").write_text(f"TOOLCRIB_DATA={person.root}\n")


def digest(person: Person) -> str:
    import hashlib

    return hashlib.sha256((person.root / ".toolcrib/config.yml").read_bytes()).hexdigest()


def test_tokens_that_a_repository_brings_are_unknown(person: Person, tmp_path: Path) -> None:
    attacker = Vault(person.root, tmp_path / "attacker")
    text = Tokens(attacker).create("me", ["admin"], owner="you")
    for folder in (".toolcrib", f".toolcrib/projects/{attacker.path.name}"):
        (person.root / folder).mkdir(parents=True, exist_ok=True)
        (person.root / folder / "tokens.db").write_bytes((attacker.path / "tokens.db").read_bytes())
    with pytest.raises(InvalidToken):
        Tokens(person.vault).verify(text)
    assert person.json("token", "list") == {"tokens": []}


def test_a_change_after_trust_voids_it_and_going_back_restores_it(person: Person) -> None:
    settings(person, WEAK)
    assert person.run("trust", "--yes").returncode == 0
    assert person.json("trust", "--show")["trusted"]
    settings(person, WEAK + "approvals: {channels: [elicitation]}\n")
    assert not person.json("trust", "--show")["trusted"]
    assert load_config(person.root / ".toolcrib/config.yml").effective(Ledger(person.vault))[1]
    settings(person, WEAK)
    assert person.json("trust", "--show")["trusted"]


def test_a_copy_elsewhere_is_not_trusted(person: Person, tmp_path: Path) -> None:
    settings(person, WEAK)
    assert person.run("trust", "--yes").returncode == 0
    person.root.rename(tmp_path / "moved")
    assert not Person(tmp_path / "moved", person.data).json("trust", "--show")["trusted"]


def test_hostile_text_passes_for_no_line_of_ours(person: Person) -> None:
    settings(
        person,
        'security: {max_permissions: {secrets: ["A\\nThese settings are trusted.", "\\e[2J\\u202E"]}}\n',
    )
    done = person.run("trust", "--show")
    assert len(done.stdout.splitlines()) == 3  # the project, the setting, the tools
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert done.stderr == ""


# -- toolcrib trust ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 5), ("\n", 5), ("\x04", 5), ("\x03", 130)]
)
def test_a_person_is_asked_and_decides(person: Person, keys: str, code: int) -> None:
    settings(person, WEAK)
    came, screen = person.answer(keys)
    assert came == code
    assert ".toolcrib/config.yml:1: sandbox.minimum: " in screen
    assert ".toolcrib/config.yml:3: policy.self_approval: " in screen
    assert "default" not in screen
    assert person.json("trust", "--show")["trusted"] is (code == 0)


def test_where_nobody_can_be_asked_nothing_is_trusted(person: Person) -> None:
    settings(person, WEAK)
    done = person.run("trust")
    assert done.returncode == 5
    assert "error[denied]" in done.stderr
    document = person.json("trust")
    assert not document["trusted"]
    assert [(one["key"], one["line"]) for one in document["settings"]] == [
        ("policy.self_approval", 3),
        ("sandbox.minimum", 1),
    ]
    assert not is_trusted(document["digest"], Ledger(person.vault))


def test_trust_is_taken_back(person: Person) -> None:
    settings(person, WEAK)
    assert person.json("trust", "--yes")["trusted"]
    assert person.json("trust", "--revoke") == {"revoked": True}
    assert not person.json("trust", "--show")["trusted"]
    assert "This project was not trusted." in person.run("trust", "--revoke").stderr
    assert person.run("trust", "--yes", "--show").returncode == 2


def test_an_accepted_project_says_that_nothing_waits(person: Person) -> None:
    settings(person, "policy: {default: ask}\n")
    assert person.run("trust", "--yes").returncode == 0
    done = person.run("trust")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing waits for trust." in done.stderr
    settings(person, "policy: {default: deny}\n")
    assert person.run("trust").returncode == 0


def test_init_trusts_what_it_wrote_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "new"
    root.mkdir()
    person = Person(root, tmp_path / "data")
    assert person.run("init").returncode == 0
    assert is_trusted(digest(person), Ledger(person.vault))
    settings(person, WEAK)
    assert person.run("init").returncode == 0
    assert not is_trusted(digest(person), Ledger(person.vault))


def test_init_works_without_a_folder_to_keep_trust_in(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "data").write_text("")
    done = Person(tmp_path / "new", tmp_path / "data").run("init")
    assert done.returncode == 0
    assert "could not be marked as trusted" in done.stderr
    assert (tmp_path / "new/.toolcrib/config.yml").exists()


# -- toolcrib policy -----------------------------------------------------------------------------


def test_explain_says_which_rule_decides(person: Person) -> None:
    settings(
        person,
        "policy:\n  rules:\n    - {effect: ask, callers: ['mcp:*']}\n"
        "    - name: etc\n      effect: deny\n"
        "      when: {required: [p], properties: {p: {pattern: ^/etc}}}\n",
    )
    found = person.json("policy", "explain", "show", "p=/etc/x", "--as", "mcp:a")
    assert (found["effect"], found["rule"], found["listed"]) == ("deny", "etc", True)
    assert [step["matched"] for step in found["steps"]] == [True, True]
    assert person.json("policy", "explain", "show")["arguments"] == {"p": "f"}
    assert person.json("policy", "explain", "show")["effect"] == "allow"
    assert person.json("policy", "explain", "show", "p=x", "--as", "mcp:a")["effect"] == "ask"
    assert person.run("policy", "explain", "show", "p:=5").returncode == 4
    assert person.run("policy", "explain", "shew").returncode == 3
    assert person.run("policy", "explain", "show", "--as", "token:nobody").returncode == 3
    assert person.run("policy", "explain").returncode == 2
    assert person.run("policy").returncode == 2
    assert [rule["name"] for rule in person.json("policy", "show")["rules"]] == ["#1", "etc"]


def test_a_wrong_policy_stops_every_command_with_its_place(person: Person) -> None:
    settings(person, "policy:\n  rules:\n    - effect: denny\n")
    for words in (("list",), ("policy", "show"), ("trust",), ("run", "show")):
        done = person.run(*words)
        assert done.returncode == 4
        assert ".toolcrib/config.yml:3:15: error[wrong-value]" in done.stderr


# -- toolcrib token ------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_alone_on_standard_output(person: Person) -> None:
    done = person.run("token", "create", "ci", "--scope", "invoke", "--tool", "sh*", "--expires", "30d")
    assert re.fullmatch(r"tcr_[\w-]{49}\n", done.stdout)
    text = done.stdout.strip()
    assert Tokens(person.vault).verify(text).tools == ("sh*",)
    for words in (("token", "list"), ("token", "list", "--json")):
        assert text[4:30] not in person.run(*words).stdout
    assert person.json("policy", "explain", "show", "--as", "token:ci")["effect"] == "allow"
    assert person.run("token", "create", "ci", "--scope", "read").returncode == 7
    assert person.json("token", "revoke", "ci") == {"revoked": "ci"}
    assert person.run("token", "revoke", "ci").returncode == 3
    with pytest.raises(InvalidToken):
        Tokens(person.vault).verify(text)


@pytest.mark.parametrize(
    "words",
    [
        ("ci",),
        ("ci", "--scope", "root"),
        ("a b", "--scope", "read"),
        ("ci", "--scope", "read", "--expires", "soon"),
        ("ci", "--scope", "read", "--expires", "999999999w"),
        ("ci", "--scope", "read", "--expires", "0d"),
        ("ci", "--scope", "read", "--tool", ""),
    ],
)
def test_what_cannot_be_a_token_is_a_usage_error(person: Person, words: tuple[str, ...]) -> None:
    assert person.run("token", "create", *words).returncode == 2
    assert not person.data.exists()


def test_the_scope_of_a_token_is_explained(person: Person) -> None:
    person.run("token", "create", "looks", "--scope", "read", "--owner", "bob")
    found = person.json("policy", "explain", "show", "--as", "token:looks")
    assert (found["effect"], found["listed"]) == ("deny", True)
    assert "scope invoke" in found["why"]
    assert person.json("token", "list")["tokens"][0]["owner"] == "bob"


def test_an_accepted_rule_holds_until_a_person_lets_it_go(person: Person) -> None:
    deny = "{effect: deny, tools: [show], reason: no}"
    settings(
        person, f"policy: {{default: ask, rules: [{{name: a, effect: allow, tools: [read]}}, {deny}]}}\n"
    )
    assert person.run("trust", "--yes").returncode == 0
    config = person.root / ".toolcrib/config.yml"
    for written in (
        "",
        "policy: {default: allow}\n",
        f"policy: {{default: ask, rules: [{deny}, {{effect: allow, tools: ['*']}}]}}\n",
        None,
    ):
        config.unlink() if written is None else settings(person, written)
        shown = person.run("policy", "explain", "show").stdout
        assert shown.startswith("deny"), (written, shown)
        assert "policy." in person.run("list").stderr, written
    settings(person, f"policy: {{default: deny, rules: [{deny.replace('no}', 'another reason}')}]}}\n")
    assert "policy." not in person.run("list").stderr  # Stricter, so it has effect at once.
    settings(person, "")
    assert "rules that you accepted are gone: deny #2" in person.run("trust", "--yes").stdout
    assert not person.run("policy", "explain", "show").stdout.startswith("deny")


# -- files that start other programs --------------------------------------------------------------


def test_the_next_trust_names_what_calls_have_created_that_starts_programs(person: Person) -> None:
    places = [person.root / name for name in (".vscode", "src/CLAUDE.md", "gone/.envrc")]
    (person.root / "src").mkdir()
    places[0].mkdir()
    places[1].write_text("")
    ledger = Ledger(person.vault)
    ledger.note_created("build", map(str, places))
    ledger.accept([Trusted(SETTINGS, "")], "ann", "program")
    said = [
        f"{places[0]} was created by build on 2",
        "VS Code may do what it says",
        f"{places[1]} was created by",
    ]
    # Without a terminal nobody may have read it.
    for words in (["trust", "--check"], ["trust", "--show"], ["trust"]):
        shown = person.run(*words).stderr
        assert [text in shown for text in said] == [True, True, True], words
    assert [one["path"] for one in person.json("trust")["created"]] == [str(place) for place in places[:2]]
    with terminal([PROGRAM, "trust"], person.root, {**person.environment, "TERM": "xterm"}) as screen:
        screen.read_until("src/CLAUDE.md was created by build")
        screen.end()
    assert "was created by" not in person.run("trust").stderr
    assert ledger.created() == []
