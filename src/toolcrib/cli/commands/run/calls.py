"""`toolcrib calls`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from toolcrib.cli.arguments import call_command, complete_tool, parse_arguments
from toolcrib.cli.caller import caller_of, seen_by
from toolcrib.cli.commands.run.matching import change_all, filter_options, made_by, many_options, mine
from toolcrib.cli.commands.run.unserved import note_if_unserved, noting_unserved
from toolcrib.cli.options import id_or_last, open_project, page_options, project_options, timeout_option
from toolcrib.cli.output import (
    one_line,
    print_change,
    print_error,
    print_json,
    print_note,
    print_shown,
    print_value,
    print_warnings,
)
from toolcrib.cli.table import facts, print_listing
from toolcrib.errors import InvalidInput, NotFoundError, TimedOut, ToolNotFound, UsageError
from toolcrib.schema import decode_object

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.runs import DurableCall
    from toolcrib.runs.filters import Filters
    from toolcrib.spec import Tool

_FIELDS = ("tool", "arguments", "idempotency_key", "priority", "delay_s", "timeout_ms")
_STATES = ("ready", "running", "waiting", "done", "failed", "discarded", "cancelled", "unknown")

chosen_option = id_or_last("call", "calls")


@click.group("calls")
def command() -> None:
    """Submit calls that survive any process; follow, cancel and retry them.

    They are stored before they run, and recorded once, even if a process dies.
    """


@call_command("submit")
@click.argument("tool", required=False, shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@project_options
@click.option("--idempotency-key", help="Calls with the same key run once and share the result.")
@click.option(
    "--priority",
    type=click.IntRange(-(2**31), 2**31 - 1),
    default=0,
    help="Higher ones are taken first (default: 0).",
)
@click.option(
    "--delay", "delay_s", type=click.FloatRange(min=0), default=0.0, help="Run after this many seconds."
)
@timeout_option
@click.option(
    "--from",
    "source",
    type=click.File("rb"),
    metavar="FILE",
    help='Store all calls of a file (- for standard input), or none. A line: {"tool": …, "arguments": {…}}',
)
def submit_command(
    tool: str | None,
    arguments: tuple[str, ...],
    root: str | None,
    as_json: bool,
    source: BinaryIO | None,
    **how: Any,
) -> None:
    """Store a call that a worker runs, and print its id.

    TOOL and ARGUMENTS are those of `toolcrib run`. The call survives the end of any process. A worker runs
    it, or whoever waits for it: `toolcrib calls wait ID`.
    """
    if (source is None) is (tool is None):
        raise UsageError(
            "name a tool, or a file of calls with --from", hint="To see the tools: toolcrib list"
        )
    project = open_project(root)
    print_warnings(project)
    caller, identity = caller_of(project)
    how |= {"caller": caller, "identity": identity}
    if source is not None:
        lines = enumerate(source, 1)
        calls = ({**how, **_line(number, line)} for number, line in lines if line.strip())
        ids = project.calls.submit_many(calls)
        print_shown(as_json, {"ids": ids}, "\n".join(ids))
        note_if_unserved(project, set(), waits="toolcrib calls wait ID")
        return
    assert tool is not None
    found = _found(project, tool)
    call_id = project.submit(found.name, parse_arguments(arguments, found.input_schema), **how)
    waits = f"toolcrib calls wait {call_id}"
    print_shown(as_json, project.calls.find(call_id).as_dict() if as_json else {}, call_id)
    if not note_if_unserved(project, {found.name}, waits=waits) and not as_json:
        print_note(f"To wait for its result: {waits}{project.place.option}")


command.add_command(submit_command)


def _found(project: Project, name: str) -> Tool:
    from toolcrib.cli.commands.look.show import find_tool

    try:
        return find_tool(project, name)
    except ToolNotFound:  # It may be one that only a worker has.
        if (known := project.calls.known.some((name,)).get(name)) is None:
            raise
        return known.tool


def _line(number: int, line: bytes) -> dict[str, Any]:
    """Return the call of a line of a file."""
    try:
        call = decode_object(line)
    except InvalidInput as error:
        raise InvalidInput(f"line {number}: {error.message}") from None
    if unknown := ", ".join(sorted(call.keys() - _FIELDS)):
        raise InvalidInput(
            f"line {number} has unknown fields: {unknown}", hint=f"Known: {', '.join(_FIELDS)}."
        )
    if not isinstance(call.get("tool"), str):
        raise InvalidInput(f"line {number} names no tool")
    return call


@command.command("list")
@project_options
@filter_options("calls", _STATES)
@page_options("call")
def list_command(root: str | None, as_json: bool, limit: int, before: str | None, filters: Filters) -> None:
    """List calls, the newest first."""
    project = open_project(root, load=False)
    found = project.calls.page(limit=limit, before=before, **mine(filters, seen_by(project)))
    print_listing(
        as_json,
        "calls",
        [call.as_dict() for call in found],
        ("ID", "STATE", "TOOL", "CALLER", ("SUBMITTED", "beganAt"), "ARGUMENTS"),
        empty="There are no such calls." if filters else "No calls were submitted.",
        limit=limit,
    )


@command.command("show")
@project_options
@chosen_option
def show_command(root: str | None, as_json: bool, chosen: str | None) -> None:
    """Show one call: its result, attempts and history.

    ID may be the beginning of an id, if no other begins so.
    """
    project, call_id = _chosen(chosen, root)
    print_shown(as_json, project.calls.history(call_id), "\n".join(_lines(project, call_id)))


@command.command("wait")
@project_options
@chosen_option
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait at most this many seconds.")
def wait_command(root: str | None, as_json: bool, chosen: str | None, timeout: float | None) -> int:
    """Wait until a call has ended, and print its result.

    Meanwhile this process runs calls of the project that no worker has taken. ID may be the beginning of an
    id.
    """
    project, call_id = _chosen(chosen, root, load=True)
    call = asyncio.run(_waited(project, call_id, timeout))
    result = call.outcome()
    if as_json:
        print_json(call.as_dict())
    elif not call.ended:
        print_note(f"The call has not ended: it is {call.state}.")
    elif result.error is not None:
        print_error(result.error)
    else:
        print_value(result.value)
    if not call.ended:
        return TimedOut.exit_code
    return 0 if result.error is None else result.error.exit_code


@command.command("cancel")
@project_options
@many_options("calls", _STATES)
@chosen_option
def cancel_command(root: str | None, as_json: bool, chosen: str | None, filters: Filters, yes: bool) -> int:
    """Cancel a call, or all that match. What workers report later is refused."""
    if filters:
        project = open_project(root, load=False)
        return change_all(project, "calls", "cancel", filters, seen_by(project), yes=yes, as_json=as_json)
    project, call_id = _chosen(chosen, root)
    project.calls.cancel(call_id)
    return _print(project, call_id, as_json)


@command.command("retry")
@project_options
@many_options("calls", _STATES)
@chosen_option
def retry_command(root: str | None, as_json: bool, chosen: str | None, filters: Filters, yes: bool) -> int:
    """Run a call again that has no result, or all that match."""
    if filters:
        project = open_project(root, load=False)
        return change_all(project, "calls", "retry", filters, made_by(project), yes=yes, as_json=as_json)
    project, call_id = _chosen(chosen, root)
    project.calls.retry(call_id, identity=caller_of(project)[1])
    code = _print(project, call_id, as_json)
    note_if_unserved(project, {project.calls.find(call_id).tool}, waits=f"toolcrib calls wait {call_id}")
    return code


def _chosen(beginning: str | None, root: str | None, *, load: bool = False) -> tuple[Project, str]:
    """Return the project, and the id of the call that is meant."""
    project = open_project(root, load=load)
    caller = seen_by(project)
    if beginning is not None:
        return project, project.calls.stored.resolve(beginning, caller)
    newest = project.calls.page(limit=1, caller=caller)
    if not newest:
        raise NotFoundError("no calls were submitted")
    return project, newest[0].id


def _print(project: Project, call_id: str, as_json: bool) -> int:
    call = project.calls.find(call_id)
    print_change(as_json, call.as_dict(), f"{call.state}: {one_line(call.tool)} {call_id}")
    return 0


async def _waited(project: Project, call_id: str, timeout_s: float | None) -> DurableCall:
    tool = project.calls.find(call_id).tool
    async with project, noting_unserved(project, lambda: {tool}):
        return await project.calls.wait(call_id, timeout_s)


def _lines(project: Project, call_id: str) -> list[str]:
    call, stored = project.calls.find(call_id), project.calls.stored
    values = {
        "call": call.id,
        "tool": call.tool,
        "arguments": call.arguments.decode(),
        "caller": call.caller,
        "state": call.state,
        "approval": call.approval,
        "counts": f"attempts {call.attempts}, snoozes {call.snoozes}, rescues {call.rescues}",
    }
    if call.ended:
        outcome = call.outcome()
        values["error" if outcome.error else "result"] = str(outcome.error or outcome.value)
    lines = facts(values)
    for change in stored.changes(call_id):
        entry = change.as_dict()
        lines.append(f"  {entry['at']}  {entry['kind']} {one_line(entry['detail'] or '')}".rstrip())
    return lines
