"""In-process calls: JSON text in, parsed, checked, function run, value out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from jsonschema_rs import Draft202012Validator

from benchmarks.callers import Callers, Operation, Rows
from benchmarks.peers import Peer
from benchmarks.setting import Missing, Setting
from benchmarks.subjects import (
    ADD_CALL,
    ADD_SCHEMA,
    ADD_VALUE,
    TASK_CALL,
    TASK_INVALID,
    TASK_SCHEMA,
    TASK_VALUE,
    add,
    create_task,
    noop,
)
from benchmarks.table import PEER, Reach, Table

AT_ONCE = 1_000
BARE = "orjson.loads and a direct call"
CHECKED = "orjson.loads, jsonschema-rs and a direct call"
TOOLSET = "Toolset.call"
INLINE = "Toolset.call, `def` declared inline"
TYPED = "Toolset.call, schema from annotations, model built"
PROJECT = "Project.invoke, everything on"


def measure(setting: Setting) -> Iterator[Table]:
    """Yield the tables of in-process calls."""
    callers = Callers(setting)
    yield from (table(callers) for table in (_add, _complete, _blocking, _at_once))


def _add(callers: Callers) -> Table:
    loads, validate = orjson.loads, Draft202012Validator(ADD_SCHEMA).validate

    def direct() -> int:
        return add(**loads(ADD_CALL))

    def checked() -> int:
        arguments = loads(ADD_CALL)
        validate(arguments)
        return add(**arguments)

    rows = Rows(callers, "Call `async def add(a, b)`", ADD_VALUE)
    rows.plain(BARE, direct)
    rows.plain(CHECKED, checked)
    rows.row(TOOLSET, lambda: callers.toolset("add", ADD_CALL), [Reach(5), Reach(1, PEER)])
    rows.row(INLINE, lambda: callers.toolset("add_inline", ADD_CALL))
    rows.row(PROJECT, lambda: callers.project("add", ADD_CALL), Reach(25))
    rows.peers(lambda peer: callers.peer(peer, "add_async", ADD_CALL))
    return rows.measure(25)


def _complete(callers: Callers) -> Table:
    loads, validate = orjson.loads, Draft202012Validator(TASK_SCHEMA).validate

    def direct(raw: bytes = TASK_CALL) -> str:
        return create_task(**loads(raw))

    def checked(raw: bytes = TASK_CALL) -> str:
        arguments = loads(raw)
        validate(arguments)
        return create_task(**arguments)

    rows = Rows(callers, "Call with a complete schema", TASK_VALUE)
    rows.plain(BARE, direct)
    rows.plain(CHECKED, checked)
    rows.row(TOOLSET, lambda: callers.toolset("create_task", TASK_CALL), [Reach(5), Reach(1, PEER)])
    rows.row(TYPED, lambda: callers.toolset("create_task_typed", TASK_CALL))
    rows.row(PROJECT, lambda: callers.project("create_task", TASK_CALL))
    rows.peers(lambda peer: callers.peer(peer, "create_task_async", TASK_CALL))
    table = rows.measure(25)

    def awaited(make: Callable[[bytes], Operation]) -> Callable[[bytes], None]:
        return lambda raw: callers.once(make(raw)).unwrap()

    def of_peer(peer: Peer) -> Callable[[bytes], None]:
        return lambda raw: _raise_refusal(callers, peer, raw)

    attempts: dict[str, Callable[[bytes], Any]] = {
        BARE: direct,
        CHECKED: checked,
        TOOLSET: awaited(lambda raw: callers.toolset("create_task", raw)),
        TYPED: awaited(lambda raw: callers.toolset("create_task_typed", raw)),
        PROJECT: awaited(lambda raw: callers.project("create_task", raw)),
    }
    _judge(table, attempts | {peer.name: of_peer(peer) for peer in callers.peers})
    return table


def _raise_refusal(callers: Callers, peer: Peer, raw: bytes) -> None:
    if peer.refused(callers.once(callers.peer(peer, "create_task_async", raw))):
        raise ValueError("refused")


def _judge(table: Table, attempts: Mapping[str, Callable[[bytes], Any]]) -> None:
    """Tell in each row how many invalid inputs it refuses."""
    for row in table.rows:
        if row.name in attempts and row.seconds:
            row.extra["invalid inputs refused"] = _refused(attempts[row.name])


def _refused(attempt: Callable[[bytes], Any]) -> str:
    """Return how many of the invalid inputs raise; the valid one must not."""
    if _raises(attempt, TASK_CALL):
        return "the valid one"
    count = sum(_raises(attempt, raw) for raw in TASK_INVALID.values())
    return f"{count} of {len(TASK_INVALID)}"


def _raises(attempt: Callable[[bytes], Any], raw: bytes) -> bool:
    try:
        attempt(raw)
    except Missing:
        raise
    except Exception:
        return True
    return False


def _blocking(callers: Callers) -> Table:
    loop, loads = callers.loop, orjson.loads

    async def hop() -> int:
        arguments = loads(ADD_CALL)
        return await loop.run_in_executor(None, lambda: add(**arguments))

    rows = Rows(callers, "Call a blocking `def add(a, b)` from async code", ADD_VALUE)
    rows.row("orjson.loads and run_in_executor", lambda: hop)
    rows.row(TOOLSET, lambda: callers.toolset("add_thread", ADD_CALL))
    rows.peers(lambda peer: callers.peer(peer, "add", ADD_CALL))
    return rows.measure(25)


def _at_once(callers: Callers) -> Table:
    def batch(operation: Operation) -> Operation:
        async def run() -> int:
            await asyncio.gather(*[operation() for _ in range(AT_ONCE)])
            return AT_ONCE

        return run

    async def direct() -> int:
        return await noop(**orjson.loads(b"{}"))

    rows = Rows(callers, f"{AT_ONCE:,} calls at once of a tool that does nothing, the whole batch", AT_ONCE)
    rows.row(BARE, lambda: batch(direct))
    rows.row(TOOLSET, lambda: batch(callers.toolset("noop", b"{}")), Reach(2))
    rows.row(PROJECT, lambda: batch(callers.project("noop", b"{}")))
    rows.peers(lambda peer: batch(callers.peer(peer, "noop", b"{}")))
    return rows.measure(11, times=1)
