"""`toolcrib schema`."""

from __future__ import annotations

import click

from toolcrib.cli.output import json_option, write_json

__all__ = ["command"]


@click.command("schema")
@click.argument("what", type=click.Choice(["manifest"]))
@json_option
def command(what: str, as_json: bool) -> None:  # noqa: ARG001 - the manifest's is the only one yet, and JSON
    """Print the JSON Schema of the manifest format, for editors and other programs.

    `toolcrib init` puts it beside the tools, where manifests refer to it in their first line.
    """
    from toolcrib.manifest import tool_schema

    write_json(tool_schema())
