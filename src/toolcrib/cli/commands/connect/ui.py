"""`toolcrib ui`."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click

from toolcrib.cli.commands.connect.serve import require_http, serve_until_signal
from toolcrib.cli.confirm import require_person
from toolcrib.cli.options import FileCommand, root_option
from toolcrib.cli.output import print_note, print_result


@click.command("ui", cls=FileCommand)
@root_option
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8745, help="The port of a server that it starts."
)
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@click.option("--data", type=click.Path(path_type=Path), help="Your data folder (default: TOOLCRIB_DATA).")
def command(root: str | None, port: int, only_print: bool, data: Path | None) -> None:
    """Open the web page of the project.

    If a server of the project runs (`toolcrib serve --http`), it gives the link; otherwise this command
    starts one, and serves until Ctrl-C. The link works once, within 15 minutes, and whoever opens it decides
    for you.
    """
    require_person("approve")
    require_http()
    from toolcrib.project import Project, find
    from toolcrib.serve.process import run_until_end
    from toolcrib.serve.rest import HttpSettings, running_link
    from toolcrib.state import Vault

    def show(link: str) -> None:
        print_result(link)
        # Without a display a browser would be one of text, in this terminal.
        if not only_print and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(link)

    link = running_link(Vault(find(root).path, data))
    if link is not None:
        show(link)
        return

    def announce(addresses: Sequence[str], link: str) -> None:
        print_note(f"Serving {addresses[0]} until Ctrl-C.")
        show(link)

    run_until_end(serve_until_signal(Project.open(root, data=data), HttpSettings(port=port), announce))
