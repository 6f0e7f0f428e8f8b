"""`toolcrib schema`."""

from __future__ import annotations

import click

from toolcrib.cli.options import json_option
from toolcrib.cli.output import print_json


@click.command("schema")
@click.argument("what", type=click.Choice(["manifest"]))
@json_option
def command(what: str, as_json: bool) -> None:  # noqa: ARG001 - there is only one, and it is JSON
    """Print the JSON Schema of the manifest format.

    Editors use it to check and complete manifests. `toolcrib init` writes it into the project, and the first
    line of a manifest can refer to it.
    """
    from toolcrib.manifest import tool_schema

    print_json(tool_schema())
