"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from toolcrib.cli.caller import admit
from toolcrib.errors import UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project

F = TypeVar("F", bound=Callable[..., Any])


def _name_database(_context: click.Context, _option: click.Parameter, url: str | None) -> None:
    from toolcrib.state import name_database

    name_database(url)


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
    callback=_name_database,
    expose_value=False,
    help="Postgres server for waiting calls, decisions, rates and results (default: DATABASE_URL, or files).",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
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


def open_project(root: str | None) -> Project:
    """Return the project of a command. It is imported here, so that `--help` stays fast."""
    from toolcrib.project import Project

    return Project.open(root)


def page_options(noun: str) -> Callable[[F], F]:
    """Add `--limit` and `--before` to a list of calls, runs, …"""
    limit = click.IntRange(1, 500)

    def add(command: F) -> F:
        before = click.option("--before", metavar="ID", help=f"Show the next page, after the {noun} ID.")
        most = click.option("--limit", type=limit, default=100, help="At most this many (default: 100).")
        return most(before(command))

    return add


def id_or_last(newest: str, group: str) -> Callable[[F], F]:
    """Add `[ID]` and `--last`, of which a command needs one; it gets `chosen`, None for the newest."""

    def add(command: F) -> F:
        @wraps(command)
        def run(*words: Any, id: str | None, last: bool, **rest: Any) -> Any:  # noqa: A002 - the name in the usage
            require_id(id is not None, last, group)
            return command(*words, chosen=id, **rest)

        option = click.option("--last", is_flag=True, help=f"The newest {newest}, in place of an ID.")
        return cast("F", click.argument("id", required=False)(option(run)))

    return add


def require_id(given: bool, last: bool, group: str) -> None:
    """Refuse a command that has neither an ID nor `--last`, or both: `UsageError`."""
    if given is last:
        raise UsageError("give an ID, or --last", hint=f"To see them: toolcrib {group} list")
