"""`toolcrib worker`."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import click

from toolcrib.cli.options import FileCommand, root_option
from toolcrib.cli.output import count, cut_names, one_line, print_note, print_warnings

_MB = 1_048_576


@click.command("worker", cls=FileCommand)
@root_option
@click.option("--app", metavar="MODULE:FUNCTION", help="Registers a program's tools: FUNCTION(project).")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=4,
    help="Calls at a time, each in a process (default: 4).",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0),
    default=10.0,
    help="Seconds to drain at SIGTERM (default: 10).",
)
@click.option(
    "--memory-mb", type=click.IntRange(min=128), help="Memory of one executor process (default: no limit)."
)
def command(root: str | None, concurrency: int, memory_mb: int | None, **how: Any) -> None:
    """Run the calls that were submitted, until SIGTERM or Ctrl-C.

    Start as many as you like: each takes the calls of tools that it has and that are trusted on its machine.
    A call whose worker dies continues elsewhere. At SIGTERM a worker takes no more calls, and gives back
    those that do not end in time.
    """
    from toolcrib.cli.commands.decide.accepting import accepted_project
    from toolcrib.runs import Offer, reasons_of

    project = accepted_project(root, ask=True, load=False)
    print_warnings(project)
    memory = None if memory_mb is None else memory_mb * _MB

    def announce(offer: Offer) -> None:
        served = len(offer.tools) - len(offer.refused)
        print_note(f"serving {count(served, 'tool')}, {count(concurrency, 'call')} at a time")
        for reason, names in reasons_of(offer.refused).items():
            print_note(f"not served here: {cut_names(names)}: {one_line(reason)}")

    async def serve() -> None:
        from toolcrib.core.signals import stopping
        from toolcrib.project.worker.supervisor import serve_worker

        stop = asyncio.Event()
        # By default a signal ends the process at once, and its calls wait until their leases end.
        with stopping(stop.set, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            async with project:
                await serve_worker(
                    project, stop, concurrency=concurrency, memory_bytes=memory, announce=announce, **how
                )

    asyncio.run(serve())
    print_note("stopped")
