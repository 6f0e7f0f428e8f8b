"""`toolcrib run`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, Literal

import click

from toolcrib.cli.arguments import complete_tool
from toolcrib.cli.output import (
    json_option,
    note,
    printable,
    root_option,
    say,
    tell_error,
    tell_interrupted,
    tell_lowered,
    write_json,
)

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.first_use import ReviewSheet
    from toolcrib.spec import Call, Result, Tool

__all__ = ["command", "result_of"]

_QUIET_S = 0.3
"""A call shorter than this shows no progress."""


@click.command("run")
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@root_option
@json_option
@click.option(
    "--approve", is_flag=True, help="Agree to this one call of a tool that needs a person's approval."
)
@click.option(
    "--wait",
    type=click.Choice(("block", "pending")),
    help="Have somebody else approve: wait until they have, or come back at once.",
)
@click.option("--idempotency-key", help="Calls with the same key run once; the others get the same result.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Limit of one attempt, in milliseconds.")
@click.option("--dry-run", is_flag=True, help="Show what the call would do, and run nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the tool writes beside its result.")
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
    """Run TOOL, named [BUNDLE/]NAME[@VERSION].

    ARGUMENTS are key=text, key:=json, @file.json, or - for a JSON object on standard input. Later words win
    over files.
    """
    from toolcrib.cli.arguments import parse_arguments
    from toolcrib.project import Project
    from toolcrib.spec import Call

    call = Call(tool, parse_arguments(arguments), caller="cli", timeout_ms=timeout_ms)
    call.idempotency_key = idempotency_key
    call.wait = wait or "raise"
    if verbose:
        _show_log()
    project = Project.open(root)
    tell_lowered(project)
    if dry_run:
        return _tell_plan(project, call, as_json=as_json)
    try:
        result = result_of(project, call, approve=approve, ask=not as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return tell_interrupted("interrupted: the tool was stopped", as_json=as_json)
    if as_json:
        write_json(result.as_dict())
        return _exit_code(result)
    for warning in result.warnings:
        note(f"warning: {printable(warning)}")
    if result.status == "pending":
        return _tell_pending(result)
    if result.error is not None:
        _add_hint(result.error, call, arguments)
        if not verbose and not result.error.hint and "exception" in result.error.details:
            result.error.hint = "-v shows what the tool wrote, and where it failed."
        return tell_error(result.error)
    _print_value(result.value)
    return 0


def _tell_plan(project: Project, call: Call, *, as_json: bool) -> int:
    from toolcrib.cli.commands.look.show import find_tool
    from toolcrib.schema import to_json_text

    call.tool = find_tool(project, call.tool).name
    plan = project.plan(call)
    if as_json:
        write_json(plan)
        return 0
    say(printable(f"would run {plan['tool']} ({plan['kind']})"))
    for number, step in enumerate(plan.pop("steps", ()), 1):
        after = f", after {', '.join(step['after'])}" if step["after"] else ""
        say(printable(f"  {number}. {step['id']}: {step['tool']}{after}"))
        for name in ("when", "foreach", "args", "on_error"):
            if name in step:
                say(printable(f"     {name}: {to_json_text(step[name]).decode()}"))
    for name in ("arguments", "would", "permissions", "approval"):
        if plan.get(name):
            shown = plan[name] if isinstance(plan[name], str) else to_json_text(plan[name]).decode()
            say(printable(f"{name}: {shown}"))
    return 0


def _exit_code(result: Result) -> int:
    if result.error is not None:
        return result.error.exit_code
    return 5 if result.status == "pending" else 0


def _tell_pending(result: Result) -> int:
    details = result.details or {}
    note(printable(f"waits for approval {details['approval']}: {details['reason']}"))
    note(f"A person decides: toolcrib approvals show {details['approval']}. Then make the same call again.")
    return 5


def result_of(project: Project, call: Call, *, approve: bool, ask: bool) -> Result:
    """Find the tool, have a person agree where one must, and make the call: every refusal is recorded."""
    from toolcrib.cli.approval import approver
    from toolcrib.cli.commands.look.show import find_tool
    from toolcrib.errors import ApprovalRequired, NotFoundError, ToolcribError, UsageError
    from toolcrib.state import user_name

    refusal: ToolcribError | None = None
    try:
        tool = find_tool(project, call.tool)
    except UsageError:
        raise
    except ToolcribError as error:
        refusal = error
        if not isinstance(error, NotFoundError):
            call.tool = call.tool.rpartition("/")[2].partition("@")[0]
    else:
        call.tool = tool.name
        sheet = _unseen(project, tool)
        if call.wait == "raise":  # else somebody else is to decide
            try:
                call.approved_by = approver(project, call, approve=approve, ask=ask)
            except ApprovalRequired as error:
                refusal = error
            if sheet is not None and (approve or call.approved_by is not None):
                project.review(tool, user_name(), sheet.digest)
    result = asyncio.run(_run(project, call))
    if refusal is not None and result.error is not None and result.error.code == refusal.code:
        result.error = refusal
    return result


def _unseen(project: Project, tool: Tool) -> ReviewSheet | None:
    """Show a tool that reaches beyond the project and that nobody has reviewed; None for any other."""
    from toolcrib.cli.commands.decide.review import lines_of
    from toolcrib.errors import ToolcribError

    if tool.source is None or project.config.review == "off":
        return None
    try:
        creator, beyond = project.first_use.creator(tool), project.first_use.beyond(tool)
        if creator is None and not beyond:
            return None
        sheet = project.first_use.sheet(tool)
    except ToolcribError:  # The call itself tells what is wrong.
        return None
    if sheet.standing.status == "reviewed":
        return None
    for line in lines_of(sheet):
        note(line)
    note(printable(f"note: to count it as reviewed: toolcrib review {tool.name}"))
    return sheet


async def _run(project: Project, call: Call) -> Result:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    told: list[str] = []

    def heard(done: float, total: float | None, message: str) -> None:
        of = f"/{total:g}" if total is not None else ""
        told[:] = [printable(f"{done:g}{of} {message}".strip())]

    call.on_progress = heard
    async with project:
        shown = asyncio.create_task(_show_progress(call.tool, told))
        try:
            return await project.invoke(call)
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)


async def _show_progress(name: str, told: list[str]) -> None:
    """A line on a terminal that says what runs and for how long, once it has run for a while."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.sleep(_QUIET_S)
    if not sys.stderr.isatty():
        note(f"{name} is running …")
        return
    try:
        while True:
            text = f"{name} runs for {loop.time() - started:.1f} s {' '.join(told)}"
            note(f"\r\x1b[K{text[: _columns() - 1]}", nl=False)
            await asyncio.sleep(0.1)
    finally:
        note("\r\x1b[K", nl=False)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _show_log() -> None:
    """Tools' own output beside their results, and their tracebacks, on standard error."""

    class ToStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(printable(record.getMessage()))

    logger = logging.getLogger("toolcrib.tools")
    logger.setLevel(logging.INFO)
    logger.addHandler(ToStderr())


def _add_hint(error: Any, call: Call, words: tuple[str, ...]) -> None:
    """Say how a number or list is written, where text was given for one."""
    import orjson

    for violation in error.violations if error.code == "invalid_input" else ():
        key = violation.path.removeprefix("$.")
        text = call.arguments.get(key) if isinstance(call.arguments, dict) else None
        if not isinstance(text, str) or f"{key}={text}" not in words or "type" not in violation.message:
            continue
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        error.hint = f"{key}={text} gives text; for a value of another type write {key}:={text}"


def _print_value(value: Any) -> None:
    if value and isinstance(value, str):
        say(value, nl=not value.endswith("\n"))
    elif value is not None and value != "":
        write_json(value)
