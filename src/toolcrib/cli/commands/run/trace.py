"""`toolcrib trace`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.arguments import call_command, complete_tool, parse_arguments
from toolcrib.cli.commands.look.show import find_tool, input_schema
from toolcrib.cli.commands.run.run import result_of
from toolcrib.cli.confirm import ask, require_person
from toolcrib.cli.options import approve_option, project_options, timeout_option
from toolcrib.cli.output import print_error, print_interrupted, print_json, print_note, print_result
from toolcrib.errors import ConflictError, ToolcribError, UsageError
from toolcrib.spec import Call, Result
from toolcrib.state.private import diff_of

if TYPE_CHECKING:
    from toolcrib.project.trace import Trace


@call_command("trace", click.Command)
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@project_options
@approve_option
@timeout_option
@click.option(
    "--allow-read", "read", multiple=True, metavar="PATH", help="Allow reading PATH in this run. Repeatable."
)
@click.option(
    "--allow-write",
    "write",
    multiple=True,
    metavar="PATH",
    help="Allow writing PATH in this run. Repeatable.",
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="HOST", help="Allow HOST in this run. Repeatable."
)
@click.option(
    "--allow-env",
    "env",
    multiple=True,
    metavar="NAME",
    help="Pass an environment variable in this run. Repeatable.",
)
@click.option("--apply", is_flag=True, help="Write the block, with folders, into the manifest. Asks first.")
def command(
    tool: str,
    arguments: tuple[str, ...],
    root: str | None,
    as_json: bool,
    approve: bool,
    timeout_ms: int | None,
    apply: bool,
    **allowed: tuple[str, ...],
) -> int:
    """Run one tool and print the smallest permissions it needed.

    The run gets the permissions of the manifest, and those of the --allow options. PATH is relative to the
    project's folder. The printed block can be pasted into the manifest; --apply writes it, with folders in
    place of single files where it names them. Requests that were refused follow as comments. ARGUMENTS are
    written as for `toolcrib run`.

    Exit 0 if the tool ran, even if it failed.
    """
    from toolcrib.cli.commands.decide.accepting import accepted_project
    from toolcrib.project.trace import Allowed, Trace

    # Before the run, so that nobody waits for it in vain.
    if apply:
        require_person("trust")
    project = accepted_project(root, ask=not as_json)
    given = parse_arguments(arguments, input_schema(project, tool))
    call = Call(tool, given, caller="cli", timeout_ms=timeout_ms)
    trace = None
    try:
        trace = Trace.begin(project, find_tool(project, tool).name, Allowed(**allowed))
    except UsageError:
        raise
    except ToolcribError:
        pass  # The call is refused for the same reason, and recorded.
    try:
        # What is allowed for this run is no part of the tool that a person trusts.
        once = any(allowed.values())
        result = result_of(project, call, approve=approve, ask=not as_json, once=once)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return print_interrupted("interrupted: the tool was stopped", as_json=as_json)
    if result.error is not None and (trace is None or not trace.ran(result)):
        return print_error(result.error, as_json=as_json)
    assert trace is not None
    if as_json:
        print_json({"tool": trace.tool.name, **trace.as_dict(), "result": result.as_dict()})
    else:
        _print(trace, result)
    if apply and result.error is not None and trace.block.missing:
        print_note("Nothing was written: with this block the tool would fail again.")
    elif apply:
        _apply(trace)
    return 0


def _apply(trace: Trace) -> None:
    """Show what changes in the manifest, ask, and write it."""
    from toolcrib.manifest import load
    from toolcrib.state.private import put_file

    source = trace.tool.source
    if source is None or source.dialect != "native":
        raise UsageError(f"{trace.tool.name} has no tool.yml", hint="Write its permissions by hand.")
    path = Path(source.path)
    document = load(path.read_bytes(), source.path)
    text = trace.applied(document)
    diff = diff_of(path, document.text, text)
    if not diff:
        print_note(f"{path} has these permissions already.")
        return
    print_note(diff, nl=False)
    if ask("Write it?") is None:
        print_note("Nothing was written.")
        return
    # Not `replace_file`, which reads as text: it takes other line ends for a change.
    if path.read_bytes() != document.raw:  # An editor may have saved while the question was open.
        raise ConflictError(f"{path} has just changed", hint="Run the command again.")
    put_file(path, text.encode(), mode=path.stat().st_mode & 0o777)
    print_note(f"changed {path}")


def _print(trace: Trace, result: Result) -> None:
    name = trace.tool.name
    if result.error is None:
        print_note(f"{name} ran. Other arguments may need other permissions.")
    else:
        print_note(f"{name} failed. These are the permissions that it needed until then.")
        result.error.hint = None  # it would point to this command
        print_error(result.error)
    print_result(trace.text(), nl=False)
    if trace.block.missing:
        print_note("These requests were refused. To allow one, add its option and trace again:")
        for line in trace.block.missing:
            print_note(f"  {trace.flag(line)}")
