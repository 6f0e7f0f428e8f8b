"""Many calls and runs at once by the command line: submitted from a file, and changed by a filter."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import Done, cli, on_terminal

AGENT = {"name": "waits", "model": "scripted", "script": [{"text": "x"}]}


@pytest.fixture
def shop(crib: Crib) -> Crib:
    crib.tool("say", "command", {"entrypoint": "echo", "args": ["${word}"]}, {"word": {"type": "string"}})
    crib.write(".toolcrib/agents/waits.yml", json.dumps(AGENT))
    return crib


def lines(*words: object) -> bytes:
    return b"".join(
        json.dumps({"tool": "say", "arguments": {"word": word}}).encode() + b"\n" for word in words
    )


def test_calls_are_submitted_from_a_file_and_cancelled_by_a_filter(shop: Crib) -> None:
    def asked(*words: str, stdin: bytes = b"") -> Done:
        return cli(shop, "calls", *words, stdin=stdin)

    shop.write("calls.jsonl", lines("a", "b", "c"))
    ids = asked("submit", "--from", "calls.jsonl").out.split()
    assert len(ids) == 3
    more = json.loads(asked("submit", "--from", "-", "--json", stdin=lines("d")).out)["ids"]
    assert asked("submit").code == 2
    bad = asked("submit", "--from", "-", stdin=lines("e", 1))
    assert (bad.code != 0, "call 2: " in bad.err) == (True, True), bad
    assert "line 1 has unknown fields: args" in asked("submit", "--from", "-", stdin=b'{"args": {}}').err
    listed = json.loads(asked("list", "--tool", "say", "--since", "1h", "--json").out)["calls"]
    assert [one["id"] for one in listed] == [*more, *reversed(ids)]
    assert "There are no such calls." in asked("list", "--until", "1h").err

    alone = asked("cancel", "--tool", "say")
    assert (alone.code, "Add --yes" in alone.err) == (5, True), alone
    assert asked("cancel", ids[0], "--tool", "say").code == 2
    done = json.loads(asked("cancel", "--tool", "say", "--yes", "--json").out)
    assert (sorted(done["done"]), done["refused"]) == (sorted([*ids, *more]), {})
    assert "nothing to cancel" in asked("cancel", "--tool", "say", "--yes").err
    retried = asked("retry", "--state", "cancelled", "--yes").err
    assert "retry: 4" in retried
    assert "nothing continues. Start `toolcrib worker" in retried
    asked("cancel", ids[0])
    assert f"here: `toolcrib calls wait {ids[0]}`" in asked("retry", ids[0]).err

    asked("cancel", "--tool", "say", "--yes")
    log = (shop.home / "audit/tools.log").read_bytes()
    with closing(sqlite3.connect(shop.home / "state.db")) as state, state:
        state.execute("UPDATE calls SET ended_at = ended_at - 40 * 86400 WHERE id != ?", (ids[0],))
    assert "removed: 3 calls, 0 runs" in cli(shop, "runs", "prune").err
    assert [one["id"] for one in json.loads(asked("list", "--json").out)["calls"]] == [ids[0]]
    assert (shop.home / "audit/tools.log").read_bytes() == log, "the audit log is never cut"


def test_a_person_is_asked_with_the_number_of_runs(shop: Crib) -> None:
    cli(shop, "runs", "run", "waits", "x", "--detach")
    cli(shop, "runs", "run", "waits", "y", "--detach")
    with on_terminal(shop, "runs", "cancel", "--agent", "waits") as screen:
        screen.read_until("Cancel 2? [y/N] ")
        screen.type("n\n")
        assert screen.end() != 0
    assert "nothing to retry" in cli(shop, "runs", "retry", "--agent", "waits", "--yes").err
    done = json.loads(cli(shop, "runs", "cancel", "--agent", "waits", "--yes", "--json").out)
    assert len(done["done"]) == 2
    states = json.loads(cli(shop, "runs", "list", "--state", "cancelled", "--json").out)["runs"]
    assert len(states) == 2
    # Nothing serves the project, so nothing that is retried or forked goes on by itself.
    for words in (["retry", "--last"], ["retry", "--agent", "waits", "--yes"], ["fork", "--last"]):
        assert "nothing continues. Start `toolcrib worker" in cli(shop, "runs", *words).err, words
