"""`toolcrib sidecar`."""

from __future__ import annotations

import asyncio
import os
import signal

import click

from toolcrib.cli.output import print_note
from toolcrib.spec import LEVELS, Level


@click.command("sidecar")
@click.option("--ipc", default="/ipc", show_default=True, help="The folder that the pod's containers share.")
@click.option(
    "--target", "targets", multiple=True, help="Serve requests for this target, besides those for none."
)
@click.option(
    "--workspace", help="The folder of the commands (default: /workspace if it exists, else this one)."
)
@click.option(
    "--own-workspace",
    is_flag=True,
    help="Only the agent uses the workspace: commands may also write .git, AGENTS.md and the like there.",
)
@click.option("--read", multiple=True, help="A folder or file that commands may read; repeat for more.")
@click.option(
    "--network", help="Hosts that commands may reach, as `a.example,b.example`; `public` or `host` for more."
)
@click.option("--env", multiple=True, help="A variable that commands get; repeat for more.")
@click.option("--owner", "owners", type=int, multiple=True, help="A user id whose requests count too.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option(
    "--sandbox-minimum",
    type=click.Choice(LEVELS),
    default="full",
    show_default=True,
    help="The lowest sandbox level that commands may run at.",
)
def command(
    ipc: str,
    targets: tuple[str, ...],
    workspace: str | None,
    own_workspace: bool,
    read: tuple[str, ...],
    network: str | None,
    env: tuple[str, ...],
    owners: tuple[int, ...],
    concurrency: int,
    sandbox_minimum: Level,
) -> None:
    """Run the commands of an agent runner, confined, until SIGTERM.

    Requests and results are files in IPC/tools, as Sympozium has them. Commands may write the workspace, read
    what --read names, and reach what --network names.
    """
    from toolcrib.core.signals import stopping
    from toolcrib.pods.protocol import WORKSPACE
    from toolcrib.pods.sidecar import Box, serve_sidecar
    from toolcrib.spec import Network

    # The pod's other containers may have other users: they share a group.
    os.umask(0o007)
    ipc, folder = os.path.abspath(ipc), workspace or (WORKSPACE if os.path.isdir(WORKSPACE) else os.getcwd())
    ways = {None: False, "public": True, "host": "host"}
    way = ways[network] if network in ways else {"allow": str(network).split(",")}
    box = Box(
        os.path.abspath(folder),
        tuple(map(os.path.abspath, read)),
        Network.parse(way),
        env,
        sandbox_minimum,
        own_workspace,
    )

    async def serve() -> None:
        stop = asyncio.Event()
        with stopping(stop.set, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            await serve_sidecar(
                ipc,
                box,
                targets=targets,
                owners=owners,
                concurrency=concurrency,
                stop=stop,
                ready=lambda spool: print_note(f"serving {spool.path}, commands in {folder}"),
            )

    asyncio.run(serve())
    print_note("stopped")
