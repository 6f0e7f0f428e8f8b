"""`toolcrib status`."""

from __future__ import annotations

import click

from toolcrib.cli.options import FileCommand, open_project, project_options
from toolcrib.cli.output import cut_names, one_line, print_json, print_note, print_result
from toolcrib.cli.table import print_table


@click.command("status", cls=FileCommand)
@project_options
def command(root: str | None, as_json: bool) -> int:
    """Show workers, queue, and what waits or cannot be used.

    The exit code is 1 if calls or runs wait for a worker that is not there.
    """
    from toolcrib.project.reports import waiting_in

    project = open_project(root, load=False)
    status = {**project.calls.status(), "trust": waiting_in(project)}
    status["unusable"] = [] if project.servers is None else project.servers.unusable()
    runs = project.runs.store.counts() if project.has_state else {}
    status["runs"] = {state: runs.get(state, 0) for state in ("queued", "ready", "running", "waiting")}
    alarms = [
        f"no worker has {one_line(tool)}; its calls wait until one is started" for tool in status["unserved"]
    ]
    if status["runs"]["ready"] and not status["workers"]:
        alarms.append(f"nothing continues {status['runs']['ready']:,} runs until a worker is started")
    if as_json:
        print_json(status)
        return 1 if alarms else 0
    if status["workers"]:
        print_table(
            ("WORKER", "KIND", "RUNNING", "SEEN", "TOOLS"),
            [
                (one["name"], one["kind"], str(one["running"]), one["seenAt"], cut_names(one["tools"]))
                for one in status["workers"]
            ],
        )
    else:
        print_note("No worker runs.")
    for one in status["workers"]:
        for reason, names in one["refused"].items():
            print_note(f"{one['name']} does not serve {cut_names(names)}: {one_line(reason)}")
    for what in ("calls", "runs"):
        states = ", ".join(f"{count:,} {state}" for state, count in status[what].items() if count)
        print_result(f"{what} under way: {states or 'none'}")
    for one in status["queue"]:
        print_result(
            f"queue: {one['ready']:,} of {one_line(one['tool'])}, the oldest for {one['waitsS']:g} s"
        )
    if waiting := status["trust"]:
        how = project.place.trust
        print_note(f"{len(waiting)} wait for trust: {cut_names(waiting)}. To see them: {how}")
    for line in status["unusable"]:
        print_note(one_line(line))
    for alarm in alarms:
        print_note(f"alarm: {alarm}")
    return 1 if alarms else 0
