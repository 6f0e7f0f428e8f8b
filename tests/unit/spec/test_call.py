from __future__ import annotations

from typing import Any

import pytest

from toolcrib.errors import InvalidInput, Violation
from toolcrib.spec import Caller, Result


@pytest.mark.parametrize(
    "result",
    [
        Result(
            "ok", {"a": [1, None]}, warnings=("w",), details={"exitCode": 0}, duration_ms=1.5, call_id="c"
        ),
        Result("error", error=InvalidInput("no", violations=[Violation("$.a", "x")]), attempts=2, snoozes=1),
        Result("pending", details={"approval": "a"}),
    ],
)
def test_results_are_read_back(result: Result) -> None:
    assert Result.from_dict(result.as_dict()).as_dict() == result.as_dict()


@pytest.mark.parametrize(
    ("scopes", "may"),
    [
        ({"read"}, {"read"}),
        ({"invoke"}, {"read", "invoke"}),
        ({"approve"}, {"approve"}),
        ({"admin"}, {"read", "invoke", "approve", "admin"}),
        (set(), set()),
    ],
)
def test_scopes(scopes: set[Any], may: set[str]) -> None:
    caller = Caller("ci", frozenset(scopes))
    known: tuple[Any, ...] = ("read", "invoke", "approve", "admin")
    assert {scope for scope in known if caller.may(scope)} == may


def test_a_tool_filter_is_exact_about_case() -> None:
    caller = Caller("ci", frozenset({"invoke"}), ("repo_*", "add"))
    assert caller.covers("repo_scan")
    assert caller.covers("add")
    assert not caller.covers("Add")
    assert not caller.covers("add2")
    assert not caller.covers("myrepo_scan")
