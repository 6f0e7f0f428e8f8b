"""Workflows with those that they call."""

from __future__ import annotations

import pytest

from toolcrib.errors import DefinitionError
from toolcrib.runs.workflows import Workflow, WorkflowSet

DEPTH = 8


def calling(name: str, *others: str) -> Workflow:
    steps = [{"id": f"s{at}", "workflow": other} for at, other in enumerate(others)]
    return Workflow({"name": name, "steps": [*steps, {"id": "last", "tool": "echo"}]})


def gather(first: str, *workflows: Workflow) -> list[str]:
    """Return the name of each workflow that was read, as often as it was."""
    known, read = {one.name: one for one in workflows}, list[str]()

    def find(name: str) -> Workflow:
        read.append(name)
        return known[name]

    WorkflowSet.gather(known[first], find, lambda _: ("", ""), lambda _: None)
    return read


def test_a_workflow_that_many_call_is_read_once() -> None:
    levels = [[f"w{level}_{at}" for at in range(3)] for level in range(DEPTH - 1)]
    every = [
        calling(name, *below)
        for level, below in zip(levels, [*levels[1:], []], strict=True)
        for name in level
    ]
    assert sorted(gather("top", calling("top", *levels[0]), *every)) == sorted(one.name for one in every)


@pytest.mark.parametrize("shared_first", [True, False])
def test_the_longest_way_down_is_limited(shared_first: bool) -> None:
    """The shared workflow is seen on a short way, and on one that is too long with what is below it."""
    chain = [calling(f"w{at}", f"w{at + 1}") for at in range(DEPTH - 2)] + [
        calling(f"w{DEPTH - 2}", "shared")
    ]
    both = ("shared", "w0") if shared_first else ("w0", "shared")
    with pytest.raises(DefinitionError, match=f"more than {DEPTH} deep: top → w0 → .* → shared"):
        gather("top", calling("top", *both), *chain, calling("shared"))
    gather("top", calling("top", *both), *chain[:-1], calling(f"w{DEPTH - 2}"), calling("shared"))


def test_a_circle_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"circle.*: a → b → a"):
        gather("a", calling("a", "b"), calling("b", "a"))
