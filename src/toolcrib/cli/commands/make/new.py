"""`toolcrib new`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable

import click

from toolcrib.cli.confirm import at_terminal
from toolcrib.cli.options import project_options
from toolcrib.cli.output import print_diagnostics, print_json, print_note
from toolcrib.errors import UsageError

_KINDS = ("command", "python", "http", "file", "sql", "composite")
_QUESTIONS = {
    "command": "What does it run? (such as: wc -l ${path})",
    "http": "Which URL? (such as: https://api.example.com/v1/${id})",
    "file": "Which folder does it read?",
    "sql": "Which statement? (such as: SELECT * FROM things WHERE id = ${id})",
    "composite": "Which tool is its first step?",
}


@click.command("new")
@click.argument("name")
@click.option("--kind", type=click.Choice(_KINDS), help="How it runs (default: asked for, or command).")
@click.option("--description", help="Its purpose, for the model that chooses it.")
@click.option("--run", "runs", help="The command line, URL, folder, SQL statement or tool.")
@click.option(
    "--argument", "arguments", multiple=True, metavar="NAME[:TYPE]", help="An argument. Repeatable."
)
@click.option("--read", multiple=True, metavar="PATH", help="A path that it may read. Repeatable.")
@click.option("--write", multiple=True, metavar="PATH", help="A path that it may write. Repeatable.")
@click.option("--sqlite", "database", help="The SQLite file of an SQL tool (default: asked for, or data.db).")
@project_options
def command(
    name: str,
    kind: str | None,
    description: str | None,
    runs: str | None,
    arguments: tuple[str, ...],
    read: tuple[str, ...],
    write: tuple[str, ...],
    database: str | None,
    root: str | None,
    as_json: bool,
) -> int:
    """Create a manifest for a new tool.

    At a terminal it asks for what is not given. `${name}` in --run is an argument of the tool.
    """
    from toolcrib.manifest import lint_tool
    from toolcrib.project import find
    from toolcrib.project.authoring.scaffold import Scaffold, require_free
    from toolcrib.project.authoring.scaffold import write as write_files

    if not name.isidentifier() or not name.isascii():
        hint = f"Use letters, digits and underscores, such as {re.sub(r'[^A-Za-z0-9]+', '_', name)}"
        raise UsageError(f"{name!r} is not the name of a tool", hint=hint)
    ask = at_terminal() and not as_json
    place = find(root)
    require_free(place, name)
    typed = _typed(arguments)
    if kind is None:
        kind = _kind(_asked(f"Which kind? ({', '.join(_KINDS)}) [command]", ask, _kind))
    description = description or _asked("What is it for? (one sentence)", ask)
    if runs is not None:
        _usable(name, kind, runs)
    elif kind in _QUESTIONS:
        runs = _asked(_QUESTIONS[kind], ask, lambda answer: _usable(name, kind, _needed(answer)))
    if kind == "sql" and database is None:
        database = _asked("Which SQLite file? [data.db]", ask)
    if not typed and kind != "file":
        question = "Further arguments? (such as: path count:integer)"
        typed = _typed(_asked(question, ask, lambda answer: _typed(answer.split())).split())
    if kind in ("command", "python"):
        read = read or tuple(_asked("Which folders may it read? (such as: src docs)", ask).split())
        write = write or tuple(_asked("Which folders may it write?", ask).split())
    purpose = description or name.replace("_", " ").capitalize()
    made = Scaffold(name, kind, purpose, runs or "", typed, read, write, database or "data.db")
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
        return _first_run(name, made.example(), root)
    print_note(f"Next: toolcrib run {name} {made.example()}".rstrip())
    return 0


def _first_run(name: str, needed: str, root: str | None) -> int:
    from toolcrib.cli.commands.run.run import command as run

    given = shlex.split(_asked(f"With which arguments? ({needed})", ask=True)) if needed else []
    return int(click.get_current_context().invoke(run, tool=name, arguments=tuple(given), root=root))


def _kind(answer: str) -> str:
    from toolcrib.spec.naming import nearest

    kind = answer if answer in _KINDS else nearest(answer, _KINDS) if answer else "command"
    if kind is None:
        raise UsageError(f"there is no kind {answer!r}")
    return kind


def _needed(answer: str) -> str:
    if not answer:
        raise UsageError("This cannot be left out")
    return answer


def _usable(name: str, kind: str, runs: str) -> None:
    """Raise UsageError for what a tool of this kind cannot run."""
    from toolcrib.project.authoring.scaffold import Scaffold

    Scaffold(name, kind, "", runs, {}).manifest()


def _typed(arguments: Iterable[str]) -> dict[str, str]:
    from toolcrib.project.authoring.scaffold import check_argument

    pairs = (argument.partition(":") for argument in arguments)
    typed = {name: type_ or "string" for name, _, type_ in pairs}
    for pair in typed.items():
        check_argument(*pair)
    return typed


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
