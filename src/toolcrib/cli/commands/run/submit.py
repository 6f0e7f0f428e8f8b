"""`toolcrib submit`."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.arguments import call_command, complete_tool, parse_arguments
from toolcrib.cli.caller import caller_of
from toolcrib.cli.options import open_project, project_options, timeout_option
from toolcrib.cli.output import print_json, print_note, print_result, print_warnings


@call_command("submit")
@click.argument("tool", shell_complete=complete_tool)
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
def command(tool: str, arguments: tuple[str, ...], root: str | None, as_json: bool, **how: Any) -> None:
    """Store a call that a worker runs, and print its id.

    TOOL and ARGUMENTS are those of `toolcrib run`. The call survives the end of any process. A worker runs
    it, or whoever waits for it: `toolcrib calls wait ID`.
    """
    from toolcrib.cli.commands.look.show import find_tool

    project = open_project(root)
    print_warnings(project)
    caller, identity = caller_of(project)
    found = find_tool(project, tool)
    given = parse_arguments(arguments, found.input_schema)
    call_id = project.submit(found.name, given, caller=caller, identity=identity, **how)
    if as_json:
        print_json(project.calls.find(call_id).as_dict())
    else:
        print_result(call_id)
        print_note(f"To wait for its result: toolcrib calls wait {call_id}")
