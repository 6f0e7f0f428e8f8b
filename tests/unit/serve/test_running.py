"""The calls of one server: what is kept of them, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message

from toolcrib.core.context import Context
from toolcrib.errors import Cancelled, RateLimited, StateUnavailable, ToolFailed
from toolcrib.runs.history import CallAttempt, CallChange
from toolcrib.serve.auth import Client
from toolcrib.serve.rest.calls.routes import show_call
from toolcrib.serve.rest.running import OpenCall, ServerCalls
from toolcrib.spec import Call, CallEvent, Result

PAGE = Client("page")
NOT_STORED: Any = SimpleNamespace()
"""The store of these calls: all of them stay in the server."""


class Hour:
    """A clock that shows what it was set to."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def answer(call: Call) -> Result:
    return Result("ok", call.arguments)


def awaitable(value: Any) -> Callable[..., Any]:
    async def given(*_: Any, **__: Any) -> Any:
        return value

    return given


async def never(call: Call) -> Result:
    await asyncio.Event().wait()
    raise AssertionError


async def staying() -> Message:
    """Receive nothing: the client is there."""
    await asyncio.Event().wait()
    raise AssertionError


async def made(table: ServerCalls, value: str = "x") -> OpenCall:
    """A call that somebody may ask for after its end, which it has reached."""
    call = table.start(Context("echo", value), PAGE)
    call.kept = True
    await table.settle(call, staying)
    assert call.result is not None
    return call


async def test_a_call_is_kept_for_an_hour_after_its_end() -> None:
    clock = Hour()
    table = ServerCalls(answer, NOT_STORED, clock)
    call = await made(table)
    clock.now += 3_599
    assert table.find(call.id, PAGE) is call
    clock.now += 2
    assert table.list(PAGE) == []
    assert table.find(call.id, PAGE) is None


async def test_an_awaited_call_is_listed_after_its_end() -> None:
    table = ServerCalls(answer, NOT_STORED)
    call = table.start(Context("echo", "x"), PAGE)
    await table.settle(call, staying)
    assert table.list(PAGE) == [call]


async def test_the_oldest_are_forgotten_beyond_a_number_and_beyond_a_size() -> None:
    table = ServerCalls(answer, NOT_STORED)
    calls = [await made(table) for _ in range(1_005)]
    assert {call.id for call in table.list(PAGE)} == {call.id for call in calls[5:]}
    large = [await made(table, "x" * 30_000_000) for _ in range(3)]
    assert set(table.list(PAGE)) == set(large[1:])


async def test_beyond_a_number_of_running_calls_more_are_refused_until_one_ends() -> None:
    table = ServerCalls(never, NOT_STORED)
    calls = [table.start(Context("wait", "x"), PAGE) for _ in range(1_000)]
    with pytest.raises(RateLimited) as refused:
        table.start(Context("wait", "x"), PAGE)
    assert refused.value.details["retryAfterS"] > 0
    calls.append(table.start(Context("wait", "x"), Client("token:other")))
    await table.cancel(calls[0])
    table.start(Context("wait", "x"), PAGE)
    await table.close()
    assert {call.status for call in calls} == {"cancelled"}


def test_events_beyond_the_limits_are_dropped_and_counted() -> None:
    call = OpenCall(Context("pour", "x"), PAGE, 0.0)
    for number in range(10):
        text = str(number) * 50_000
        call.add(CallEvent("chunk", call.id, "pour", "page", text=text, message=text))
    kept = list(call.after(0))
    assert [number for number, _, _ in kept] == [9, 10]
    assert [missed for _, _, missed in kept] == [8, 0]
    assert [missed for _, _, missed in call.after(6)] == [2, 0]
    assert list(call.after(10)) == []


async def test_a_call_that_ends_while_its_history_is_read_is_not_shown_as_ended_with_it() -> None:
    call = OpenCall(Context("echo", "x"), PAGE, 0.0)
    call.is_durable = True

    def history(_: str) -> dict[str, Any]:
        call.end(Result("error", error=ToolFailed("broken")), 2.0)
        attempt, change = CallAttempt(1, "worker", 1.0, None, None, None), CallChange(1, 1.0, "claimed", "")
        return {"attempts": [attempt.as_dict()], "changes": [change.as_dict()]}

    table = ServerCalls(answer, cast("Any", SimpleNamespace(stored=SimpleNamespace(history=history))))
    services = SimpleNamespace(calls=SimpleNamespace(look=awaitable(call), history=table.history))
    request: Any = SimpleNamespace(services=services, path={"callId": call.id}, client=PAGE)
    shown = (await show_call(request)).value
    assert [one.ending for one in shown.history.attempts] == [None]
    assert (shown.status, shown.ended_at, shown.result) == ("running", None, None)


class Store:
    """A store of one call, whose database is away for as many questions as said."""

    def __init__(self, away: int = 0, state: str = "done") -> None:
        self.away, self.state = away, state
        self.submitted = 0

    def stored(self) -> Any:
        """Return the call; raises while the database is away."""
        self.away -= 1
        if self.away >= 0:
            raise StateUnavailable("the database is away", retryable=True)
        outcome = Result("ok", "x") if self.state == "done" else Result("error", error=Cancelled())
        return SimpleNamespace(outcome=lambda: outcome)

    def store(self, call: Call, **_: Any) -> str:
        self.submitted += 1
        assert call.call_id is not None
        return call.call_id

    async def wait(self, _: str) -> Any:
        if self.state == "running":
            await asyncio.Event().wait()
        return self.stored()

    def find(self, _: str) -> Any:
        return self.stored()

    def cancel(self, _: str) -> None:
        self.stored()
        self.state = "cancelled"

    def adopt(self, *_: Any) -> Any:
        return SimpleNamespace(is_stored=awaitable(False), end=awaitable(None))


async def test_a_call_whose_database_was_away_at_its_end_is_shown_as_ended() -> None:
    table = ServerCalls(never, cast("Any", Store(away=1)))
    call = await table.submit(Context("echo", "x"), PAGE)
    await table.settle(call, staying, 30)
    assert call.status == "ok"
    assert table.find(call.id, PAGE) is call


async def test_a_call_that_cannot_be_cancelled_now_can_be_cancelled_later() -> None:
    store = Store(away=1, state="running")
    table = ServerCalls(never, cast("Any", store))
    call = await table.submit(Context("echo", "x"), PAGE)
    statuses = []
    for _ in range(2):
        await table.cancel(call)
        statuses.append(call.status)
    assert statuses == ["running", "cancelled"]


async def test_calls_that_wait_in_the_store_take_no_place_of_those_that_run_here() -> None:
    table = ServerCalls(answer, cast("Any", Store(state="running")))
    calls = [await table.submit(Context("echo", "x"), PAGE) for _ in range(1_001)]
    assert (await made(table)).status == "ok"
    assert calls[-1].status == "running"
    assert len([one for one in table.list(PAGE) if one.is_durable]) == 1_000, "the last one is not followed"
    await table.close()


async def test_a_long_call_that_cannot_be_stored_is_kept_here() -> None:
    go_on = asyncio.Event()

    async def long(call: Call) -> Result:
        await go_on.wait()
        return await answer(call)

    table = ServerCalls(long, cast("Any", Store(away=1)))
    call = table.start(Context("echo", "x"), PAGE)
    await table.settle(call, staying, 0)
    await table.keep(call)
    go_on.set()
    await table.settle(call, staying)
    assert await table.look(call.id, PAGE) is call
    assert call.status == "ok"
