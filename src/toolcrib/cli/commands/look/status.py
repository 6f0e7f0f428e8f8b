"""`toolcrib status`."""

from __future__ import annotations

import click

from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import one_line, print_json, print_note, print_result
from toolcrib.cli.table import print_table

_MOST = 10


@click.command("status")
@project_options
def command(root: str | None, as_json: bool) -> int:
    """Show the workers, the queue, and calls that nobody can serve.

    The exit code is 1 if there are such calls.
    """
    status = open_project(root).calls.status()
    alarms = status["unserved"]
    if as_json:
        print_json(status)
        return 1 if alarms else 0
    if status["workers"]:
        print_table(
            ("WORKER", "KIND", "RUNNING", "SEEN", "TOOLS"),
            [
                (one["name"], one["kind"], str(one["running"]), one["seen_at"], _names(one["tools"]))
                for one in status["workers"]
            ],
        )
    else:
        print_note("No worker runs.")
    states = ", ".join(f"{count:,} {state}" for state, count in status["calls"].items() if count)
    print_result(f"calls: {states or 'none'}")
    for one in status["queue"]:
        print_result(
            f"queue: {one['ready']:,} of {one_line(one['tool'])}, the oldest for {one['waits_s']:g} s"
        )
    for tool in alarms:
        print_note(f"alarm: no worker has {one_line(tool)}; its calls wait until one is started")
    return 1 if alarms else 0


def _names(tools: list[str]) -> str:
    more = f" and {len(tools) - _MOST} more" if len(tools) > _MOST else ""
    return ", ".join(tools[:_MOST]) + more
