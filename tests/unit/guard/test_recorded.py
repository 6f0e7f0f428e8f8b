"""Calls made once: the first call of a key runs, the others get its result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.databases import Address
from tests.guarded import Wall, state
from toolcrib.errors import IdempotencyConflict, InvalidInput, RateLimited
from toolcrib.guard.idempotency import RecordedCalls
from toolcrib.state import this_process

CALL: dict[str, Any] = {"tool": "pay", "caller": "a", "arguments": b'{"n":1}'}


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def calls(address: Address, wall: Wall) -> RecordedCalls:
    return RecordedCalls(state(address), wall)


def conflict(calls: RecordedCalls, key: str = "k", **more: Any) -> IdempotencyConflict:
    with pytest.raises(IdempotencyConflict) as caught:
        calls.begin(key, **{**CALL, **more})
    return caught.value


def test_the_first_call_runs_and_the_others_get_its_result(calls: RecordedCalls, address: Address) -> None:
    assert calls.begin("k", **CALL) is None
    assert calls.finish("k", "a", b'{"status":"ok"}')
    assert calls.begin("k", **CALL) == b'{"status":"ok"}'
    assert RecordedCalls(state(address), Wall()).begin("k", **CALL) == b'{"status":"ok"}'


def test_keys_are_each_callers_own(calls: RecordedCalls) -> None:
    assert calls.begin("k", **CALL) is None
    assert calls.begin("k", **{**CALL, "caller": "b"}) is None
    calls.finish("k", "b", b"of b")
    calls.finish("k", "a", b"of a")
    assert calls.begin("k", **CALL) == b"of a"


@pytest.mark.parametrize("more", [{"tool": "other"}, {"arguments": b'{"n":2}'}])
def test_a_key_of_another_call_is_a_conflict(calls: RecordedCalls, more: dict[str, Any]) -> None:
    calls.begin("k", **CALL)
    for _ in range(2):
        error = conflict(calls, **more)
        assert not error.retryable
        assert "used for another call" in error.message
        calls.finish("k", "a", b"1")


def test_while_the_first_runs_the_second_is_told_so(calls: RecordedCalls) -> None:
    calls.begin("k", **CALL)
    error = conflict(calls)
    assert error.retryable
    assert error.details["running"] is True


async def test_the_second_holds_until_the_first_has_ended(calls: RecordedCalls) -> None:
    calls.begin("k", **CALL)
    held = [asyncio.create_task(calls.wait("k", **CALL)) for _ in range(3)]
    await asyncio.sleep(0)
    calls.finish("k", "a", b"1")
    assert await asyncio.gather(*held) == [b"1"] * 3


async def test_one_of_those_who_hold_runs_when_the_first_never_did(calls: RecordedCalls) -> None:
    calls.begin("k", **CALL)
    held = [asyncio.create_task(calls.wait("k", timeout_s=60, **CALL)) for _ in range(3)]
    await asyncio.sleep(0)
    calls.abandon("k", "a")
    done, waiting = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [None]
    calls.finish("k", "a", b"1")
    assert await asyncio.gather(*waiting) == [b"1"] * 2


async def test_the_time_to_hold_may_be_up(calls: RecordedCalls) -> None:
    calls.begin("k", **CALL)
    for timeout_s in (0, 0.01):
        with pytest.raises(IdempotencyConflict) as caught:
            await calls.wait("k", timeout_s=timeout_s, **CALL)
        assert caught.value.retryable


def _die(address: Address) -> None:
    boot, space, pid, started = this_process().split("/")
    with state(address).write() as tx:
        tx.run("UPDATE recorded SET holder = ?", f"0.0 {boot}/{space}/{pid}/{int(started) - 1}")


def test_a_call_whose_process_died_is_not_repeated_but_told(calls: RecordedCalls, address: Address) -> None:
    calls.begin("k", **CALL)
    _die(address)
    error = conflict(calls)
    assert error.details["outcome"] == "unknown"
    assert not error.retryable


def test_a_call_that_may_be_repeated_is_taken_over(calls: RecordedCalls, address: Address) -> None:
    calls.begin("k", **CALL)
    _die(address)
    other = RecordedCalls(state(address), Wall())
    assert other.begin("k", repeatable=True, **CALL) is None
    assert not calls.finish("k", "a", b"late")
    assert other.finish("k", "a", b"1")
    assert calls.begin("k", **CALL) == b"1"


async def test_who_holds_hears_that_the_process_died(calls: RecordedCalls, address: Address) -> None:
    calls.begin("k", **CALL)
    held = asyncio.create_task(calls.wait("k", timeout_s=60, **CALL))
    await asyncio.sleep(0)
    _die(address)
    with pytest.raises(IdempotencyConflict, match="outcome is unknown"):
        await held


def test_nobody_ends_a_call_that_another_began(calls: RecordedCalls, address: Address) -> None:
    calls.begin("k", **CALL)
    other = RecordedCalls(state(address))
    other.abandon("k", "a")
    assert not other.finish("k", "a", b"forged")
    assert conflict(calls).retryable
    assert calls.finish("k", "a", b"1")
    assert not calls.finish("k", "a", b"2")
    assert calls.begin("k", **CALL) == b"1"


def test_results_are_forgotten_after_their_time(calls: RecordedCalls, wall: Wall) -> None:
    calls.begin("k", **CALL)
    wall.now += 100_000
    assert conflict(calls).retryable
    calls.finish("k", "a", b"1")
    wall.now += 86_399
    assert calls.begin("k", **CALL) == b"1"
    wall.now += 1
    assert calls.begin("k", **CALL) is None


def test_a_result_too_long_to_keep_is_not_run_again(address: Address) -> None:
    calls = RecordedCalls(state(address), max_bytes=10)
    calls.begin("k", **CALL)
    calls.finish("k", "a", b"x" * 11)
    error = conflict(calls)
    assert "11 bytes" in error.message
    assert error.details["outcome"] == "done"
    assert not error.retryable


def test_what_is_kept_is_bounded(address: Address, wall: Wall) -> None:
    calls = RecordedCalls(state(address), wall, bytes_in_all=100, per_caller=5)
    for number in range(5):
        calls.begin(f"k{number}", **CALL)
        wall.now += 1
        calls.finish(f"k{number}", "a", b"x" * 40)
    with pytest.raises(RateLimited, match="5 idempotency keys"):
        calls.begin("k5", **CALL)
    assert calls.begin("k5", **{**CALL, "caller": "b"}) is None
    calls.sweep()
    assert conflict(calls, "k0").details["outcome"] == "done"
    assert calls.begin("k4", **CALL) == b"x" * 40


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "\x1b[2J", "\x00", "\ud800"])
def test_a_key_is_a_short_plain_text(calls: RecordedCalls, key: str) -> None:
    with pytest.raises(InvalidInput, match="1 to 255 printable"):
        calls.begin(key, **CALL)
