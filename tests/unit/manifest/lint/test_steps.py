"""What lint says of the steps of a composite tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib.manifest import lint_tool

NAME = {"type": "string", "description": "A name."}
CIRCLE = [{"id": "a", "tool": "x", "needs": ["b"]}, {"id": "b", "tool": "x", "needs": ["a"]}]


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    return Crib(tmp_path)


def composite(crib: Crib, *steps: dict[str, Any], **more: Any) -> Path:
    return crib.tool("all", "composite", {"steps": list(steps)}, more.pop("properties", None), **more)


@pytest.mark.parametrize(
    ("steps", "rule", "expected"),
    [
        (CIRCLE, "step", "a → b"),
        ([{"id": "a", "tool": "x", "args": {"k": "${steps.a.value}"}}], "step", "a → a"),
        ([{"id": "a", "tool": "x", "needs": ["bb"]}], "step", "no step `bb`"),
        ([{"id": "a", "tool": "x", "args": {"k": ["${steps.b.value}"]}}], "step", "no step `b`"),
        ([{"id": "a", "tool": "x", "when": "${steps.b.value}"}], "step", "no step `b`"),
        ([{"id": "a", "tool": "x", "args": {"k": "${steps}"}}], "step", "names no step"),
        ([{"id": "a", "tool": "x"}, {"id": "a", "tool": "x"}], "step", "two steps"),
        ([{"id": "a", "tool": "all"}], "step", "cannot call itself"),
        ([{"id": "a", "tool": "y"}], "step-tool", "no manifest of a tool `y`"),
        ([{"id": "a", "tool": "x", "args": {"k": "${item}"}}], "placeholder", "`item`"),
        ([{"id": "a", "tool": "x", "args": {"k": "${secret:KEY}"}}], "placeholder", "KEY"),
        ([{"id": "a", "tool": "x", "when": {"value": 1, "schema": {"type": "nothing"}}}], "step", "schema"),
        ([{"id": "a", "tool": "x", "when": {"value": 1}}], "wrong-value", "a `value` with"),
        ([{"id": "a", "tool": "x", "when": "1 == 1"}], "wrong-value", "when"),
        ([{"id": "a-b", "tool": "x"}], "wrong-value", "letters"),
        ([], "wrong-value", "at least 1"),
    ],
)  # fmt: skip
def test_lint(crib: Crib, steps: list[dict[str, Any]], rule: str, expected: str) -> None:
    crib.shell("x")
    folder = composite(crib, *steps)
    found = [finding for finding in lint_tool(folder) if finding.rule == rule]
    assert found, [finding.render() for finding in lint_tool(folder)]
    assert expected in found[0].message


def test_lint_of_what_a_composite_tool_cannot_have(crib: Crib) -> None:
    crib.shell("x")
    folder = composite(
        crib,
        {"id": "a", "tool": "x"},
        permissions={"network": True},
        properties={"steps": NAME, "item": NAME},
    )
    assert [finding.rule for finding in lint_tool(folder) if finding.is_error] == ["step"] * 3
    assert [finding.rule for finding in lint_tool(composite(crib, {"id": "a", "tool": "x"}))] == []
