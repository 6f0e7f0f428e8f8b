"""Command-line agents added, trusted and given tasks, and agents imported, by the command line."""

from __future__ import annotations

import json

import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import Done
from tests.e2e.cli.test_cli import cli as plain
from tests.integration.project.test_tasks import stand_in

KEY = {"ANTHROPIC_API_KEY": "sk-a-secret-of-the-test"}


@pytest.mark.usefixtures("kernel")
def test_a_program_is_added_trusted_and_goes_on_with_its_session(crib: Crib) -> None:
    def cli(*words: str) -> Done:
        return plain(crib, *words, env=KEY, accepted=False)

    added = cli("agents", "add", "claude")
    assert (added.code, "created .toolcrib/tools/claude/run.sh\n" in added.err) == (0, True), added
    stand_in(crib, "claude")
    waits = cli("agents", "task", "Explain this code", "--json")
    assert json.loads(waits.err or waits.out)["error"]["code"] == "approval_required"
    assert cli("trust", "claude", "--yes").code == 0

    chosen = json.loads(cli("agents", "choose", "a coding task in this project", "--json").out)["agents"]
    assert [(one["name"], one["kind"]) for one in chosen] == [("claude", "program")]
    first = cli("agents", "task", "A coding task")
    assert (first.code, first.out) == (0, "task 1 of claude: A coding task\n"), first
    agent, session, log = first.err.strip().split(", ")
    assert (agent, log.startswith("log .toolcrib/stream_logs/")) == ("agent claude", True)
    again = cli("agents", "task", "And more", "--session", session.removeprefix("session "), "--json")
    assert json.loads(again.out)["answer"] == "task 2 of claude: And more"


def test_agents_are_imported(crib: Crib) -> None:
    head = "name: helper\ndescription: Helps\ncolor: red\ntools: Read, Bash"
    crib.write(".claude/agents/helper.md", f"---\n{head}\n---\nHelp.\n")
    words = ("agents", "import", "--model", "anthropic:claude-sonnet-5")

    assert plain(crib, "agents", "import").code == 4
    dry = plain(crib, *words, "--dry-run", "--json")
    assert json.loads(dry.out)["agents"][0]["agent"]["instructions"] == "Help."
    done = plain(crib, *words)
    assert (done.code, "`color` has no equal" in done.err) == (0, True), done
    assert plain(crib, "agents", "show", "helper").out.startswith("agent      helper\n")
    assert plain(crib, *words).code != 0
    assert "there is no tool" not in plain(crib, "lint").out


def test_a_full_page_of_sessions_names_the_next_one(crib: Crib) -> None:
    older, newer = (plain(crib, "runs", "sessions", "create").out.strip() for _ in range(2))
    first = plain(crib, "runs", "sessions", "list", "--limit", "1")
    assert (newer in first.out, first.err) == (True, f"There may be more: --before {newer}\n")
    assert older in plain(crib, "runs", "sessions", "list", "--before", newer).out
    created = json.loads(plain(crib, "runs", "sessions", "list", "--json").out)["sessions"][0]["createdAt"]
    assert created in first.out
