"""`toolcrib run`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import click

from toolcrib.cli.arguments import call_command, complete_tool, parse_arguments
from toolcrib.cli.caller import caller_of
from toolcrib.cli.commands.look.show import find_tool, input_schema
from toolcrib.cli.confirm import seek_approval
from toolcrib.cli.options import approve_option, open_project, project_options, timeout_option
from toolcrib.cli.output import (
    print_error,
    print_interrupted,
    print_json,
    print_note,
    print_result,
    print_value,
    print_warnings,
    printable,
)
from toolcrib.cli.progress import StatusLine, waiting
from toolcrib.errors import ApprovalRequired, NotFoundError, ToolcribError, UsageError
from toolcrib.manifest.kinds import is_function
from toolcrib.schema import to_json_text
from toolcrib.spec import Call, CallEvent, Result, Tool
from toolcrib.spec.tools.tool import HINT_ASKED

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.trust.sheets import TrustSheet


@call_command("run")
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@project_options
@approve_option
@click.option(
    "--wait",
    type=click.Choice(("block", "pending")),
    help="Let somebody else approve: wait for the decision (block), or exit (pending).",
)
@click.option("--idempotency-key", help="Calls with the same key run once and share the result.")
@timeout_option
@click.option("--dry-run", is_flag=True, help="Show what the call would do; run nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the tool's standard error and log.")
def command(
    tool: str,
    arguments: tuple[str, ...],
    root: str | None,
    as_json: bool,
    approve: bool,
    wait: Literal["block", "pending"] | None,
    idempotency_key: str | None,
    timeout_ms: int | None,
    dry_run: bool,
    verbose: bool,
) -> int:
    """Run one tool.

    TOOL is [BUNDLE/]NAME[@VERSION]. ARGUMENTS are key=value or --key value, key:=json, @file.json, or - for a
    JSON object on standard input. A value is text if the schema allows text, else JSON. Later words
    replace what earlier files contain. `run FILE.py[:OBJECT] NAME …` runs a tool of a Python file.
    """
    from toolcrib.cli.commands.decide.accepting import accepted_project
    from toolcrib.project.program import frames_of

    if verbose:
        _show_log()

    # A dry run runs nothing, so the project need not be accepted for it.
    project = open_project(root) if dry_run else accepted_project(root, ask=not as_json)
    given = parse_arguments(arguments, input_schema(project, tool))
    call = Call(tool, given, caller="cli", timeout_ms=timeout_ms)
    call.idempotency_key = idempotency_key
    call.wait = wait or "raise"
    print_warnings(project)
    if dry_run:
        call.caller, call.identity = caller_of(project)
        _print_plan(project, call, as_json=as_json)
        return 0
    try:
        shown = None if as_json or not _is_terminal() else _Shown()
        result = result_of(project, call, approve=approve, ask=not as_json, shown=shown)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return print_interrupted("interrupted: the tool was stopped", as_json=as_json)
    if as_json:
        print_json(result.as_dict())
    else:
        cause, file = None if result.error is None else result.error.__cause__, project.place.file
        if verbose and cause is not None and file is not None:
            print_note(frames_of(cause, file))
        if shown is not None and result.status == "ok":
            result.value = shown.rest_of(result.value)
        _print(result, verbose=verbose)
    if result.error is not None:
        return result.error.exit_code
    return ApprovalRequired.exit_code if result.status == "pending" else 0


def _is_terminal() -> bool:
    """Return True if output and status share a terminal that can rewrite a line."""
    return sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class _Shown:
    """The output of a call that its terminal has shown already, a line when it came."""

    def __init__(self) -> None:
        self._attempt = 0
        self._lines = self._rest = ""

    def show(self, event: CallEvent, line: StatusLine) -> None:
        """Print the lines that are whole now."""
        if event.attempt != self._attempt:
            self._attempt, self._lines, self._rest = event.attempt, "", ""
        lines, newline, self._rest = (self._rest + event.text).rpartition("\n")
        if newline:
            line.above(lines + newline)
            self._lines += lines + newline

    def rest_of(self, value: Any) -> Any:
        """Return what is left to print of the call's value: all of it if it is not what was shown."""
        if not self._lines or not isinstance(value, str):
            return value
        if value.startswith(self._lines):
            return value[len(self._lines) :] or None
        return None if value == self._lines.rstrip("\n") else value


def _print(result: Result, *, verbose: bool) -> None:
    if (tool := (result.details or {}).get("tool")) is not None:
        print_note(f"Called {tool}.")
    for warning in result.warnings:
        print_note(f"warning: {warning}")
    if result.status == "pending":
        details = result.details or {}
        print_note(f"The call waits for approval {details['approval']}: {details['reason']}")
        print_note(details.get("hint", HINT_ASKED))
    elif result.error is not None:
        if not verbose and not result.error.hint and "exception" in result.error.details:
            result.error.hint = "-v shows the tool's log and where it failed."
        print_error(result.error)
    else:
        print_value(result.value)


def _print_plan(project: Project, call: Call, *, as_json: bool) -> None:
    call.tool = find_tool(project, call.tool).name
    plan = project.plan(call)
    if as_json:
        print_json(plan)
        return
    lines = [f"would run {plan['tool']} ({plan['kind']})"]
    for number, step in enumerate(plan.pop("steps", ()), 1):
        after = f", after {', '.join(step['after'])}" if step["after"] else ""
        lines.append(f"  {number}. {step['id']}: {step['tool']}{after}")
        lines += [
            f"     {name}: {to_json_text(step[name]).decode()}"
            for name in ("when", "foreach", "args", "on_error")
            if name in step
        ]
    for name in ("arguments", "would", "cwd", "environment", "permissions", "policy", "approval"):
        if plan.get(name):
            value = plan[name] if isinstance(plan[name], str) else to_json_text(plan[name]).decode()
            lines.append(f"{name}: {value}")
    print_result(printable("\n".join(lines)))


def result_of(
    project: Project, call: Call, *, approve: bool, ask: bool, once: bool = False, shown: _Shown | None = None
) -> Result:
    """Find the tool, ask for approval if it is needed, and make the call. Every refusal is recorded.

    With `once` the tool is trusted for this call alone. `shown` prints output that is text as it comes.
    """
    refusal: ToolcribError | None = None
    asked = call.tool
    call.caller, call.identity = caller_of(project)
    try:
        tool = find_tool(project, call.tool)
    except UsageError:
        raise
    except ToolcribError as error:
        refusal = error
        # The call is made all the same, by its bare name, so that the refusal is in the audit log.
        if not isinstance(error, NotFoundError):
            call.tool = call.tool.rpartition("/")[2].partition("@")[0]
    else:
        call.tool = tool.name
        if tool.output.format != "text":
            shown = None
        if call.wait == "raise":  # Otherwise somebody else decides.
            sheets = _waiting(project, tool)
            try:
                seek_approval(project, call, approve=approve, may_ask=ask, sheets=sheets, once=once)
            except ApprovalRequired as error:
                refusal = error
    result = asyncio.run(_run(project, call, shown))
    if "/" in call.tool and call.tool != asked:  # Of several bundles or versions it is this one.
        result.details = {**(result.details or {}), "tool": call.tool}
    # The path refuses for the same reason, but the error from before the call says more.
    if refusal is not None and result.error is not None and result.error.code == refusal.code:
        result.error = refusal
    return result


def _waiting(project: Project, tool: Tool) -> list[TrustSheet]:
    """Return what waits for trust of the tool and of those that it calls."""
    if not project.trust.given:
        return []
    try:
        parts = (tool, *project.parts_of(tool))
        sheets = [project.trust.sheet(one) for one in parts if not is_function(one)]
    except ToolcribError:  # The call itself reports the error.
        return []
    return [sheet for sheet in sheets if sheet.waits]


async def _run(project: Project, call: Call, shown: _Shown | None) -> Result:
    from toolcrib.core.signals import stopping

    task = asyncio.current_task()
    assert task is not None
    # Their default ends this process at once, and leaves those of the tool running.
    ends = stopping(task.cancel, (signal.SIGTERM, signal.SIGHUP))
    plain = f"{call.tool} is running …" if sys.stderr.isatty() else ""
    with ends, ExitStack() as until_end:
        lines: list[StatusLine] = []

        def on_event(event: CallEvent) -> None:
            if event.kind == "started":
                lines.append(until_end.enter_context(waiting(f"{call.tool} runs for", elsewhere=plain)))
            elif event.kind == "approval" and call.wait != "pending":
                how = ": toolcrib approvals approve --last" if call.identity is None else ""
                print_note(f"{call.tool} waits for a person{how}")
            elif event.kind == "progress":
                of = f"/{event.total:g}" if event.total is not None else ""
                lines[0](f"{event.done:g}{of} {event.message}".strip())
            elif event.kind == "chunk" and shown is not None:
                shown.show(event, lines[0])
            elif event.kind == "chunk" and (line := event.text.rstrip().rpartition("\n")[2]):
                lines[0](line)

        call.on_event = on_event
        async with project:
            return await project.invoke(call)


def _show_log() -> None:
    """Print tools' own log and their tracebacks on standard error."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print_note(record.getMessage())

    logger = logging.getLogger("toolcrib.tools")
    logger.setLevel(logging.INFO)
    logger.addHandler(Notes())
