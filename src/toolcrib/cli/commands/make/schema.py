"""`toolcrib schema`."""

from __future__ import annotations

import click

from toolcrib.cli.options import json_option
from toolcrib.cli.output import print_json


@click.command("schema")
@click.argument("what", type=click.Choice(["manifest", "agent"]))
@json_option
def command(what: str, as_json: bool) -> None:  # noqa: ARG001 - it is JSON in any case
    """Print the JSON Schema of tool.yml, or of an agent's file.

    Editors use it to check and complete manifests. `toolcrib init` writes it into the project, and the first
    line of a manifest can refer to it.
    """
    if what == "agent":
        from toolcrib.runs.agents import agent_schema

        print_json(agent_schema())
    else:
        from toolcrib.manifest import tool_schema

        print_json(tool_schema())
