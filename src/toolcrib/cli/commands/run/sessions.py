"""`toolcrib runs sessions`."""

from __future__ import annotations

import json

import click

from toolcrib.cli.caller import caller_of, seen_by
from toolcrib.cli.options import open_project, page_options, project_options
from toolcrib.cli.output import print_shown
from toolcrib.cli.table import print_listing


@click.group("sessions")
def command() -> None:
    """List and create sessions: conversations with agents."""


@command.command("list")
@project_options
@page_options("session")
def list_command(root: str | None, as_json: bool, limit: int, before: str | None) -> None:
    """List sessions, the newest first."""
    project = open_project(root, load=False)
    found = project.runs.store.sessions(limit, before=before, caller=seen_by(project))
    print_listing(
        as_json,
        "sessions",
        [one.document for one in found],
        ("ID", "CALLER", ("CREATED", "createdAt"), ("ACTIVE RUN", "activeRunId"), "METADATA"),
        empty="There are no sessions.",
        limit=limit,
    )


@command.command("create")
@project_options
@click.option("--metadata", default="{}", help="A JSON object for its owner.")
def create_command(root: str | None, as_json: bool, metadata: str) -> None:
    """Create a session, and print its id."""
    project = open_project(root, load=False)
    caller, _ = caller_of(project)
    try:
        found = json.loads(metadata)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--metadata")
    session_id = project.runs.create_session(found, caller=caller)
    print_shown(as_json, project.runs.store.session(session_id).document, session_id)
