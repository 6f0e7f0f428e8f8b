"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from toolcrib.cli.caller import admit

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_root_option = click.option(
    "--root",
    type=click.Path(file_okay=False),
    callback=admit,
    help="The project's folder (default: TOOLCRIB_ROOT, or the nearest project above).",
)
_database_option = click.option(
    "--database",
    metavar="URL",
    callback=lambda _ctx, _param, value: _name_database(value),
    expose_value=False,
    help="Postgres server for waiting calls, decisions, rates and results (default: DATABASE_URL, or files).",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask; required without a terminal.")
approve_option = click.option(
    "--approve", is_flag=True, help="Approve this one call, if it needs a person's approval."
)
timeout_option = click.option(
    "--timeout-ms", type=click.IntRange(min=1), help="Time limit of one attempt, in milliseconds."
)


def root_option(command: F) -> F:
    """Add `--root`, which the command gets, and `--database`, which it need not know."""
    return _root_option(_database_option(command))


def project_options(command: F) -> F:
    """Add `--root` and `--json`, in this order."""
    return root_option(json_option(command))


def _name_database(url: str | None) -> None:
    from toolcrib.state import name_database

    name_database(url)
