"""The steps of workflows: which of them are over, which begin now, and the result of the last one.

All steps that are ready begin together, and the next ones when these have ended. What is over is read from
the rows of the run each time, so a worker that dies has lost nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any

from toolcrib.errors import InvalidInput, StateUnavailable, ToolcribError, ToolFailed
from toolcrib.executors.composite.executor import Plan
from toolcrib.runs.agents import PrepareCall
from toolcrib.runs.sessions import (
    ClaimedRun,
    ModelStep,
    NewUse,
    RunDraft,
    RunTransitions,
    Usage,
    UseEnd,
    use_ends,
)
from toolcrib.runs.workflows.workflow import Workflow, WorkflowSet
from toolcrib.schema import ArgumentCheck
from toolcrib.template import LOOP_NAMES, MISSING, STEPS_NAME, Values, render_value

WORKFLOW_PROVIDER = "workflow"
"""The provider of runs that are workflows, so that workers find them."""
_MAX_ITEMS = 1_000
_NO_MESSAGE = b'{"parts":[],"kind":"response"}'

Seen = dict[str, dict[str, Any]]
"""The steps that are over, by id, as templates see them."""
Loops = dict[str, dict[str, Any]]
"""What a step begins, by the id of each call or run, with the names that only its templates see."""


class WorkflowSteps:
    """Continues workflows in this process. `prepare` checks the call of a tool."""

    def __init__(self, runs: RunTransitions, prepare: PrepareCall, worker: str) -> None:
        self._runs, self._worker = runs, worker
        self._prepare = prepare

    async def advance(self, claim: ClaimedRun) -> None:
        """Begin every step that is ready; if none is left, store the result."""
        # A step of many items takes a second, and this event loop may serve clients too.
        await asyncio.to_thread(self._advance, claim)

    def _advance(self, claim: ClaimedRun) -> None:
        if not claim.run.worker:
            self._runs.begin(claim, self._worker)
        began = perf_counter()
        try:
            parts = WorkflowSet.of(claim.definition)
            inputs = json.loads(claim.run.prompt)
            seen, ready = _progress(parts.workflow, inputs, self._ends(claim, parts.workflow))
            uses = [use for plan, loops in ready for use in self._uses(claim, plan, loops, (inputs, seen))]
            step = ModelStep(_NO_MESSAGE, WORKFLOW_PROVIDER, Usage(), claim.taken_at, perf_counter() - began)
            if not uses and len(seen) < len(parts.workflow.plans):
                raise ToolFailed(f"the steps of {parts.workflow.name} wait for each other")
            if uses:
                self._runs.step(claim, step, uses)
            else:
                answer = json.dumps(_value(parts.workflow, inputs, seen), ensure_ascii=False)
                self._runs.finish(claim, step, answer)
        except StateUnavailable:
            raise
        except ToolcribError as error:
            self._runs.fail(claim, error)

    def _ends(self, claim: ClaimedRun, workflow: Workflow) -> dict[str, UseEnd]:
        """Return how what this run has begun has ended, by the id of the step, or by `ID[INDEX]`.

        What failed and so ended the run is left out once the run was retried: it begins again.
        """
        store = self._runs.store
        # A retry replaces later iterations: what they had begun is begun again.
        live = [one.number for one in store.iterations(claim.run.id) if one.live]
        retried = store.events.retried_after(claim.run.id)
        ending = {plan.step.id for plan in workflow.plans if plan.step.on_error == "fail"}
        with store.database.read() as tx:
            return {
                end.use_id: end
                for number in live
                for end in use_ends(tx, claim.run.id, number)
                if end.error is None or number > retried or end.use_id.partition("[")[0] not in ending
            }

    def _uses(
        self, claim: ClaimedRun, plan: Plan, loops: Loops, known: tuple[Mapping[str, Any], Seen]
    ) -> Iterator[NewUse]:
        """Yield what a step begins: one call or run, or one for each item."""
        kind, _, name = plan.step.tool.partition(":")
        for use_id, loop in loops.items():
            try:
                given = render_value(plan.args, _values(*known, **loop))
                if kind == "tool":
                    yield NewUse(use_id, name, json.dumps(given), call=self._prepare(name, given, claim))
                else:
                    child = _child(claim, plan.step.tool, given)
                    yield NewUse(use_id, name, json.dumps(given), child=child)
            except ToolcribError as error:
                yield NewUse(use_id, name, "{}", answer=json.dumps(error.as_dict()))


def _progress(
    workflow: Workflow, inputs: Mapping[str, Any], ends: Mapping[str, UseEnd]
) -> tuple[Seen, list[tuple[Plan, Loops]]]:
    """Return the steps that are over, and those to begin now.

    Raises the error of a step that ends the workflow.
    """
    seen: Seen = {}
    ready: dict[str, tuple[Plan, Loops]] = {}
    # A step that is skipped may let others begin, so all are looked at until nothing changes.
    changed = True
    while changed:
        changed = False
        for plan in workflow.plans:
            step = plan.step.id
            if step in seen or step in ready or not plan.needs <= seen.keys():
                continue
            changed = True
            values = _values(inputs, seen)
            if not all(test(render_value(value, values)) for value, test in plan.when):
                seen[step] = {"status": "skipped"}
                continue
            loops = _loops(plan, values)
            if missing := {key: loop for key, loop in loops.items() if key not in ends}:
                ready[step] = plan, missing
            else:
                seen[step] = _over(plan, workflow, [ends[key] for key in loops])
    return seen, list(ready.values())


def _over(plan: Plan, workflow: Workflow, ends: list[UseEnd]) -> dict[str, Any]:
    """Return a step that has ended, as templates see it. Raises the error that ends the workflow."""
    step = plan.step
    failed = next((end.error for end in ends if end.error is not None), None)
    if failed is not None and step.on_error == "fail":
        raise ToolFailed(
            f"step {step.id} of {workflow.name} failed: {failed.message}",
            hint=failed.hint,
            details={"step": step.id, "code": failed.code},
        )
    # The answer of a workflow is JSON, that of an agent a plain text.
    is_json = step.tool.startswith("workflow:")
    values = [step.default if end.error else json.loads(end.value) if is_json else end.value for end in ends]
    if plan.foreach is not None:
        return {"status": "ok", "value": values}
    if failed is None:
        return {"status": "ok", "value": values[0]}
    found = {"status": "error", "error": {"code": failed.code, "message": failed.message}}
    return {**found, "value": step.default} if step.on_error == "default" else found


def _loops(plan: Plan, values: Values) -> Loops:
    if plan.foreach is None:
        return {plan.step.id: {}}
    items = render_value(plan.foreach, values)
    if not isinstance(items, list) or len(items) > _MAX_ITEMS:
        what = f"a list of {len(items):,} items" if isinstance(items, list) else "no list"
        raise ToolFailed(f"foreach of step {plan.step.id} gives {what}; it takes at most {_MAX_ITEMS:,}")
    pairs = enumerate(items)
    return {
        f"{plan.step.id}[{index}]": dict(zip(LOOP_NAMES, (item, index), strict=True)) for index, item in pairs
    }


def _child(claim: ClaimedRun, callee: str, given: dict[str, Any]) -> RunDraft:
    """Return the run of an agent, or of a workflow whose inputs are checked."""
    run, parts = claim.run, WorkflowSet.of(claim.definition)
    kind, _, name = callee.partition(":")
    more = json.loads(run.variables), run.caller, claim.identity, claim.streams
    if kind == "agent":
        definition, provider = parts.agents[name]
        if (prompt := given.get("prompt")) is None:
            raise InvalidInput(f"there is no prompt for {name}: what it refers to was not given")
        text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
        return RunDraft(name, definition, provider, text, *more)
    below = parts.below(name)
    inputs = ArgumentCheck(below.workflow.inputs).check(given)
    return RunDraft(f"workflow:{name}", below.definition, WORKFLOW_PROVIDER, json.dumps(inputs), *more)


def _values(inputs: Mapping[str, Any], seen: Seen, **loop: Any) -> Values:
    return Values({**inputs, STEPS_NAME: seen, **loop})


def _value(workflow: Workflow, inputs: Mapping[str, Any], seen: Seen) -> Any:
    if workflow.output is not None:
        value = render_value(workflow.output, _values(inputs, seen))
        return None if value is MISSING else value
    return seen[workflow.plans[-1].step.id].get("value")
