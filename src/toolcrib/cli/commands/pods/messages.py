"""`toolcrib messages`."""

from __future__ import annotations

import click

from toolcrib.cli.options import open_project, page_options, project_options
from toolcrib.cli.output import print_change, print_shown
from toolcrib.cli.table import facts, print_listing

_STATES = ("queued", "published", "delivered", "dead", "retried")


@click.group("messages")
def command() -> None:
    """List messages to people on channels, and send dead letters again."""


@command.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only these.")
@project_options
@page_options("message")
def list_command(root: str | None, as_json: bool, state: str | None, limit: int, before: str | None) -> None:
    """List messages, the newest first.

    A dead letter is one that its service does not take, or that could not be delivered in time.
    """
    found = open_project(root, load=False).messages.page(state, limit, before)
    print_listing(
        as_json,
        "messages",
        [one.as_dict() for one in found],
        (
            "ID",
            "STATE",
            ("CHANNEL", lambda one: one["data"].get("channel")),
            ("CHAT", lambda one: one["data"].get("chatId") or "owner"),
            ("QUEUED", "queuedAt"),
            ("TEXT", lambda one: one["error"] or one["data"].get("text")),
        ),
        empty="There are no messages.",
        limit=limit,
    )


@command.command("show")
@click.argument("id")
@project_options
def show_command(id: str, root: str | None, as_json: bool) -> None:  # noqa: A002 - the name in the usage
    """Show one message and its state."""
    found = open_project(root, load=False).messages.find(id).as_dict()
    data = found["data"]
    values = {
        "message": found["id"],
        "state": found["state"],
        "error": found["error"],
        "channel": data.get("channel"),
        "chat": data.get("chatId") or "owner",
        "queued": found["queuedAt"],
        "settled": found["settledAt"],
        "text": data.get("text"),
    }
    print_shown(as_json, found, "\n".join(facts(values)))


@command.command("retry")
@click.argument("id")
@project_options
def retry_command(id: str, root: str | None, as_json: bool) -> None:  # noqa: A002 - as above
    """Send a dead letter again, as a new message."""
    new = open_project(root, load=False).messages.retry(id)
    print_change(as_json, {"id": new}, f"queued again as {new}")
