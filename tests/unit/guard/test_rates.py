"""Rate limits, with a clock that only moves when the test moves it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.databases import Address
from tests.guarded import Wall, state
from toolcrib.errors import RateLimited
from toolcrib.guard.rates import Rates
from toolcrib.state import SqliteDatabase, boot_id, this_process, uptime


@pytest.fixture
def clock() -> Wall:
    return Wall(1_000.0)


@pytest.fixture
def rates(address: Address, clock: Wall) -> Rates:
    return Rates(state(address), clock)


def wait(call: Callable[[], object]) -> float:
    with pytest.raises(RateLimited) as caught:
        call()
    assert caught.value.retryable
    assert caught.value.status == 429
    return float(caught.value.details["retryAfterS"])


def test_a_tool_without_limits_is_not_counted(tmp_path: Path) -> None:
    Rates(state(tmp_path)).acquire("t").release()
    assert not (tmp_path / "state.db").exists()


def test_calls_a_minute_slide(rates: Rates, clock: Wall) -> None:
    for _ in range(3):
        rates.acquire("t", per_minute=3)
        clock.now += 10
    assert wait(lambda: rates.acquire("t", per_minute=3)) == pytest.approx(30, abs=0.01)
    rates.acquire("other", per_minute=3)
    clock.now += 29.9
    assert wait(lambda: rates.acquire("t", per_minute=3)) == pytest.approx(0.1, abs=0.01)
    clock.now += 0.1
    rates.acquire("t", per_minute=3)
    assert wait(lambda: rates.acquire("t", per_minute=3)) == pytest.approx(10, abs=0.01)


def test_who_waits_as_long_as_told_gets_in(rates: Rates, clock: Wall) -> None:
    for _ in range(50):
        clock.now += 0.137
        try:
            rates.acquire("t", per_minute=7)
        except RateLimited as error:
            clock.now += error.details["retryAfterS"]
            rates.acquire("t", per_minute=7)


def test_a_refused_call_does_not_count(rates: Rates, clock: Wall) -> None:
    rates.acquire("t", per_minute=1)
    for _ in range(5):
        wait(lambda: rates.acquire("t", per_minute=1))
    clock.now += 60
    rates.acquire("t", per_minute=1)


def test_no_call_a_minute_is_none(rates: Rates) -> None:
    assert wait(lambda: rates.acquire("t", per_minute=0)) == pytest.approx(60, abs=0.01)


def test_an_interval_between_calls(rates: Rates, clock: Wall) -> None:
    rates.acquire("t", min_interval_ms=90_000)
    clock.now += 89
    assert wait(lambda: rates.acquire("t", min_interval_ms=90_000)) == pytest.approx(1, abs=0.01)
    clock.now += 1
    rates.acquire("t", min_interval_ms=90_000)


def test_places_are_given_back(rates: Rates) -> None:
    first, second = rates.acquire("t", concurrency=2), rates.acquire("t", concurrency=2)
    assert wait(lambda: rates.acquire("t", concurrency=2)) == pytest.approx(1, abs=0.01)
    rates.acquire("other", concurrency=1)
    first.release()
    first.release()
    with rates.acquire("t", concurrency=2):
        wait(lambda: rates.acquire("t", concurrency=2))
    second.release()
    with rates.acquire("t", concurrency=1):
        wait(lambda: rates.acquire("t", concurrency=1))


def test_a_call_without_a_place_does_not_count_as_one(rates: Rates) -> None:
    with rates.acquire("t", concurrency=1, per_minute=2):
        for _ in range(5):
            assert wait(lambda: rates.acquire("t", concurrency=1, per_minute=2)) == pytest.approx(1, abs=0.01)
    rates.acquire("t", concurrency=1, per_minute=2).release()


def test_what_an_earlier_boot_left_does_not_count(address: Address) -> None:
    rates = Rates(state(address))
    rates.acquire("t", per_minute=1, concurrency=1)
    with state(address).write() as tx:
        tx.run("UPDATE starts SET boot = 'before'")
        tx.run("UPDATE leases SET holder = ?", f"0.0 {this_process().replace(boot_id(), 'before')}")
    rates.acquire("t", per_minute=1, concurrency=1)


@pytest.mark.parametrize("holder", ["dead", "reused", "nonsense"])
def test_the_place_of_a_dead_process_is_free(tmp_path: Path, holder: str) -> None:
    rates = Rates(state(tmp_path))
    rates.acquire("t", concurrency=1)
    boot, space, pid, started = this_process().split("/")
    others = {
        "dead": f"{boot}/{space}/{2**22 + 1}/{started}",
        "reused": f"{boot}/{space}/{pid}/{int(started) - 1}",
        "nonsense": "x",
    }
    with state(tmp_path).write() as tx:
        tx.run("UPDATE leases SET holder = ?", f"{uptime()} {others[holder]}")
    rates.acquire("t", concurrency=1)


def test_a_process_of_another_container_is_taken_to_live_for_an_hour(tmp_path: Path) -> None:
    clock = Wall(0.0)
    rates = Rates(state(tmp_path), clock)
    boot, _, pid, started = this_process().split("/")
    rates.acquire("t", concurrency=1)
    for ago in (0, 3601):
        with state(tmp_path).write() as tx:
            tx.run("UPDATE leases SET holder = ?", f"{uptime() - ago} {boot}/pid:[1]/{pid}/{started}")
        if not ago:
            wait(lambda: rates.acquire("t", concurrency=1))
    rates.acquire("t", concurrency=1)


def test_a_place_whose_release_could_not_be_written_is_freed_by_the_next_call(tmp_path: Path) -> None:
    database = state(tmp_path)
    rates = Rates(database)
    lease = rates.acquire("t", concurrency=1)
    database.close()
    away = tmp_path / "away"
    os.rename(tmp_path / "state.db", away)
    (tmp_path / "state.db").mkdir()
    lease.release()
    (tmp_path / "state.db").rmdir()
    os.rename(away, tmp_path / "state.db")
    rates.acquire("t", concurrency=1)
    assert isinstance(database, SqliteDatabase)
