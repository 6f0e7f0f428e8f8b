"""Kind `composite`: other tools, called through the one call path, one after the other or side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from toolcrib.errors import ApprovalRequired, ToolcribError, ToolFailed
from toolcrib.schema import SchemaCheck
from toolcrib.spec import Call, CallContext, CompositeExec, Invoke, Outcome, Step, Tool
from toolcrib.spec.record import record
from toolcrib.template import (
    LOOP_NAMES,
    MISSING,
    STEPS_NAME,
    Namespaces,
    Template,
    Values,
    parse,
    render_value,
    step_namespaces,
    steps_used,
)

MOST_DEEP = 8
"""Depth of composite tools that call each other, the outermost included."""
_MAX_ITEMS = 10_000
_MAX_REPORTED = 100

_stack: ContextVar[tuple[str, ...]] = ContextVar("toolcrib.composite", default=())
"""The composite tools that run here, the outermost first."""


@record
class Plan:
    """One step, its templates parsed."""

    step: Step
    needs: frozenset[str]
    """Steps that must be finished first."""
    args: Template
    foreach: Template | None
    when: tuple[tuple[Template, Callable[[Any], bool]], ...]


def plans(tool: Tool) -> list[Plan]:
    """The steps of a composite tool in the order of its manifest. Raises ManifestError for a bad template."""
    assert isinstance(tool.config, CompositeExec)
    return [_plan(tool, step) for step in tool.config.steps]


def _plan(tool: Tool, step: Step) -> Plan:
    names, inner = step_namespaces(tool), step_namespaces(tool, loop=step.foreach is not None)
    needs = {*step.needs, *steps_used(step.args, inner), *_used(names, step.foreach)}
    for one in step.when:
        needs |= _used(names, one.value)
    return Plan(
        step,
        frozenset(needs),
        parse(step.args, inner),
        None if step.foreach is None else parse(step.foreach, names),
        tuple((parse(one.value, names), _test(one.how, one.other)) for one in step.when),
    )


def _used(names: Namespaces, value: Any) -> set[str]:
    return set(steps_used(value, names))


def _test(how: str, other: Any) -> Callable[[Any], bool]:
    """Return the test of a value, which is MISSING if absent. Equality is that of JSON Schema (1 is 1.0)."""
    if how == "truth":
        return lambda value: value is not MISSING and bool(value)
    check = SchemaCheck(other if how == "schema" else {"const": other})
    if how == "is_not":
        return lambda value: value is MISSING or not check.is_valid(value)
    return lambda value: value is not MISSING and check.is_valid(value)


@dataclass(slots=True)
class _Progress:
    """The results of the steps of one run, for templates and for the report."""

    call: Call
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Finished steps by id, as templates see them."""
    report: dict[str, dict[str, Any]] = field(default_factory=dict)
    failure: tuple[Step, ToolcribError] | None = None

    def values(self, **loop: Any) -> Values:
        assert isinstance(self.call.arguments, Mapping)
        return Values({**self.call.arguments, STEPS_NAME: self.seen, **loop})


class CompositeExecutor:
    """Runs the steps of one tool. `invoke` is the call path; `prepare` refuses a call that must fail."""

    def __init__(self, tool: Tool, invoke: Invoke, prepare: Callable[[Call], None]) -> None:
        assert isinstance(tool.config, CompositeExec)
        self._tool = tool
        self._invoke = invoke
        self._prepare = prepare
        self._plans = plans(tool)
        output = tool.config.output
        self._output = None if output is None else parse(output, step_namespaces(tool))

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Run all steps. A failed step fails the call unless its `on_error` allows it.

        After a failure, running steps finish and no further one starts. `details["steps"]` reports each step.
        """
        stack = _stack.get()
        if self._tool.name in stack or len(stack) >= MOST_DEEP:
            way = " → ".join((*stack, self._tool.name))
            raise ToolFailed(
                f"composite tools call each other in a circle, or more than {MOST_DEEP} deep: {way}"
            )
        self._prepare(call)
        state = _Progress(call)
        # A context variable goes along into every task and thread of the steps, so a circle is seen however
        # it runs.
        token = _stack.set((*stack, self._tool.name))
        try:
            await self._all(state, ctx)
        finally:
            _stack.reset(token)
        details = {"steps": self._report(state)}
        if state.failure is not None:
            raise _failed(*state.failure, details)
        value = self._value(state)
        return Outcome(None if value is MISSING else value, details=details)

    def _value(self, state: _Progress) -> Any:
        if self._output is not None:
            return render_value(self._output, state.values())
        return state.seen[self._plans[-1].step.id].get("value")

    def _report(self, state: _Progress) -> list[dict[str, Any]]:
        return [
            state.report.get(plan.step.id)
            or {"id": plan.step.id, "tool": plan.step.tool, "status": "not_run"}
            for plan in self._plans
        ]

    async def _all(self, state: _Progress, ctx: CallContext) -> None:
        """Start each step as soon as those that it needs are finished."""
        waiting = list(self._plans)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                ready = [plan for plan in waiting if plan.needs <= state.seen.keys()]
                if state.failure is None:
                    waiting = [plan for plan in waiting if plan not in ready]
                    running |= {asyncio.ensure_future(self._step(plan, state)) for plan in ready}
                if not running:
                    if (
                        waiting and state.failure is None
                    ):  # Lint refuses such a tool; this call must not hang.
                        raise ToolFailed("its steps wait for each other")
                    return
                over, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in over:
                    task.result()
                ctx.progress(len(state.seen), len(self._plans), f"{len(state.seen)} steps are finished")
        finally:
            await _end(running)

    async def _step(self, plan: Plan, state: _Progress) -> None:
        step, started = plan.step, perf_counter()
        report: dict[str, Any] = {"id": step.id, "tool": step.tool}
        seen: dict[str, Any] = {}
        try:
            if not all(test(render_value(value, state.values())) for value, test in plan.when):
                seen["status"] = "skipped"
            elif plan.foreach is None:
                seen["value"] = await self._call(plan, state, {})
                seen["status"] = "ok"
            else:
                seen["value"] = await self._each(plan, state, report)
                seen["status"] = "ok"
        except ToolcribError as error:
            seen.update(status="error", error={"code": error.code, "message": error.message})
            report["error"] = error.as_dict()
            if step.on_error == "default":
                seen["value"] = step.default
            elif step.on_error == "fail" and state.failure is None:
                state.failure = step, error
        report["status"] = seen["status"]
        report["durationMs"] = round((perf_counter() - started) * 1000, 3)
        state.report[step.id] = report
        state.seen[step.id] = seen

    async def _each(self, plan: Plan, state: _Progress, report: dict[str, Any]) -> list[Any]:
        """Call the tool for each item, up to `concurrency` at a time; `on_error` applies to each call."""
        step = plan.step
        assert plan.foreach is not None
        items = render_value(plan.foreach, state.values())
        if not isinstance(items, list) or len(items) > _MAX_ITEMS:
            what = f"a list of {len(items):,} items" if isinstance(items, list) else "no list"
            raise ToolFailed(f"foreach gives {what}; it takes a list of at most {_MAX_ITEMS:,}")
        # By place: the calls end in any order, and the result has the order of the items.
        values: list[Any] = [None] * len(items)
        # Shared by all workers: each takes the next item when it is free.
        places = iter(range(len(items)))
        failed: list[tuple[int, ToolcribError]] = []

        async def work() -> None:
            for place in places:
                if failed and step.on_error == "fail":
                    return
                loop = dict(zip(LOOP_NAMES, (items[place], place), strict=True))
                try:
                    values[place] = await self._call(plan, state, loop)
                except ToolcribError as error:
                    failed.append((place, error))
                    values[place] = step.default

        workers = {asyncio.ensure_future(work()) for _ in range(min(step.concurrency, len(items)))}
        try:
            for worker in workers:
                await worker
        finally:
            await _end(workers)
        report["items"] = len(items)
        if failed:
            report["failed"] = [
                {"index": place, "code": error.code, "message": error.message}
                for place, error in failed[:_MAX_REPORTED]
            ]
            if step.on_error == "fail":
                raise failed[0][1]
        return values

    async def _call(self, plan: Plan, state: _Progress, loop: dict[str, Any]) -> Any:
        outer = state.call
        call = outer.inner(plan.step.tool, render_value(plan.args, state.values(**loop)))
        # Who approved the whole was shown its steps.
        call.approved_by, call.approval_channel = outer.approved_by, outer.approval_channel
        # An answer in a later round would make the steps before it again.
        call.client = None
        result = await self._invoke(call)
        return result.unwrap()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel the tasks and wait for them."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _failed(step: Step, error: ToolcribError, details: dict[str, Any]) -> ToolcribError:
    """Return the error of the whole tool. A pending approval stays one: a person may still approve."""
    if isinstance(error, ApprovalRequired):
        # The same error, so that interfaces still show the question and a decision still finds it.
        error.details.update(details, step=step.id)
        return error
    return ToolFailed(
        f"step {step.id} ({step.tool}): {error.message}",
        hint=error.hint,
        details={"step": step.id, "code": error.code, **details},
    )
