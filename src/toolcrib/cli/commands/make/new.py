"""`toolcrib new`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable

import click

from toolcrib.cli.confirm import at_terminal
from toolcrib.cli.options import project_options
from toolcrib.cli.output import print_diagnostics, print_json, print_note
from toolcrib.errors import UsageError

_USUAL = "command"


class _Kind(click.ParamType[str]):
    """The name of a kind. Kinds are looked up when they are shown: installed packages may bring some."""

    name = "kind"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - of the base
        """Return the kinds as the help shows them."""
        return f"[{'|'.join(_kinds())}]"


def _complete(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    return [kind for kind in _kinds() if kind.startswith(begun)]


def _kinds() -> list[str]:
    from toolcrib.manifest.kinds import startable

    return startable()


@click.command("new")
@click.argument("name")
@click.option(
    "--kind", type=_Kind(), shell_complete=_complete, help="How it runs (default: asked for, or command)."
)
@click.option("--description", help="Its purpose, for the model that chooses it.")
@click.option("--run", "runs", help="The command line, URL, folder, SQL statement or tool.")
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME[:TYPE][?][=ABOUT]",
    help="An argument, with `?` an optional one, and its description. Repeatable.",
)
@click.option(
    "--read",
    multiple=True,
    metavar="PATH",
    help="A path that it may read. Repeatable. The file of an SQL tool.",
)
@click.option("--write", multiple=True, metavar="PATH", help="A path that it may write. Repeatable.")
@project_options
def command(
    name: str,
    kind: str | None,
    description: str | None,
    runs: str | None,
    arguments: tuple[str, ...],
    read: tuple[str, ...],
    write: tuple[str, ...],
    root: str | None,
    as_json: bool,
) -> int:
    """Create a manifest for a new tool.

    At a terminal it asks for what is not given. `${name}` in --run is an argument of the tool.
    """
    from toolcrib.manifest import lint_tool
    from toolcrib.manifest.starter import Answers
    from toolcrib.project import find
    from toolcrib.project.authoring.scaffold import begin, check_name, require_free, starter_of
    from toolcrib.project.authoring.scaffold import write as write_files

    check_name(name)
    ask = at_terminal() and not as_json
    place = find(root)
    require_free(place, name)
    given = _Arguments(arguments)
    if kind is None:
        question = f"Which kind? ({', '.join(_kinds())}) [{_USUAL}]"
        kind = _nearest(_asked(question, ask, lambda answer: starter_of(_nearest(answer))))
    starter = starter_of(kind)
    description = description or _asked("What is it for? (one sentence)", ask)
    if runs is not None:
        begin(kind, Answers(name, "", runs))
    elif starter.runs:
        runs = _asked(starter.runs, ask, lambda answer: begin(kind, Answers(name, "", _needed(answer))))
    if starter.arguments:
        given.ask(runs or "", ask=ask)
    if starter.reads:
        read = read or tuple(_asked(starter.reads, ask).split())
    if starter.writes:
        write = write or tuple(_asked(starter.writes, ask).split())
    purpose = description or name.replace("_", " ").capitalize()
    about, optional = given.about, frozenset(given.optional)
    made = begin(kind, Answers(name, purpose, runs or "", given.typed, about, optional, read, write))
    paths = write_files(place, made)
    found = lint_tool(paths[0])
    if as_json:
        diagnostics = [one.as_dict() for one in found]
        print_json({"created": [str(path) for path in paths], "diagnostics": diagnostics})
        return 0
    for path in paths:
        print_note(f"created {path}")
    print_diagnostics(found)
    if ask and _asked("Run it now? [y/N]", ask).lower() in ("y", "yes"):
        return _first_run(name, made.example, root)
    print_note(f"Next: toolcrib run {shlex.quote(name)} {made.example}".rstrip())
    return 0


def _first_run(name: str, needed: str, root: str | None) -> int:
    from toolcrib.cli.commands.run.run import command as run

    given = shlex.split(_asked(f"With which arguments? ({needed})", ask=True)) if needed else []
    return int(click.get_current_context().invoke(run, tool=name, arguments=tuple(given), root=root))


def _nearest(answer: str) -> str:
    """Return the kind that a person means; the answer itself if it is like none."""
    from toolcrib.spec.naming import nearest

    return (nearest(answer, _kinds()) or answer) if answer else _USUAL


def _needed(answer: str) -> str:
    if not answer:
        raise UsageError("This cannot be left out")
    return answer


class _Arguments:
    """The arguments of a new tool, as `--argument` has them or a person answers."""

    def __init__(self, words: Iterable[str]) -> None:
        from toolcrib.project.authoring.scaffold import check_argument

        self.typed: dict[str, str] = {}
        self.about: dict[str, str] = {}
        self.optional: set[str] = set()
        for word in words:
            written, _, about = word.partition("=")
            name, _, of = written.removesuffix("?").partition(":")
            check_argument(name, of or "string")
            self.typed[name] = of or "string"
            if about:
                self.about[name] = about
            if written.endswith("?"):
                self.optional.add(name)

    def ask(self, runs: str, *, ask: bool) -> None:
        """Ask for further arguments, for the purpose of each one, and for those that are optional."""
        from toolcrib.manifest.starter import placeholders

        if not self.typed:
            question = "Further arguments? (such as: path count:integer)"
            more = _Arguments(_asked(question, ask, lambda answer: _Arguments(answer.split())).split())
            self.typed, self.optional = more.typed, more.optional
        names = list(dict.fromkeys((*placeholders(runs), *self.typed)))
        for name in names:
            if name not in self.about:
                self.about[name] = _asked(f"What is `{name}`? (one sentence)", ask)
        if names and not self.optional:
            question = f"Which of them may be left out? ({' '.join(names)})"
            self.optional = set(_asked(question, ask, lambda answer: _known(answer, names)).split())


def _known(answer: str, names: list[str]) -> None:
    if unknown := [name for name in answer.split() if name not in names]:
        raise UsageError(f"There is no argument {unknown[0]}", hint=f"The arguments are {', '.join(names)}.")


def _asked(question: str, ask: bool, check: Callable[[str], object] | None = None) -> str:
    """Return the answer of a person, asked again while `check` refuses it; "" where nobody is asked."""
    while ask:
        print_note(f"{question} ", nl=False)
        line = sys.stdin.readline()
        if not line:
            raise click.Abort  # Ctrl-D
        try:
            if check is not None:
                check(line.strip())
        except UsageError as error:
            print_note(f"{error.message}. {error.hint or ''}".rstrip())
        else:
            return line.strip()
    return ""
