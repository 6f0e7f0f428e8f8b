"""Composite tools through a real project: order, loops, conditions, failures, approvals, policy, plans."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed
from tests.e2e.cli.test_cli import cli
from tests.patience import GROWING_MS, patient
from toolcrib import Project, Result, ToolCancel
from toolcrib.project.control.approvals import Elicitation
from toolcrib.spec import Call, Caller

NAME = {"type": "string", "description": "A name."}


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    return Crib(tmp_path)


def composite(crib: Crib, *steps: dict[str, Any], name: str = "all", output: Any = None, **more: Any) -> Path:
    block: dict[str, Any] = {"steps": list(steps)}
    if output is not None:
        block["output"] = output
    return crib.tool(name, "composite", block, more.pop("properties", {"name": NAME}), **more)


def register(project: Project) -> dict[str, list[Any]]:
    """Functions for the steps to call, and what they were called with."""
    calls: dict[str, list[Any]] = {"upper": [], "fail": [], "slow": []}
    four = asyncio.Barrier(4)

    @project.toolset.tool(isolation="async")
    async def upper(text: str) -> dict[str, Any]:
        calls["upper"].append(text)
        return {"text": text.upper(), "letters": list(text)}

    @project.toolset.tool(isolation="async")
    async def fail(why: str = "no reason") -> str:
        calls["fail"].append(why)
        raise ToolCancel(why)

    @project.toolset.tool(isolation="async")
    async def meet() -> None:
        async with asyncio.timeout(patient(60)):
            await four.wait()

    @project.toolset.tool(isolation="async")
    async def slow(text: str, seconds: float = 0.05) -> str:
        calls["slow"].append((text, time.monotonic()))
        await asyncio.sleep(seconds)
        return text

    return calls


def run(crib: Crib, arguments: Any = None, name: str = "all", **options: Any) -> tuple[Result, Any]:
    async def once() -> tuple[Result, Any]:
        async with crib.open() as project:
            calls = register(project)
            return await project.call(name, arguments or {}, **options), calls

    return asyncio.run(once())


def statuses(result: Result) -> dict[str, str]:
    details = result.error.details if result.error is not None else result.details
    assert details is not None
    return {step["id"]: step["status"] for step in details["steps"]}


def test_what_one_step_gives_goes_into_the_next(crib: Crib) -> None:
    composite(
        crib,
        {"id": "second", "tool": "slow", "args": {"text": "${steps.first.value.text}!"}},
        {"id": "first", "tool": "upper", "args": {"text": "${name}"}},
        output={
            "said": "${steps.second.value}",
            "of": "${name}",
            "at": "${steps.first.value.letters[0]}",
        },
    )
    result, _ = run(crib, {"name": "ann"})
    assert result.unwrap() == {"said": "ANN!", "of": "ann", "at": "a"}
    assert statuses(result) == {"second": "ok", "first": "ok"}
    names = [line.fields["name"] for line in crib.audit()]
    assert names == ["upper", "slow", "all"]  # each step is a call of its own, in the log too


def test_steps_that_need_nothing_of_each_other_run_side_by_side(crib: Crib) -> None:
    composite(
        crib,
        *({"id": f"s{n}", "tool": "meet"} for n in range(4)),
        {"id": "early", "tool": "slow", "args": {"text": "x", "seconds": 0.3}},
        {"id": "last", "tool": "slow", "args": {"text": "y"}, "needs": ["s0", "early"]},
    )
    result, calls = run(crib)
    assert result.unwrap() == "y"
    began = [at for _, at in calls["slow"]]
    assert began[1] - began[0] >= 0.3


def test_a_loop_is_bounded_and_keeps_its_order(crib: Crib) -> None:
    composite(
        crib,
        {"id": "word", "tool": "upper", "args": {"text": "${name}"}},
        {
            "id": "each",
            "tool": "slow",
            "foreach": "${steps.word.value.letters}",
            "concurrency": 2,
            "args": {"text": "${index}${item}", "seconds": 0.1},
        },
    )
    result, calls = run(crib, {"name": "abcde"})
    assert result.unwrap() == ["0a", "1b", "2c", "3d", "4e"]
    began = sorted(at for _, at in calls["slow"])
    assert all(later - earlier > 0.08 for earlier, later in zip(began, began[2:], strict=False))


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ("${steps.word.value.text}", True),
        ("${steps.word.value.nothing}", False),
        ({"value": "${steps.word.value.text}", "is": "ANN"}, True),
        ({"value": "${steps.word.value.text}", "is_not": "ANN"}, False),
        ({"value": "${steps.word.value.nothing}", "is_not": "ANN"}, True),
        ({"value": "${steps.word.value.letters}", "schema": {"minItems": 4}}, False),
        (["${name}", {"value": "${steps.word.status}", "is": "ok"}], True),
    ],
)
def test_conditions(crib: Crib, when: Any, runs: bool) -> None:
    composite(
        crib,
        {"id": "word", "tool": "upper", "args": {"text": "${name}"}},
        {"id": "then", "tool": "slow", "when": when, "args": {"text": "ran"}},
    )
    result, calls = run(crib, {"name": "ann"})
    assert result.unwrap() == ("ran" if runs else None)
    assert statuses(result)["then"] == ("ok" if runs else "skipped")
    assert len(calls["slow"]) == runs


def test_a_value_is_never_code(crib: Crib) -> None:
    """What a step gives is data, whatever it looks like."""
    composite(
        crib,
        {"id": "a", "tool": "slow", "args": {"text": "${name}"}},
        {"id": "b", "tool": "slow", "args": {"text": "${steps.a.value}"}, "when": "${steps.a.value}"},
    )
    evil = "${steps.a.status} __import__('os').system('x')"
    result, _ = run(crib, {"name": evil})
    assert result.unwrap() == evil


def test_a_failed_step_fails_the_whole_and_each_is_told(crib: Crib) -> None:
    composite(
        crib,
        {"id": "good", "tool": "upper", "args": {"text": "a"}},
        {"id": "bad", "tool": "fail", "args": {"why": "no luck"}, "needs": ["good"]},
        {"id": "beside", "tool": "slow", "args": {"text": "b", "seconds": 0.1}, "needs": ["good"]},
        {"id": "later", "tool": "slow", "args": {"text": "c"}, "needs": ["bad"]},
        {"id": "other", "tool": "slow", "args": {"text": "d"}, "needs": ["beside"]},
    )
    result, calls = run(crib)
    assert "step bad (fail): no luck" in failed(result, "tool_failed")
    assert result.error is not None
    assert result.error.details["code"] == "tool_cancelled"
    assert statuses(result) == {
        "good": "ok",
        "bad": "error",
        "beside": "ok",
        "later": "not_run",
        "other": "not_run",
    }
    assert [text for text, _ in calls["slow"]] == ["b"]


def test_failures_that_are_foreseen(crib: Crib) -> None:
    composite(
        crib,
        {"id": "a", "tool": "fail", "on_error": "continue"},
        {"id": "b", "tool": "fail", "on_error": {"default": [1]}},
        {"id": "c", "tool": "slow", "args": {"text": "${steps.a.error.code}"}},
        output={"a": "${steps.a.value}", "b": "${steps.b.value}", "c": "${steps.c.value}"},
    )
    result, _ = run(crib)
    assert result.unwrap() == {"b": [1], "c": "tool_cancelled"}
    assert statuses(result) == {"a": "error", "b": "error", "c": "ok"}


def test_failures_within_a_loop(crib: Crib) -> None:
    step = {"id": "each", "tool": "upper", "foreach": ["a", 1, "c"], "args": {"text": "${item}"}}
    composite(crib, {**step, "on_error": {"default": "none"}}, name="all")
    composite(crib, {**step, "concurrency": 1}, name="strict")
    result, _ = run(crib)
    assert result.unwrap()[1] == "none"
    assert result.details is not None
    (report,) = result.details["steps"]
    assert (report["items"], [one["index"] for one in report["failed"]]) == (3, [1])
    result, calls = run(crib, name="strict")
    failed(result, "tool_failed")
    assert calls["upper"] == ["a"]


def test_arguments_that_do_not_fit_stop_their_step(crib: Crib) -> None:
    composite(crib, {"id": "a", "tool": "upper", "args": {"text": 1}})
    assert "step a (upper)" in failed(run(crib)[0], "tool_failed")


def test_a_step_without_a_tool_stops_everything_before_it_begins(crib: Crib) -> None:
    composite(
        crib,
        {"id": "a", "tool": "upper", "args": {"text": "x"}},
        {"id": "b", "tool": "uper", "needs": ["a"]},
    )
    result, calls = run(crib)
    assert "step b of all" in failed(result, "tool_unavailable")
    assert calls["upper"] == []


def test_composite_tools_within_each_other(crib: Crib) -> None:
    composite(crib, {"id": "a", "tool": "upper", "args": {"text": "${name}"}}, name="inner")
    composite(crib, {"id": "a", "tool": "inner", "args": {"name": "${name}"}}, output="${steps.a.value.text}")
    assert run(crib, {"name": "ann"})[0].unwrap() == "ANN"


def test_composite_tools_that_call_each_other_come_to_an_end(crib: Crib) -> None:
    composite(crib, {"id": "a", "tool": "two"}, name="one")
    composite(crib, {"id": "a", "tool": "one"}, name="two")
    assert "circle" in failed(run(crib, name="one")[0], "tool_failed")
    for depth in range(10):
        composite(crib, {"id": "a", "tool": f"d{depth + 1}"}, name=f"d{depth}")
    composite(crib, {"id": "a", "tool": "upper", "args": {"text": "x"}}, name="d10")
    assert "8 deep" in failed(run(crib, name="d0")[0], "tool_failed")


def test_cancelling_the_whole_ends_its_steps(crib: Crib) -> None:
    arguments = {"text": "x", "seconds": 60}
    composite(
        crib,
        {"id": "a", "tool": "slow", "args": arguments},
        {"id": "b", "tool": "slow", "foreach": [1, 2], "args": arguments},
    )
    for limit_ms in GROWING_MS:
        before = len(crib.audit())
        result, calls = run(crib, timeout_ms=limit_ms)
        if len(calls["slow"]) == 3:
            break
    else:
        raise AssertionError("no limit is long enough")
    failed(result, "timed_out")
    assert [line.fields["status"] for line in crib.audit()[before:]] == ["error"] * 4


def test_approvals_of_steps_hold_the_whole(crib: Crib) -> None:
    crib.tool(
        "dear", "command", {"entrypoint": "true"}, approval={"required": True, "reason": "it costs"},
        outputs={"format": "text"},
    )  # fmt: skip
    composite(crib, {"id": "a", "tool": "dear"})
    result, _ = run(crib)
    assert "it costs" in failed(result, "approval_required")
    assert result.error is not None
    assert result.error.details["approval"]
    assert statuses(result) == {"a": "error"}
    assert run(crib, approved_by="ann")[0].ok

    async def wait() -> Result:
        async with crib.open() as project:
            running = asyncio.ensure_future(project.call("all", wait="block"))
            while not (waiting := project.approval_service.approvals.list("pending")):  # noqa: ASYNC110 - is polled
                await asyncio.sleep(0.01)
            project.approval_service.approve(waiting[-1].id, "ann")
            return await running

    assert asyncio.run(wait()).ok


def test_who_may_not_call_a_step_may_not_begin(crib: Crib) -> None:
    composite(
        crib,
        {"id": "a", "tool": "upper", "args": {"text": "x"}},
        {"id": "b", "tool": "slow", "args": {"text": "x"}, "needs": ["a"]},
    )
    crib.write(
        ".toolcrib/config.yml",
        "policy: {rules: [{name: no, effect: deny, tools: [slow], reason: not here}]}\n",
    )
    result, calls = run(crib)
    failed(result, "policy_denied")
    assert calls["upper"] == []

    (crib.home / "config.yml").unlink()

    async def with_token() -> Result:
        async with crib.open() as project:
            register(project)
            identity = Caller("t", frozenset({"invoke"}), ("all", "upper"))
            return await project.invoke(Call("all", {}, identity=identity))

    failed(asyncio.run(with_token()), "invalid_token")


def test_permissions_are_those_of_all_steps(crib: Crib) -> None:
    crib.shell("a", permissions={"fs": {"read": ["x"]}, "network": {"allow": ["one.example"]}})
    crib.shell("b", permissions={"fs": {"read": ["x", "y"]}, "network": True, "secrets": {"KEY": {}}})
    composite(crib, {"id": "a", "tool": "a"}, name="inner")
    composite(crib, {"id": "a", "tool": "inner"}, {"id": "b", "tool": "b"})

    async def permissions() -> Any:
        async with crib.open() as project:
            return project.permissions_of(project.get("all")).as_json()

    assert asyncio.run(permissions()) == {
        "network": True,
        "fs": {"read": ["x", "y"], "write": []},
        "secrets": ["KEY"],
    }


def test_what_a_person_agreed_to_ends_when_a_step_changes(crib: Crib) -> None:
    crib.shell("a")
    composite(crib, {"id": "a", "tool": "a"})

    async def digest() -> str:
        async with crib.open() as project:
            return project.fingerprint(project.get("all")).digest

    before = asyncio.run(digest())
    assert asyncio.run(digest()) == before
    crib.shell("a", description="Another.")
    assert asyncio.run(digest()) != before


def test_a_plan_runs_nothing(crib: Crib) -> None:
    crib.secrets = {"KEY": "s3cr3t-value"}
    crib.tool(
        "say",
        "command",
        {"entrypoint": "touch", "args": ["${name}"], "stdin": "${KEY}"},
        {"name": NAME},
        permissions={"secrets": {"KEY": {}}},
        approval={"required": True, "reason": "it costs"},
    )
    composite(
        crib,
        {"id": "b", "tool": "say", "args": {"name": "${steps.a.value}"}, "on_error": "continue"},
        {"id": "a", "tool": "say", "args": {"name": "${name}"}, "foreach": [1]},
    )

    async def plan(name: str) -> Any:
        async with crib.open() as project:
            return project.plan(Call(name, {"name": "ann"}))

    would = asyncio.run(plan("say"))
    assert would["would"] == {"entrypoint": "touch", "args": ["ann"], "stdin": "<secret KEY>"}
    assert would["approval"] == "it costs"
    steps = asyncio.run(plan("all"))
    assert [(step["id"], step["after"]) for step in steps["steps"]] == [("b", ["a"]), ("a", [])]
    assert steps["permissions"]["secrets"] == ["KEY"]
    assert "it costs" in steps["approval"]
    assert crib.audit() == []


async def asked_elsewhere(crib: Crib) -> tuple[str | None, dict[str, Any]]:
    """What a client's user is asked about the newest call that waits, and what REST shows of it."""
    async with crib.open() as project:
        service = project.approval_service
        (sheet,) = service.list("pending", 1)
        shown = service.show(sheet.approval.id)
        return Elicitation(service).question(sheet.approval.id), service.facts(shown)


def test_trust_and_approval_show_the_code_of_the_steps(crib: Crib) -> None:
    config = {"entrypoint": "sh", "args": [".toolcrib/tools/clean/run.sh"]}
    crib.tool("clean", "command", config, permissions={"fs": {"write": ["."]}})
    crib.write(".toolcrib/tools/clean/run.sh", "rm -rf build\n")
    composite(crib, {"id": "one", "tool": "clean"}, approval={"required": True, "reason": "it is much"})
    crib.accept = "trusted"
    result = crib.call("all", {}, wait="pending")
    assert result.status == "pending", result.error
    for words in (("trust", "all", "--show"), ("approvals", "show", "--last")):
        shown = cli(crib, *words).out
        assert "    1 | rm -rf build" in shown
        assert '| {"name": "clean"' in shown
    for long in (False, True):
        if long:
            crib.write(".toolcrib/tools/clean/run.sh", "# a comment\n" * 400 + "rm -rf build\n")
            assert crib.call("all", {}, wait="pending").status == "pending"
        asked, facts = asyncio.run(asked_elsewhere(crib))
        assert "| rm -rf build" in facts["untrusted"][-1]
        assert (asked is None) is long  # What does not fit is for the terminal: nothing is cut off.
        assert long or "    1 | rm -rf build" in str(asked)
    crib.trust_tools("clean", "all")
    crib.write(".toolcrib/tools/clean/run.sh", "rm -rf src\n")
    shown = cli(crib, "trust", "all", "--show").out
    assert "changed since then: step/clean" in shown
    assert ("-rm -rf build" in shown, "+rm -rf src" in shown) == (True, True)
