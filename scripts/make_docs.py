"""Write the parts of the docs that are made from the code: `make_docs.py`, or `--check` what is out of date.

A page holds such a part between `<!-- made by scripts/make_docs.py: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from toolcrib import errors
from toolcrib.cli.group import COMMANDS, toolcrib

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "toolcrib"
PART = re.compile(r"(<!-- made by scripts/make_docs\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def error_classes(
    root: type[errors.ToolcribError] = errors.ToolcribError,
) -> Iterator[type[errors.ToolcribError]]:
    """Yield every error class, each before those below it, in the order of the source."""
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from error_classes(kind)


def first_sentence(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


def error_table() -> Iterator[str]:
    """Yield a row for each error code."""
    yield "| code | class | HTTP | exit | retryable | meaning |"
    yield "|---|---|---|---|---|---|"
    for kind in error_classes():
        retryable = "yes" if kind.retryable else "no"
        cells = (f"`{kind.code}`", f"`{kind.__name__}`", kind.status, kind.exit_code, retryable)
        yield f"| {' | '.join(map(str, cells))} | {first_sentence(kind.__doc__)} |"


def exit_table() -> Iterator[str]:
    """Yield a row for each exit code that an error has, with the codes that lead to it."""
    yield "| exit | error codes |"
    yield "|---|---|"
    by_exit: dict[int, list[str]] = {}
    for kind in error_classes():
        by_exit.setdefault(kind.exit_code, []).append(f"`{kind.code}`")
    yield "| 0 | none: it worked |"
    for number in sorted(by_exit):
        yield f"| {number} | {', '.join(by_exit[number])} |"


def command_reference() -> Iterator[str]:
    """Yield each command with its usage, what it does and its options, as `--help` tells them."""
    top = click.Context(toolcrib, info_name="toolcrib", **toolcrib.context_settings)
    yield "| command | |"
    yield "|---|---|"
    for name, help_line in sorted(COMMANDS.items()):
        yield f"| [`toolcrib {name}`](#toolcrib-{name}) | {help_line} |"
    yield ""
    yield from options_of(toolcrib, top)
    for name in sorted(COMMANDS):
        command = toolcrib.get_command(top, name)
        assert command is not None
        yield from told(command, click.Context(command, info_name=name, parent=top), "###")


def told(command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    """Yield a command's usage, what it does and its options, and then its own commands."""
    yield ""
    yield f"{heading} {context.command_path}"
    yield ""
    yield "```text"
    yield f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield "```"
    yield ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]
    yield "\n\n".join(paragraphs)
    if options := list(options_of(command, context)):
        yield ""
        yield from options
    if isinstance(command, click.Group):
        for name, one in sorted(command.commands.items()):
            yield from told(one, click.Context(one, info_name=name, parent=context), f"{heading}#")


def options_of(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the table of a command's own options; `--help`, which all have, is told for the program."""
    records = [
        record
        for option in command.get_params(context)
        if isinstance(option, click.Option) and ("--help" not in option.opts or command is toolcrib)
        if (record := option.get_help_record(context)) is not None
    ]
    if records:
        yield "| option | meaning |"
        yield "|---|---|"
        for names, meaning in records:
            yield f"| `{names.replace('|', chr(92) + '|')}` | {' '.join(meaning.split())} |"


def rooms() -> list[Path]:
    """List the rooms of the house: packages and modules directly below the package."""
    return [
        path
        for path in sorted(SOURCE.iterdir())
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    ]


def module_table() -> Iterator[str]:
    """Yield each room with its modules and what their first line says."""
    yield "| module | what it holds |"
    yield "|---|---|"
    for room in rooms():
        files = [room] if room.suffix else sorted(room.rglob("*.py"))
        for path in files:
            if "starter_files" in path.parts:  # laid out in new projects, not part of the house
                continue
            name = path.relative_to(SOURCE).with_suffix("").as_posix().removesuffix("/__init__")
            doc = first_sentence(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
            yield f"| `{name.replace('/', '.')}` | {doc.replace('|', chr(92) + '|')} |"


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "commands": command_reference,
    "errors": error_table,
    "exits": exit_table,
    "modules": module_table,
}


def renewed(text: str) -> str:
    """Return a page with its made parts as they should be."""
    return PART.sub(lambda found: f"{found[1]}\n{chr(10).join(PARTS[found[2]]())}\n\n{found[3]}", text)


def pages() -> list[Path]:
    """List every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def outdated() -> list[Path]:
    """List the pages whose made parts are not what the code says."""
    return [page for page in pages() if renewed(text := page.read_text(encoding="utf-8")) != text]


def main(arguments: list[str]) -> int:
    """Write the pages, or only name those that are out of date; then the exit status is 1."""
    found = outdated()
    for page in found:
        if arguments != ["--check"]:
            page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
    told = "out of date; run `make docs`" if arguments == ["--check"] else "written"
    for page in found:
        print(f"{page.relative_to(ROOT)}: {told}")
    return 1 if found and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
