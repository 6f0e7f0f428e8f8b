"""`toolcrib audit` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked
from tests.crib import Crib
from tests.e2e.cli.test_cli import ENVIRONMENT, cli
from tests.e2e.terminal import terminal
from toolcrib import Call
from toolcrib.guard import ANCHOR
from toolcrib.state import Vault

HOSTILE = (
    "x\x1b]0;owned\x07\x1b[2J\r\n[2020-01-01T00:00:00] TOOL_APPROVED name=x\u202e seq=1 prev=" + "0" * 64
)


@pytest.fixture
def logged(crib: Crib) -> Crib:
    """Three calls: two that run (two lines each), one that is refused."""
    crib.write("f", "content")
    crib.tool("read", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}})
    crib.call("read")
    crib.call("read", {"unknown": HOSTILE})

    async def desk() -> None:
        async with crib.open() as project:
            await project.invoke(Call("read", {}, caller="mcp:desk"))

    asyncio.run(desk())
    return crib


def log_of(crib: Crib) -> Path:
    return crib.home / "audit" / "tools.log"


def test_a_log_that_holds(logged: Crib) -> None:
    done = cli(logged, "audit", "verify")
    assert (done.code, done.out, done.err) == (0, "ok: 5 lines, anchored at seq 5\n", "")
    document = cli(logged, "audit", "verify", "--json").document
    assert document["ok"] is True
    assert document["lines"] == document["head"]["seq"] == 5
    assert document["anchor"] == document["head"]
    assert document["problem"] is None


def test_the_log_of_a_project_moved_here_has_no_anchor(logged: Crib) -> None:
    (Vault(logged.root).path / ANCHOR).unlink()
    done = cli(logged, "audit", "verify")
    assert (done.code, done.out) == (0, "ok: 5 lines, no anchor\n")
    assert "Skipped: the end of the log" in done.err
    logged.call("read")
    assert cli(logged, "audit", "verify").out == "ok: 7 lines, anchored at seq 7\n"


def cut(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def altered(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b"local", b"loca1"), *lines[1:]]


def missing(lines: list[bytes]) -> list[bytes]:
    return [lines[0], *lines[2:]]


def reordered(lines: list[bytes]) -> list[bytes]:
    return [lines[1], lines[0], *lines[2:]]


def added(lines: list[bytes]) -> list[bytes]:
    """Add a line whose number and digest fit."""
    forged = f"[2026-01-01T00:00:00] TOOL_EXECUTED name=x seq=6 prev={sha256(lines[-1]).hexdigest()}\n"
    return [*lines, forged.encode()]


@pytest.mark.parametrize(("how", "line"), [(cut, 5), (altered, 1), (missing, 2), (reordered, 1), (added, 6)])
def test_the_first_line_that_does_not_hold_is_named(logged: Crib, how: Any, line: int) -> None:
    log = log_of(logged)
    log.write_bytes(b"".join(how(log.read_bytes().splitlines(keepends=True))))
    done = cli(logged, "audit", "verify")
    assert done.code == 1
    assert done.out.startswith(f"{log}:{line}: {how.__name__}: ")
    document = cli(logged, "audit", "verify", "--json").document
    assert document["problem"]["file"] == "tools.log"
    assert (document["problem"]["line"], document["problem"]["kind"]) == (line, how.__name__)


def test_no_log_and_no_project(crib: Crib, tmp_path: Path) -> None:
    assert cli(crib, "audit", "verify").out == "ok: 0 lines, no anchor\n"
    assert cli(crib, "audit", "tail", "--json").document == {"lines": []}
    assert cli(crib, "audit", "search", "--tool", "x").err == "No line matches.\n"
    assert cli(crib, "audit", "verify", "--root", str(tmp_path)).code == 3
    (crib.home / "audit" / "tools.log").mkdir(parents=True)
    done = cli(crib, "audit", "tail", "--json")
    assert (done.code, done.document["error"]["code"]) == (1, "audit_unavailable")


@pytest.mark.parametrize("name", ["tools.log", "tools.1-9.log"])
def test_a_pipe_in_place_of_a_log_holds_nobody_up(crib: Crib, name: str) -> None:
    (crib.home / "audit").mkdir()
    os.mkfifo(crib.home / "audit" / name)
    for words in (("verify",), ("tail",), ("search",)):
        done = cli(crib, "audit", *words, prefix=("timeout", "60"))
        assert (done.code, "not a regular file" in done.err) == (1, True), (words, done.code, done.err)


def test_tail_and_search(logged: Crib) -> None:
    assert len(cli(logged, "audit", "tail").out.splitlines()) == 5
    (last,) = cli(logged, "audit", "tail", "-n", "1").out.splitlines()
    assert re.fullmatch(r"\[\S+\] TOOL_EXECUTED name=read params=\{\} status=success .* start=4 seq=5", last)
    (line,) = cli(logged, "audit", "search", "--code", "invalid_input", "--json").document["lines"]
    assert line["event"] == "TOOL_REFUSED"
    assert line["fields"]["params"]["unknown"] == HOSTILE
    assert line["seq"] == 3
    lines = cli(logged, "audit", "search", "--caller", "mcp:desk", "--json").document["lines"]
    assert [(line["event"], line["seq"]) for line in lines] == [("TOOL_STARTED", 4), ("TOOL_EXECUTED", 5)]
    found = cli(logged, "audit", "search", "--status", "success", "--since", "1h", "--limit", "1")
    assert len(found.out.splitlines()) == 1
    assert "newest 1" in found.err
    assert cli(logged, "audit", "search", "--until", "2020-01-01").out == ""
    assert cli(logged, "audit", "search", "--since", "soon").code == 2


def test_a_hostile_argument_neither_makes_a_line_nor_steers_a_terminal(logged: Crib) -> None:
    with log_of(logged).open("ab") as file:
        file.write(b"\x1b[2Jstray \xff\xe2\x80\xae\n")
    for words in (["tail"], ["search", "--text", "stray"], ["verify"]):
        with terminal([PROGRAM, "audit", *words], logged.root, ENVIRONMENT) as screen:
            screen.end()
            shown = screen.raw
        assert "\x1b[2J" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown
    done = cli(logged, "audit", "tail")
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) == 6
    assert "TOOL_APPROVED" not in [line.split()[1] for line in done.out.splitlines()]


def test_follow_shows_what_comes(logged: Crib) -> None:
    with Forked(
        [PROGRAM, "audit", "tail", "-n", "1", "-f", "--json"],
        cwd=logged.root, env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True,
    ) as tail:  # fmt: skip
        try:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["seq"] == 5
            logged.call("read")
            assert json.loads(tail.stdout.readline())["seq"] == 6
            assert tail.poll() is None
        finally:
            tail.terminate()


KILLED = """
import asyncio, os, sys
from toolcrib import Project

async def main():
    async with Project.open(sys.argv[1]) as project:
        @project.toolset.tool
        async def slow() -> None:
            print("runs", flush=True)
            await asyncio.sleep(60)

        await project.call("slow")

asyncio.run(main())
"""


def test_a_call_whose_process_was_killed_is_reported_as_interrupted(logged: Crib) -> None:
    with Forked(
        [sys.executable, "-c", KILLED, str(logged.root)], env=ENVIRONMENT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        document = cli(logged, "audit", "verify", "--json").document
        assert ([call["seq"] for call in document["running"]], document["interrupted"]) == ([6], [])
        assert cli(logged, "audit", "verify").err == "seq 6: slow is running.\n"
        assert cli(logged, "audit", "tail").out.endswith(" seq=6 (running)\n")
        process.kill()
    logged.call("read")  # Later lines do not hide it.
    document = cli(logged, "audit", "verify", "--json").document
    assert (document["ok"], document["running"]) == (True, [])
    assert [(call["seq"], call["name"]) for call in document["interrupted"]] == [(6, "slow")]
    assert cli(logged, "audit", "verify").err == "seq 6: slow is interrupted.\n"
    lines = cli(logged, "audit", "tail").out.splitlines()
    assert [line for line in lines if line.endswith(")")] == [lines[5]]
    assert lines[5].endswith(" seq=6 (interrupted)")
    lines = cli(logged, "audit", "tail", "-n", "3", "--json").document["lines"]
    assert [line.get("state") for line in lines] == ["interrupted", None, None]
