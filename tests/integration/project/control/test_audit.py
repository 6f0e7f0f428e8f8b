"""What a project writes down of its calls, and what happens when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.crib import SH, Crib, failed
from toolcrib import Call, Context, ToolDiscard
from toolcrib.guard.audit.check import verify


def noted(crib: Crib, mark: Path) -> None:
    """A tool that leaves a mark when it runs."""
    config = {"action": "write", "path": mark.name, "content": "ran"}
    crib.tool("mark", "file", config, SH, permissions={"fs": {"write": ["."]}})


def test_one_line_with_what_was_called_by_whom_and_how_it_went(crib: Crib) -> None:
    noted(crib, crib.root / "mark")

    async def calls() -> None:
        async with crib.open() as project:
            await project.invoke(Call("mark", {"c": "x"}, caller="mcp:desk", call_id="id-1"))
            await project.invoke(Call("mark", b'{"c": 5}', caller="mcp:desk"))

    asyncio.run(calls())
    start, first, second = crib.audit_lines()
    assert start.event == "TOOL_STARTED"
    assert start.fields.pop("process").startswith(f"{os.getpid()}/")
    assert start.fields == {"name": "mark", "params": {"c": "x"}, "caller": "mcp:desk", "call": "id-1"}
    took = first.fields.pop("ms")
    assert 0 < took < 60_000
    assert first.event == "TOOL_EXECUTED"
    assert first.fields.pop("start") == start.seq
    assert first.fields == {
        "name": "mark", "params": {"c": "x"}, "status": "success", "caller": "mcp:desk", "call": "id-1",
    }  # fmt: skip
    assert second.event == "TOOL_REFUSED"
    assert second.fields["status"] == "refused"
    assert second.fields["code"] == "invalid_input"
    assert second.fields["params"] == '{"c": 5}'  # as it came, for it was not taken in


def test_secrets_are_masked_in_arguments_that_were_never_parsed(crib: Crib) -> None:
    crib.secrets = {"TOKEN": "s3cr3t-value"}
    crib.tool(
        "t", "file", {"action": "read", "path": "f"}, permissions={"secrets": {"TOKEN": {"required": False}}}
    )
    for arguments in (b'{"s3cr3t-value": ', '{"x": "s3cr3t-value"}', {"x": ["s3cr3t-value"]}):
        result = crib.call("t", arguments)
        assert "s3cr3t-value" not in json.dumps(result.as_dict())
        crib.call("s3cr3t-value", arguments)
    log = (crib.home / "audit/tools.log").read_text()
    assert "s3cr3t-value" not in log
    assert log.count("***TOKEN***") >= 6


def test_huge_arguments_are_told_by_size_and_digest(crib: Crib) -> None:
    noted(crib, crib.root / "mark")
    crib.call("mark", {"c": "x" * 1_000_000})
    told = crib.last().fields["params"]
    assert told["bytes"] > 1_000_000
    assert len(told["sha256"]) == 64
    assert (crib.home / "audit/tools.log").stat().st_size < 5_000


@pytest.mark.parametrize("how", ["link", "folder", "file above"])
def test_a_log_that_cannot_be_written_stops_every_call(crib: Crib, how: str) -> None:
    mark = crib.root / "mark"
    noted(crib, mark)
    log = crib.home / "audit" / "tools.log"
    if how == "file above":
        (crib.home / "audit").write_text("")
    elif how == "folder":
        log.mkdir(parents=True)
    else:
        log.parent.mkdir()
        log.symlink_to(crib.root / "elsewhere")
    result = crib.call("mark", {"c": "x"})
    failed(result, "audit_unavailable")
    assert result.error is not None
    assert result.error.hint
    assert result.error.exit_code == 1
    assert not mark.exists()
    assert not (crib.root / "elsewhere").exists()


def test_who_said_that_the_input_is_wrong(crib: Crib) -> None:
    async def calls() -> None:
        async with crib.open() as project:

            @project.toolset.tool
            def picky(ctx: Context) -> None:
                raise ToolDiscard("not today")

            failed(await project.call("picky"), "invalid_input")

    asyncio.run(calls())
    assert (crib.last().event, crib.last().fields["status"]) == ("TOOL_EXECUTED", "error")


def test_every_line_follows_from_the_one_before(crib: Crib) -> None:
    noted(crib, crib.root / "mark")
    for number in range(3):
        crib.call("mark", {"c": str(number)})
    assert [(entry.seq, entry.event) for entry in crib.audit_lines()] == [
        (number, "TOOL_STARTED" if number % 2 else "TOOL_EXECUTED") for number in range(1, 7)
    ]
    assert verify(crib.home / "audit/tools.log").ok
