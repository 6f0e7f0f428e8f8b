"""Checks of a composite tool's steps: circles, unknown steps and unknown tools."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document, walk
from toolcrib.spec import CompositeExec, Step, Tool
from toolcrib.spec.naming import did_you_mean
from toolcrib.template import LOOP_NAMES, STEPS_NAME, Namespaces, problems, step_namespaces, steps_used

_START: KeyPath = ("exec", "composite", "steps")


def steps(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that every step names tools and steps that are there, in no circle."""
    assert isinstance(tool.config, CompositeExec)
    yield from _own(tool, document)
    yield from plan(tool, document, ("exec", "composite"))
    yield from _tools(tool, tool.config, document)


def plan(tool: Tool, document: Document, block: KeyPath) -> Iterator[Diagnostic]:
    """Check that the steps and the output at `block` name steps and inputs that are there, in no circle."""
    config, start = tool.config, (*block, "steps")
    assert isinstance(config, CompositeExec)
    ids = [step.id for step in config.steps]
    needed: dict[str, set[str]] = {}
    for number, step in enumerate(config.steps):
        if step.id in needed:
            text = f"there are two steps with the id {quoted(step.id)}"
            yield document.diagnostic("step", text, (*start, number, "id"))
        used: set[str] = set()
        for path, value, loop in _templates(step):
            yield from _template(tool, document, (*start, number, *path), value, ids, loop, used)
        for place, name in enumerate(step.needs):
            if name not in ids:
                yield _no_step(document, (*start, number, "needs", place), name, ids)
        yield from _schemas(step, document, (*start, number))
        needed[step.id] = used | set(step.needs)
    yield from _template(tool, document, (*block, "output"), config.output, ids, False, set())
    circle = _circle(needed)
    if circle:
        text = "these steps wait for each other: " + " → ".join(circle)
        at = (*start, ids.index(circle[0]))
        yield document.diagnostic("step", text, at, hint="let one of them not need the other")


def _own(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    if "permissions" in document.data:
        text = "a composite tool has the permissions of its steps' tools, and none of its own"
        yield document.diagnostic("step", text, ("permissions",), key=True, hint="remove the block")
    for name in sorted(Namespaces.of(tool).arguments & {STEPS_NAME, *LOOP_NAMES}):
        text = f"no argument of a composite tool can be called {quoted(name)}: it has a meaning in steps"
        path: KeyPath = ("inputs", "schema", "properties", name)
        yield document.diagnostic("step", text, path, key=True, hint="rename the argument")


def _templates(step: Step) -> Iterator[tuple[KeyPath, Any, bool]]:
    """The templates of a step: where, what, and if `item` is allowed in it."""
    yield ("args",), step.args, step.foreach is not None
    yield ("foreach",), step.foreach, False
    for number, one in enumerate(step.when):
        path: KeyPath = ("when",) if len(step.when) == 1 else ("when", number)
        yield path if one.how == "truth" else (*path, "value"), one.value, False


def _template(
    tool: Tool, document: Document, path: KeyPath, value: Any, ids: list[str], loop: bool, used: set[str]
) -> Iterator[Diagnostic]:
    names = step_namespaces(tool, loop=loop)
    found = problems(value, names)
    for problem in found:
        hint = problem.hint if problem.hint and "did you mean" in problem.hint else None
        yield document.diagnostic("placeholder", problem.message, (*path, *problem.path), hint=hint)
    if found:
        return
    for place, text in walk(value, path):
        for name in steps_used(text, names) if isinstance(text, str) else ():
            if name not in ids:
                yield _no_step(document, place, name, ids)
            used.add(name)


def _no_step(document: Document, path: KeyPath, name: str, ids: list[str]) -> Diagnostic:
    if not name:
        text = "`${steps}` alone names no step"
        return document.diagnostic("step", text, path, hint="write `${steps.ID.value}`")
    hint = did_you_mean(name, ids, f"there are: {', '.join(ids)}")
    return document.diagnostic("step", f"there is no step {quoted(name)}", path, hint=hint)


def _schemas(step: Step, document: Document, at: KeyPath) -> Iterator[Diagnostic]:
    from toolcrib.manifest.lint.checks import schema_faults

    for place, one in enumerate(step.when):
        if one.how == "schema":
            path: KeyPath = ("when", place) if len(step.when) > 1 else ("when",)
            yield from schema_faults(one.other, (*at, *path, "schema"), "step", document)


def _circle(needed: Mapping[str, set[str]]) -> list[str]:
    """One circle of steps that need each other, the first one again at its end; empty where there is none."""
    try:
        TopologicalSorter({name: sorted(others) for name, others in needed.items()}).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _tools(tool: Tool, config: CompositeExec, document: Document) -> Iterator[Diagnostic]:
    folder = Path(document.path).absolute().parent
    beside = folder.name == tool.name and folder.is_dir()  # else it is read from somewhere else
    for number, step in enumerate(config.steps):
        path: KeyPath = (*_START, number, "tool")
        if step.tool == tool.name:
            yield document.diagnostic("step", "a composite tool cannot call itself", path)
        elif beside and not os.path.isdir(folder.parent / step.tool):
            known = [other.name for other in folder.parent.iterdir()]
            hint = did_you_mean(step.tool, known, "ignore this if a program registers it as a function")
            text = f"there is no manifest of a tool {quoted(step.tool)} beside this one"
            yield document.diagnostic("step-tool", text, path, hint=hint)
