"""`toolcrib trace`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
    write_json,
)

if TYPE_CHECKING:
    from toolcrib.project.trace import Trace
    from toolcrib.spec import Result

__all__ = ["command"]


@click.command("trace")
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@root_option
@json_option
@click.option(
    "--approve", is_flag=True, help="Agree to this one call of a tool that needs a person's approval."
)
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Limit of one attempt, in milliseconds.")
@click.option("--allow-read", multiple=True, metavar="PATH", help="Grant PATH for this run (repeatable).")
@click.option("--allow-write", multiple=True, metavar="PATH", help="The same for writing.")
@click.option(
    "--allow-host", multiple=True, metavar="HOST", help="Let it reach HOST in this run (repeatable)."
)
@click.option("--allow-env", multiple=True, metavar="NAME", help="Pass this variable on (repeatable).")
def command(
    tool: str,
    arguments: tuple[str, ...],
    root: str | None,
    as_json: bool,
    approve: bool,
    timeout_ms: int | None,
    allow_read: tuple[str, ...],
    allow_write: tuple[str, ...],
    allow_host: tuple[str, ...],
    allow_env: tuple[str, ...],
) -> int:
    """Run TOOL watched, and print the smallest permissions that this run needed.

    It gets what its manifest grants and what is allowed here for this one run, nothing else. PATHs start at
    the project root. The block is ready to paste; what the tool asked for and was not granted stands below
    it, as comments. Nothing is changed. ARGUMENTS are those of `run`.

    Exit 0 when the tool ran, whatever came of it.
    """
    from toolcrib.cli.arguments import parse_arguments
    from toolcrib.cli.commands.look.show import find_tool
    from toolcrib.cli.commands.run.run import result_of
    from toolcrib.errors import ToolcribError, UsageError
    from toolcrib.project import Project
    from toolcrib.project.trace import Allowed, Trace
    from toolcrib.spec import Call

    call = Call(tool, parse_arguments(arguments), caller="cli", timeout_ms=timeout_ms)
    project = Project.open(root)
    allowed = Allowed(allow_read, allow_write, allow_host, allow_env)
    trace = None
    try:
        trace = Trace.begin(project, find_tool(project, tool).name, allowed)
    except UsageError:
        raise
    except ToolcribError:
        pass  # The call is refused for the same reason, and recorded.
    try:
        result = result_of(project, call, approve=approve, ask=not as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return tell_interrupted("interrupted: the tool was stopped", as_json=as_json)
    if result.error is not None and (trace is None or not trace.ran(result)):
        return tell_error(result.error, as_json=as_json)
    assert trace is not None
    if as_json:
        write_json(_document(trace, result))
    else:
        _tell(trace, result)
    return 0


def _document(trace: Trace, result: Result) -> dict[str, Any]:
    return {
        "tool": trace.tool.name,
        **trace.block.as_dict(),
        "watched_calls": trace.seen.calls,
        "result": result.as_dict(),
    }


def _tell(trace: Trace, result: Result) -> None:
    name = trace.tool.name
    if result.error is None:
        note(f"{name} ran. Other arguments may need other permissions.")
    else:
        note(printable(f"{name} failed, so this is what it needed until then."))
        tell_error(result.error)
    say(trace.text(), nl=False)
    if trace.block.missing:
        note("Not granted in this run. Where it is right, allow it and trace again:")
        for line in trace.block.missing:
            note(printable(f"  {trace.flag(line)}"))
