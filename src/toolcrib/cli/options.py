"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from toolcrib.cli.caller import admit
from toolcrib.cli.output import keep_output, print_settings_note
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
    type=click.Path(),
    callback=admit,
    help="The project: a folder, or FILE.py[:OBJECT] (default: TOOLCRIB_ROOT, or the nearest one above).",
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


class FileCommand(click.Command):
    """A command whose project can be named by its first word, `FILE.py[:OBJECT]`, instead of by `--root`."""

    after = 0
    """Number of words before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the word of the file out of the arguments, and put it in as `--root`."""
        if not ctx.resilient_parsing:
            args = self._with_root(ctx, list(args))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage, with that word."""
        options, *words = super().collect_usage_pieces(ctx)
        return [options, *words[: self.after], "[FILE.py[:OBJECT]]", *words[self.after :]]

    def _with_root(self, ctx: click.Context, args: list[str]) -> list[str]:
        from toolcrib.project.root import is_program

        given, more, _ = self.make_parser(ctx).parse_args(list(args))
        own = [one for one in self.params if isinstance(one, click.Argument)]
        words: list[Any] = []
        for one in own:
            value = given.get(str(one.name))
            words += [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        words = [*words, *more][self.after :]
        if not words or not is_program(words[0]):
            if words and len(own) == self.after:
                raise _no_program(words[0])
            return args
        file = words[0]
        if given.get("root") or ctx.find_root().params.get("root"):
            raise UsageError(f"--root and {file} name two projects", hint="Leave one of them out.")
        if len(words) == 1 and any(one.required for one in own[self.after :]):
            raise UsageError(f"name a tool of {file} too", hint=f"To see them: toolcrib list {file}")
        # The words of a tool may begin with a dash, so the option comes first.
        args.remove(file)
        return ["--root", file, *args]


class HostCommand(FileCommand):
    """A command with one word before that of the file."""

    after = 1


def _no_program(text: str) -> UsageError:
    """Return the error of a word in place of a program that does not name a Python file."""
    file, *name = text.split(":", 1)
    there = Path(f"{file}.py").is_file()
    hint = f"Write {':'.join([f'{file}.py', *name])}" if there else f"For another project: --root {text}"
    return UsageError(f"{text} is not a Python file", hint=hint)


def open_project(root: str | None, *, data: Path | None = None, load: bool = True) -> Project:
    """Return the project of a command. It is imported here, so that `--help` stays fast.

    `load=False` is for commands that look at what is stored: the code of a Python file does not run.
    """
    from toolcrib.project import Project

    project = Project.open(root, data=data, load=load)
    print_settings_note(project)
    if load and project.place.file is not None:
        keep_output()
    return project


def page_options(noun: str) -> Callable[[F], F]:
    """Add `--limit` and `--before` to a list of calls, runs, …"""
    limit = click.IntRange(1, 500)

    def add(command: F) -> F:
        before = click.option("--before", metavar="ID", help=f"Show the next page, after the {noun} ID.")
        most = click.option("--limit", type=limit, default=100, help="At most this many (default: 100).")
        return most(before(command))

    return add


def id_or_last(newest: str, group: str) -> Callable[[F], F]:
    """Add `[ID]` and `--last`, of which a command needs one; it gets `chosen`, None for the newest.

    A command that also gets `filters` needs neither if there are some.
    """

    def add(command: F) -> F:
        @wraps(command)
        def run(*words: Any, id: str | None, last: bool, **rest: Any) -> Any:  # noqa: A002 - the name in the usage
            if not (filters := rest.get("filters")):
                require_id(id is not None, last, group)
            elif last or id is not None:
                raise UsageError(f"an ID and a filter name two things: {', '.join(filters)}")
            return command(*words, chosen=id, **rest)

        option = click.option("--last", is_flag=True, help=f"The newest {newest}, in place of an ID.")
        return cast("F", click.argument("id", required=False)(option(run)))

    return add


def require_id(given: bool, last: bool, group: str) -> None:
    """Refuse a command that has neither an ID nor `--last`, or both: `UsageError`."""
    if given is last:
        raise UsageError("give an ID, or --last", hint=f"To see them: toolcrib {group} list")
