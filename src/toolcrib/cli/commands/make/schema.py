"""`toolcrib schema`."""

from __future__ import annotations

import click

from toolcrib.cli.options import json_option
from toolcrib.cli.output import print_json
from toolcrib.manifest import tool_schema
from toolcrib.runs.agents import agent_schema


@click.command("schema")
@click.argument("what", type=click.Choice(["manifest", "agent"]))
@json_option
def command(what: str, as_json: bool) -> None:  # noqa: ARG001 - it is JSON in any case
    """Print the JSON Schema of tool.yml, or of an agent's file.

    Editors use it to check and complete manifests. `toolcrib init` writes it into the project, and the first
    line of a manifest can refer to it.
    """
    if what == "agent":
        print_json(agent_schema())
    else:
        print_json(tool_schema())
