"""`toolcrib pod-run`."""

from __future__ import annotations

import asyncio
import logging
import os

import click

from toolcrib.cli.output import print_error, print_json, print_result


@click.command("pod-run")
@click.option("--ipc", default="/ipc", show_default=True, help="The folder that the pod's containers share.")
@click.option("--workspace", default="/workspace", show_default=True, help="The folder of the agent's work.")
@click.option("--skills", default="/skills", show_default=True, help="The folder of its skills.")
@click.option("--state", default="/state", show_default=True, help="The folder that keeps the run.")
@click.option("--recorded", is_flag=True, help="Exit 0 also if the run fails: its result is recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(as_json: bool, recorded: bool, **folders: str) -> int:
    """Run the task that the environment describes, and print the answer.

    TASK, MODEL_PROVIDER and MODEL_NAME must be set. A runner that is started again with the same --state
    continues its run. Exit 1 if the run fails.
    """
    from toolcrib.errors import ToolFailed
    from toolcrib.pods.runner import Folders, PodRunner, Task

    # The pod's other containers may have other users: they share a group.
    os.umask(0o007)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("toolcrib.pods").setLevel(logging.INFO)
    made = Folders(**{name: os.path.abspath(path) for name, path in folders.items()})
    result = asyncio.run(PodRunner(Task.of(os.environ), made).run())
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(result))
    elif result.status == "success":
        print_result(result.response)
    else:
        print_error(ToolFailed(result.error))
    return 0 if recorded or result.status == "success" else 1
