"""Options that choose calls or runs by what they have in common, and changes of all that match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from toolcrib.cli.arguments import moment
from toolcrib.cli.caller import caller_of
from toolcrib.cli.commands.run.unserved import note_if_unserved
from toolcrib.cli.confirm import ask
from toolcrib.cli.options import yes_option
from toolcrib.cli.output import one_line, print_change, print_note
from toolcrib.errors import Cancelled, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.durable.calls import ProjectCalls
    from toolcrib.runs.agents.runs import AgentRuns
    from toolcrib.runs.filters import Change, Filters

F = TypeVar("F", bound=Callable[..., Any])
_NAMES = ("state", "tool", "agent", "session_id", "caller", "since", "until")


def filter_options(noun: str, states: Sequence[str]) -> Callable[[F], F]:
    """Add the options of a filter; the command gets those that were given as `filters`."""
    options = (
        click.option("--state", type=click.Choice(states), help=f"Only {noun} in this state."),
        click.option("--tool", metavar="NAME", help=f"Only {noun} of this tool."),
        click.option("--agent", metavar="NAME", help=f"Only {noun} of this agent."),
        click.option("--session", "session_id", metavar="ID", help=f"Only {noun} of this session."),
        click.option("--caller", help=f"Only {noun} of this caller: cli, token:NAME, …"),
        click.option("--since", type=moment, metavar="TIME", help="From this time on, or 10m, 2h, 3d ago."),
        click.option("--until", type=moment, metavar="TIME", help="Up to this time."),
    )

    def add(command: F) -> F:
        @wraps(command)
        def run(*words: Any, **rest: Any) -> Any:
            given = {name: rest.pop(name) for name in _NAMES}
            filters = {name: value for name, value in given.items() if value is not None}
            for name in ("since", "until"):
                if name in filters:
                    filters[name] = filters[name].timestamp()
            return command(*words, filters=filters, **rest)

        for option in reversed(options):
            run = option(run)
        return cast("F", run)

    return add


def many_options(noun: str, states: Sequence[str]) -> Callable[[F], F]:
    """Add the options of a filter and `--yes`, for a command that changes one, or all that match."""
    add = filter_options(noun, states)
    return lambda command: add(yes_option(command))


def mine(filters: Filters, whose: str | None) -> Filters:
    """Return the filters for a client that may see only what this caller made; None: all."""
    if whose is None:
        return filters
    if filters.get("caller") not in (None, whose):
        raise UsageError(f"this token may see only its own: {whose}")
    return {**filters, "caller": whose}


def made_by(project: Project) -> str | None:
    """Return the caller of a token, whose calls and runs alone it may retry; None for this machine's user."""
    caller, identity = caller_of(project)
    return None if identity is None else caller


def change_all(
    project: Project,
    noun: Literal["calls", "runs"],
    change: Change,
    filters: Filters,
    whose: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    """Ask about the number of calls or runs that match, change them, and print what was done.

    `whose` as of `mine`. Raises Cancelled if the person declines, DeniedError if nobody can be asked.
    """
    these: ProjectCalls | AgentRuns = project.calls if noun == "calls" else project.runs
    filters = mine(filters, whose)
    if not (count := these.count(change, **filters)):
        print_change(as_json, {"done": [], "refused": {}}, f"There is nothing to {change}.")
        return 0
    if not yes and ask(f"{change.capitalize()} {count:,}?") is None:
        raise Cancelled("nothing was changed")
    changed = (these.cancel_all if change == "cancel" else these.retry_all)(**filters)
    print_change(as_json, changed._asdict(), f"{change}: {len(changed.done):,}")
    if not as_json:
        for id_, reason in changed.refused.items():
            print_note(f"{id_}: {one_line(reason)}")
    if change == "retry" and changed.done:
        note_if_unserved(project, set(), waits=f"toolcrib {noun} wait ID")
    return 1 if changed.refused else 0
