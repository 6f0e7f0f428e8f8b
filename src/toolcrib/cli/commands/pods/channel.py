"""`toolcrib channel`."""

from __future__ import annotations

import asyncio
import os

import click

from toolcrib.cli.output import print_note
from toolcrib.errors import UsageError

_NAMES = ("telegram", "discord", "slack", "whatsapp", "webhook", "console")


@click.command("channel")
@click.argument("name", type=click.Choice(_NAMES))
@click.option("--listen", metavar="HOST:PORT", help="Accept the service's requests here.")
@click.option(
    "--give-up",
    "give_up_s",
    type=click.FloatRange(min=1),
    default=3_600.0,
    help="Seconds until a message is a dead letter (default: 3600).",
)
def command(name: str, listen: str | None, give_up_s: float) -> None:
    """Deliver messages from NATS to one service, until SIGTERM or Ctrl-C.

    What allowed people write there is published on NATS. All settings are environment variables: NATS_URL
    and those of the service, such as TELEGRAM_TOKEN and TELEGRAM_OWNER.
    """
    from toolcrib.egress import Egress
    from toolcrib.pods.bus import Bus
    from toolcrib.pods.channels.serving import ChannelProcess
    from toolcrib.pods.channels.table import open_channel
    from toolcrib.pods.running import until_stopped

    place = None if listen is None else _place(listen)

    async def serve() -> None:
        async with Egress() as egress:
            channel = open_channel(name, os.environ, egress)
            bus = await Bus.connect(os.environ)
            try:
                print_note(f"delivering to {name}")
                await ChannelProcess(channel, bus, give_up_s).run(place)
            finally:
                await bus.aclose()

    asyncio.run(until_stopped(serve()))
    print_note("stopped")


def _place(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"--listen {listen} is not HOST:PORT", hint="Such as 127.0.0.1:8080.")
    return host.strip("[]"), int(port)
