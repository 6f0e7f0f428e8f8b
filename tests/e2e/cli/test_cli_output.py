"""Where results cannot go: closed streams, a full disk, Ctrl-C with `--json`; texts too long for a list."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands import PROGRAM, Forked
from tests.crib import Crib
from tests.e2e.cli.test_cli import ENVIRONMENT, cli


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    crib = Crib(tmp_path / "project")
    crib.write("f", "content")
    crib.tool("read", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}})
    return crib


def through_shell(crib: Crib, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line, "sh", PROGRAM],
        cwd=crib.root,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", ["list", "run read", "audit tail", "--help", "lint --schema agent"])
def test_a_full_disk_is_told_as_what_it_is(crib: Crib, words: str) -> None:
    assert cli(crib, "run", "read").code == 0
    done = through_shell(crib, f'"$1" {words} > /dev/full')
    assert done.returncode == 1
    assert done.stderr == (
        "error[state_unavailable]: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(crib: Crib, closed: str) -> None:
    done = through_shell(crib, f'"$1" run read {closed}')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.split() else "content\n")
    assert [entry.event for entry in crib.audit()] == ["TOOL_EXECUTED"]
    wrong = through_shell(crib, f'"$1" run gone {closed}')
    assert wrong.returncode == 3
    assert "Traceback" not in wrong.stderr
    assert crib.last().event == "TOOL_REFUSED"


def test_a_working_folder_that_is_gone(crib: Crib) -> None:
    there = 'mkdir gone; cd gone; rmdir ../gone; "$1"'
    done = through_shell(crib, f"{there} list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error[usage]: the working folder no longer exists\nhint: Change to a folder that exists.\n"
    )
    as_json = through_shell(crib, f"{there} lint --root {crib.root} --json")
    assert json.loads(as_json.stdout)["error"]["code"] == "usage"


def test_ctrl_c_is_one_document_too(crib: Crib) -> None:
    crib.tool("tidy", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}}, **ASKS)
    waits = Forked(
        [PROGRAM, "run", "tidy", "--wait", "block", "--json"],
        cwd=crib.root,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waits.stderr is not None
    assert "tidy waits for a person: toolcrib approvals approve" in waits.stderr.readline()
    waits.send_signal(signal.SIGINT)
    out, _ = waits.communicate()
    assert waits.returncode == 130
    assert json.loads(out)["error"]["code"] == "cancelled"


ASKS = {"approval": {"required": True, "reason": "It is dear"}}


def test_a_list_is_short_and_show_has_it_all(crib: Crib) -> None:
    long = "word " * 2_000
    crib.tool("talks", "file", {"action": "read", "path": "f"}, description=long)
    for words in (["list"], ["list", "talks"]):
        told = cli(crib, *words).out
        assert max(map(len, told.splitlines())) < 320
        assert "word word…" in told
    assert cli(crib, "show", "talks").out.count("word") == 2_000
    (listed,) = (one for one in cli(crib, "list", "--json").document["tools"] if one["name"] == "talks")
    assert listed["description"].endswith("word…")
    assert cli(crib, "show", "talks", "--json").document["description"] == long


def test_an_approval_needs_a_channel_that_the_project_takes(crib: Crib) -> None:
    crib.tool("tidy", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}}, **ASKS)
    crib.write(".toolcrib/config.yml", "approvals: {channels: [page]}\n")
    refused = cli(crib, "run", "tidy", "--approve")
    assert refused.code == 5
    assert "takes no approval at the command line; its approvals.channels: page" in refused.err
    waiting = cli(crib, "approvals", "list", "--json").document["approvals"][0]["id"]
    told = cli(crib, "approvals", "approve", waiting, "--yes")
    assert told.code == 5
    assert "accepts no approval by 'cli'" in told.err
    assert cli(crib, "approvals", "deny", waiting, "--yes").code == 0
