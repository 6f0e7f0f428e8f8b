"""Registering functions, and what the first look and the first call cost afterwards."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers import registrars
from benchmarks.setting import Setting, reason_of
from benchmarks.subjects import FIVE_CALL, five_parameters
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave
from toolcrib import Toolset

LIMIT = "inspect.signature"
REGISTER = "Toolset.register"
FIRST_NEED = "Toolset: schema, validator and first call, when first needed"

_numbers = itertools.count()


def measure(setting: Setting) -> list[Table]:
    """One table: Toolcrib and the peers."""
    samplers = {LIMIT: _over(_signatures), REGISTER: _over(_register), FIRST_NEED: _first_need}
    rows = [Row(LIMIT), Row(REGISTER, reach=Reach(3.5)), Row(FIRST_NEED, reach=Reach(28))]
    if setting.peers:
        for name, register in registrars().items():
            try:
                register([_new()])
            except Exception as error:
                rows.append(Row(name, peer=True, missing=reason_of(error)))
                continue
            rows.append(Row(name, peer=True))
            samplers[name] = _over(register)
    rows[1].deferred = "the validator is built at the first call"
    table = Table("Register a function of five annotated parameters", "µs", rows, ["Per function."])
    table.take(interleave(samplers, setting.effort(15), times=3 if setting.quick else 30))
    return [table]


def _new() -> Callable[..., Any]:
    return five_parameters(next(_numbers))


def _over(work: Callable[[Sequence[Callable[..., Any]]], Any]) -> Sampler:
    """Sample what is done to functions that nobody has seen before."""

    def sample(times: int) -> float:
        functions = [_new() for _ in range(times)]
        began = time.perf_counter()
        work(functions)
        return time.perf_counter() - began

    return sample


def _signatures(functions: Sequence[Callable[..., Any]]) -> None:
    for function in functions:
        inspect.signature(function)


def _register(functions: Sequence[Callable[..., Any]]) -> None:
    tools = Toolset()
    for function in functions:
        tools.register(function)


def _first_need(times: int) -> float:
    tools = Toolset()
    for _ in range(times):
        tools.register(_new())
    names = tools.names

    async def run() -> float:
        began = time.perf_counter()
        for name in names:
            tools.get(name)
            (await tools.call(name, FIVE_CALL)).unwrap()
        return time.perf_counter() - began

    return asyncio.run(run())
