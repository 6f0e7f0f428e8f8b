"""Kind `composite`: other tools, called through the one call path, one after the other or side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from toolcrib.errors import UsageError
from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind, block_of
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.starter import Answers, Made, Starter
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.spec import Comparison, CompositeExec, Executor, Step, Tool
from toolcrib.template import Values


def _make(answers: Answers) -> Made:
    """Return one step, which passes the arguments on. The permissions are those of the steps' tools."""
    if not answers.runs:
        raise UsageError("a composite tool needs a tool for its first step", hint="--run TOOL")
    args = {name: f"${{{name}}}" for name in answers.arguments}
    steps = [{"id": "first", "tool": answers.runs, "args": args}]
    return Made({"steps": steps, "output": "${steps.first.value}"}, None)


_PLANNED = ("id", "tool", "after", "when", "foreach", "concurrency", "args", "on_error")


def _step(block: dict[str, Any]) -> Step:
    get = block.get
    on_error, when = get("on_error", "fail"), get("when", [])
    has_default = isinstance(on_error, dict)
    return Step(
        block["id"],
        block["tool"],
        get("args") or {},
        tuple(get("needs", ())),
        tuple(_comparison(one) for one in (when if isinstance(when, list) else [when])),
        get("foreach"),
        int(get("concurrency", 4)),
        "default" if has_default else on_error,
        on_error["default"] if has_default else None,
    )


def _comparison(block: Any) -> Comparison:
    if isinstance(block, str):
        return Comparison(block)
    (how,) = block.keys() - {"value"}
    return Comparison(block["value"], how, block[how])


def _write(config: CompositeExec) -> dict[str, Any]:
    steps = [_step_block(step) for step in config.steps]
    return {"steps": steps} if config.output is None else {"steps": steps, "output": config.output}


def _step_block(step: Step) -> dict[str, Any]:
    block = block_of(step)
    block.pop("default", None)
    if step.when:
        block["when"] = [
            one.value if one.how == "truth" else {"value": one.value, one.how: one.other} for one in step.when
        ]
    if step.on_error == "default":
        block["on_error"] = {"default": step.default}
    return block


def _plan(tool: Tool, block: dict[str, Any], values: Values) -> dict[str, Any]:  # noqa: ARG001
    """Describe the steps. Their arguments are known only when the steps before them have run."""
    from toolcrib.executors.composite.executor import plans

    steps: list[dict[str, Any]] = []
    for plan in plans(tool):
        step = {**_step_block(plan.step), "after": sorted(plan.needs), "args": plan.step.args}
        if plan.step.foreach is not None:
            step["concurrency"] = plan.step.concurrency
        else:
            step.pop("concurrency", None)
        steps.append({key: step[key] for key in _PLANNED if key in step})
    return {"steps": steps}


def _executor(tool: Tool, host: Host) -> Executor:
    from toolcrib.executors.composite.executor import CompositeExecutor

    return CompositeExecutor(tool, host.invoke, partial(host.admit, tool))


CONDITION = tuple(
    Misfit(
        ("steps",), f"{bound}Properties", message="a condition is a `value` with `is`, `is_not` or `schema`"
    )
    for bound in ("min", "max")
)
KIND = Kind(
    name="composite",
    config=CompositeExec,
    executor=_executor,
    starter=Starter(_make, runs="Which tool is its first step?"),
    schema=Path(__file__).with_name("schema.json"),
    docs=(
        "each step is a call of its own",
        "the same as the tool of the step: see [Composite tools](composite.md#permissions)",
    ),
    parse=lambda block: CompositeExec(tuple(map(_step, block["steps"])), block.get("output")),
    write=_write,
    misfits=CONDITION,
    lint=on_call("toolcrib.executors.composite.lint:steps"),
    plan=_plan,
    calls=lambda config: ((step.id, step.tool) for step in config.steps),
    touches=lambda _: (),
    untraceable=(
        "is made of steps, which need nothing but the permissions of their own tools",
        "Trace the tools of its steps.",
    ),
)
