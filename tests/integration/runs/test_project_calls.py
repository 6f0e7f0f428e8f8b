"""Durable calls of a project's tools, by the one path."""

from __future__ import annotations

import json

import pytest

from tests.crib import Crib
from toolcrib.errors import InvalidInput, ToolCancel, ToolDiscard, ToolNotFound, ToolSnooze


async def test_a_submitted_call_runs_by_the_one_path(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        call = await project.calls.wait(project.submit("add", {"a": 1, "b": 2}), 30)
        assert call.state == "done"
        assert json.loads(call.result or b"")["value"] == 3
        with pytest.raises(InvalidInput):
            project.submit("add", {"a": "x"})
        with pytest.raises(ToolNotFound):
            project.submit("ad", {"a": 1})


@pytest.mark.parametrize(
    ("error", "state"),
    [(ToolDiscard("bad"), "discarded"), (ToolCancel("never"), "cancelled"), (OSError("x"), "failed")],
)
async def test_errors_decide_what_follows(crib: Crib, error: Exception, state: str) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def fails() -> None:
            """Fail."""
            raise error

        call = await project.calls.wait(project.submit("fails"), 30)
        assert call.state == state


async def test_a_snooze_waits_in_the_database(crib: Crib) -> None:
    left = [3]
    async with crib.open() as project:

        @project.toolset.tool
        def later() -> str:
            """Ask to be tried later."""
            left[0] -= 1
            if left[0]:
                raise ToolSnooze(0.01, "not yet")
            return "now"

        call = await project.calls.wait(project.submit("later"), 30)
        assert (call.state, call.attempts, call.snoozes) == ("done", 1, 2)
