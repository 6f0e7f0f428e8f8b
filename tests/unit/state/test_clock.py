"""The time by which things expire never goes back, whatever is done to the machine's clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolcrib.errors import InvalidToken
from toolcrib.guard import Tokens
from toolcrib.state import ForwardClock, Vault


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.up = 500.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds

    def clock(self, data: Path) -> ForwardClock:
        return ForwardClock(data, wall=lambda: self.wall, running=lambda: self.up)


def test_time_passes_as_the_machine_runs_after_its_clock_was_set_back(tmp_path: Path) -> None:
    machine = Machine()
    clock = machine.clock(tmp_path)
    assert clock() == 1_000_000
    machine.wall -= 86_400
    assert clock() == 1_000_000
    machine.pass_time(30)
    assert clock() == 1_000_030
    machine.wall = 2_000_000
    assert clock() == 2_000_000


def test_other_processes_and_later_ones_continue_from_it(tmp_path: Path) -> None:
    machine = Machine()
    machine.clock(tmp_path)()
    machine.pass_time(600)
    machine.wall -= 86_400
    assert machine.clock(tmp_path)() == 1_000_600
    machine.up = 1.0  # Restarted: the uptime no longer says anything.
    file = tmp_path / "latest-time"
    file.write_text(json.dumps({**json.loads(file.read_text()), "boot": "another"}))
    assert machine.clock(tmp_path)() == 1_000_600


@pytest.mark.parametrize("left", ["", "[]", '{"time": "x"}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, left: str) -> None:
    (tmp_path / "latest-time").write_text(left)
    assert Machine().clock(tmp_path)() == 1_000_000
    assert json.loads((tmp_path / "latest-time").read_text())["time"] == 1_000_000


def test_an_expired_token_stays_expired_when_the_clock_goes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    clock = ForwardClock(data)
    vault = Vault(tmp_path / "project", data)
    text = Tokens(vault).create("ci", ["invoke"], owner="ann", expires=clock() + 3_600)
    Tokens(vault).verify(text)
    # Another process has seen a later time; then the clock was set back to now.
    ForwardClock(data, wall=lambda: clock() + 7_200)()
    with pytest.raises(InvalidToken, match="expired"):
        Tokens(vault).verify(text)
