"""Waiting for a decision: told at once, told what other processes do, never left waiting for nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.databases import Address
from tests.guarded import Wall, approvals, ask, state
from toolcrib.errors import NotFoundError
from toolcrib.guard import Approval
from toolcrib.guard.approvals.approvals import Approvals
from toolcrib.state import watch

DAY = 86_400.0


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def service(address: Address, wall: Wall) -> Approvals:
    return approvals(address, clock=wall)


def waits(service: Approvals) -> Approval:
    found = service.seek(ask())
    assert isinstance(found, Approval)
    return found


async def test_who_waits_is_told_at_once(service: Approvals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_RECHECK_S", 3_600.0)  # So that nothing is found by looking again.
    asked = waits(service)
    waiting = [asyncio.create_task(service.wait(asked.id)) for _ in range(3)]
    await asyncio.sleep(0)
    service.approve(asked.id, "ada")
    assert [one.status for one in await asyncio.gather(*waiting)] == ["approved"] * 3
    assert (await service.wait(asked.id)).status == "approved"


async def test_the_time_to_wait_may_be_up(service: Approvals) -> None:
    asked = waits(service)
    assert (await service.wait(asked.id, 0.01)).status == "pending"
    assert (await service.wait(asked.id, 0)).status == "pending"


async def test_nobody_waits_for_what_is_not_there(service: Approvals, address: Address) -> None:
    for timeout_s in (0, None):
        with pytest.raises(NotFoundError):
            await service.wait("nothing", timeout_s)
    asked = waits(service)
    waiting = asyncio.create_task(service.wait(asked.id))
    await asyncio.sleep(0)
    with state(address).write() as tx:
        tx.run("DELETE FROM approvals")
    with pytest.raises(NotFoundError):
        await waiting


async def test_who_waits_for_what_another_process_decides_hears_of_it(address: Address) -> None:
    service, other = approvals(address), approvals(address)
    asked = waits(service)
    waiting = asyncio.create_task(service.wait(asked.id, 100))
    await asyncio.sleep(0)
    other.deny(asked.id, "ada")
    assert (await waiting).status == "denied"


@pytest.mark.parametrize("end", ["void", "expired"])
async def test_who_waits_hears_that_it_is_over(service: Approvals, wall: Wall, end: str) -> None:
    asked = waits(service)
    waiting = asyncio.create_task(service.wait(asked.id, 100))
    await asyncio.sleep(0)
    if end == "void":
        service.void(asked.id)
    else:
        wall.now += 8 * DAY
    assert (await waiting).status == end


async def test_who_stops_waiting_leaves_nothing_behind(service: Approvals) -> None:
    asked = waits(service)
    waiting = [asyncio.create_task(service.wait(asked.id)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    service.approve(asked.id, "ada")


async def test_who_waits_is_told_of_a_broken_database(service: Approvals, address: Address) -> None:
    asked = waits(service)
    waiting = asyncio.create_task(service.wait(asked.id))
    await asyncio.sleep(0)
    with state(address).write() as tx:
        tx.run("DROP TABLE approvals")
    with pytest.raises(Exception, match=r"no such table|does not exist"):
        await waiting
