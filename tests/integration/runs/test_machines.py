"""Workers of several machines share calls and runs: each does what it has and what is trusted there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.machines import STAMP, Machine, until

pytestmark = pytest.mark.timeout(600)
Make = Callable[..., Machine]


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes machines on one database: with a file they are two people's data of one folder."""
    made: list[Machine] = []
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url(f"test_{uuid.uuid4().hex}")

    def make_one(name: str, *, trusted: bool = True) -> Machine:
        root = made[0].root if url is None and made else None
        # A file belongs to the person who made it.
        home = made[0].data.parent if root is not None else tmp_path / name
        made.append(Machine(home, url, root))
        if trusted:
            made[-1].trust()
        return made[-1]

    yield make_one
    for machine in made:
        machine.end()


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two machines with a copy of the project each; only the first one's person has trusted it.

    With a file they are two people in one folder.
    """
    url = None
    if getattr(request, "param", "postgres") == "postgres":
        url = request.getfixturevalue("postgres").url(f"test_{uuid.uuid4().hex}")
    mine = Machine(tmp_path / "mine", url)
    mine.trust()
    machines = mine, Machine(tmp_path / "theirs", url, mine.root if url is None else None)
    yield machines
    for machine in machines:
        machine.end()


def submitted(machine: Machine, *letters: str) -> list[str]:
    done = [machine.run("calls", "submit", "stamp", f"letter={letter}") for letter in letters]
    assert {one.returncode for one in done} == {0}, done
    return [one.stdout.strip() for one in done]


def states(machine: Machine, ids: list[str]) -> set[str]:
    rows = json.loads(machine.run("calls", "list", "--limit", "500", "--json").stdout)["calls"]
    return {row["state"] for row in rows if row["id"] in ids}


def kinds(machine: Machine, call_id: str) -> list[str]:
    shown = json.loads(machine.run("calls", "show", call_id, "--json").stdout)
    return [change["kind"] for change in shown["history"]["changes"]]


def status(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(machine.run("status", "--json").stdout)
    return found


# --- trust


@pytest.mark.parametrize("two", ["sqlite", "postgres"], indirect=True)
def test_a_worker_of_a_project_that_nobody_accepted_takes_nothing(two: tuple[Machine, Machine]) -> None:
    mine, theirs = two
    refused = theirs.worker(ready=False)
    assert refused.wait() == 5
    assert refused.stderr is not None
    assert "toolcrib trust" in refused.stderr.read()
    ids = submitted(mine, "a", "b")
    mine.worker()
    until(lambda: states(mine, ids) == {"done"})
    assert kinds(mine, ids[0]) == ["submitted", "claimed", "done"]


def test_a_program_serves_its_own_tools_where_the_project_is_not_accepted(
    two: tuple[Machine, Machine],
) -> None:
    mine, theirs = two
    theirs.worker("--app", "joinery:cuts")
    (row,) = status(mine)["workers"]
    assert row["tools"] == ["cut"]
    ((reason, tools),) = row["refused"].items()
    assert tools == ["stamp"]
    assert "toolcrib trust" in reason
    shown = mine.run("status").stdout + mine.run("status").stderr
    assert f"{row['name']} does not serve stamp: " in shown
    ids = submitted(mine, "a")
    run = mine.run("calls", "submit", "cut", "plank=oak")  # Only the other machine has it.
    assert run.returncode == 0, run.stderr
    waited = mine.run("calls", "wait", run.stdout.strip())
    assert waited.stdout.strip() == "oak cut"
    mine.worker()
    until(lambda: states(mine, ids) == {"done"})


@pytest.mark.parametrize("number", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_what_one_machine_has_not_trusted_is_left_to_the_others(make: Make, number: int) -> None:
    mine, theirs = make("mine"), make("theirs")
    ids = submitted(mine, *map(str, range(number)))
    manifest = theirs.root / ".toolcrib/tools/stamp/tool.yml"
    manifest.write_text(STAMP.replace("Stamp a letter.", "Stamp any letter."))
    theirs.worker()
    reason = next(iter(status(mine)["workers"][0]["refused"]))
    assert "toolcrib trust stamp" in reason
    assert states(mine, ids) == {"ready"}
    theirs.trust()  # Now it runs what it has, and the calls go on without anybody's doing.
    until(lambda: states(mine, ids) == {"done"})
    log = (theirs.root / ".toolcrib/audit/tools.log").read_text()
    assert "TOOL_REFUSED" not in log


def test_code_that_differs_is_found_at_the_call_and_the_call_goes_on_elsewhere(
    two: tuple[Machine, Machine],
) -> None:
    mine, theirs = two
    for machine in two:
        tool = machine.root / ".toolcrib/tools/stamp/tool.yml"
        tool.write_text(
            STAMP.replace('printf, args: ["%s stamped"', "sh, args: [stamp.sh").replace(
                "fs: {", "fs: {read: [.], "
            )
        )
        (machine.root / "stamp.sh").write_text("echo $1 stamped\n")
        machine.trust()
    (theirs.root / "stamp.sh").write_text("echo $1 spoiled\n")
    theirs.worker()
    (call_id,) = submitted(mine, "a")
    until(lambda: "handed_back" in kinds(mine, call_id))
    until(lambda: any("toolcrib trust stamp" in why for why in status(mine)["workers"][0]["refused"]))
    (second,) = submitted(mine, "b")  # It is not taken there any more.
    mine.worker()
    until(lambda: states(mine, [call_id, second]) == {"done"})
    assert mine.run("calls", "wait", call_id).stdout.strip() == "a stamped"
    assert kinds(mine, call_id) == ["submitted", "claimed", "handed_back", "claimed", "done"]
    assert kinds(mine, second) == ["submitted", "claimed", "done"]
    log = (theirs.root / ".toolcrib/audit/tools.log").read_text()
    assert "TOOL_REFUSED" not in log
    assert "TOOL_WAITS" in log


def test_an_approval_on_one_machine_counts_on_another_that_has_its_key(
    two: tuple[Machine, Machine], tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yml"
    settings.write_text(f"decide_without_terminal: [{{what: [approve], where: ['{two[0].root}']}}]\n")
    for machine in two:
        machine.env["TOOLCRIB_CONFIG"] = str(settings)
        tool = machine.root / ".toolcrib/tools/stamp/tool.yml"
        tool.write_text(f"{STAMP}approval: {{required: true, reason: It is final}}\n")
        machine.trust()
    mine, theirs = two
    (call_id,) = submitted(mine, "a")
    assert mine.run("approvals", "list").returncode == 0
    (theirs.data / "grants-key").write_bytes((mine.data / "grants-key").read_bytes())
    theirs.worker()
    until(lambda: states(mine, [call_id]) == {"waiting"})
    done = mine.run("approvals", "approve", "--last", "--yes")
    assert done.returncode == 0, done
    until(lambda: states(mine, [call_id]) == {"done"})


# --- agents


@pytest.mark.parametrize("times", [1, pytest.param(12, marks=pytest.mark.soak)])
def test_an_agent_uses_the_tools_of_two_workers(make: Make, times: int) -> None:
    first, second = make("a"), make("b")
    first.worker("--app", "joinery:cuts")
    second.worker("--app", "joinery:turns")
    for number in range(times):
        done = first.run("runs", "run", "joiner", f"oak{number}")
        assert (done.returncode, done.stdout.strip()) == (0, f"Ready: oak{number} cut turned"), done.stderr
    timeline = json.loads(first.run("runs", "show", "--last", "--json").stdout)
    steps = timeline["iterations"]
    assert [call["state"] for step in steps for call in step["calls"]] == ["done", "done"]


def test_a_tool_that_nobody_ever_had_refuses_the_run_at_its_start(make: Make) -> None:
    machine = make("a")
    agent = machine.root / ".toolcrib/agents/joiner.yml"
    agent.write_text(agent.read_text().replace("[cut, turn]", "[cut, tunr]"))
    machine.trust()
    worker = machine.worker("--app", "joinery:both")
    done = machine.run("runs", "run", "joiner", "oak")
    assert done.returncode == 3
    assert "there is no tool named 'tunr'" in done.stderr
    assert "Did you mean turn?" in done.stderr
    assert json.loads(machine.run("runs", "list", "--json").stdout)["runs"] == []
    worker.terminate()
    assert worker.wait() == 0


def test_a_tool_that_nobody_serves_now_is_waited_for_and_the_model_is_told_nothing(make: Make) -> None:
    machine = make("a")
    worker = machine.worker("--app", "joinery:both")
    worker.terminate()
    assert worker.wait() == 0
    machine.worker("--app", "joinery:cuts")
    run_id = machine.run("runs", "run", "joiner", "oak", "--detach").stdout.strip()

    def shown() -> Any:
        steps = json.loads(machine.run("runs", "show", run_id, "--json").stdout)["iterations"]
        return [(call["name"], call["state"], call.get("served")) for step in steps for call in step["calls"]]

    until(lambda: shown() == [("cut", "done", None), ("turn", "ready", False)])
    assert "turn" in machine.run("runs", "show", run_id).stdout
    assert "no worker has this tool" in machine.run("runs", "show", run_id).stdout
    listed = machine.run("agents", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    alarm = machine.run("status")
    assert alarm.returncode == 1
    assert "no worker has turn" in alarm.stderr
    machine.worker("--app", "joinery:turns")
    done = machine.run("runs", "wait", run_id)
    assert done.stdout.strip() == "Ready: oak cut turned"
