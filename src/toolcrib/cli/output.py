"""How commands speak: results on standard output, all else on standard error, `--json` as one document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import click

from toolcrib.errors import Cancelled, ToolcribError

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic
    from toolcrib.project import Project

__all__ = [
    "diagnostics_in",
    "json_option",
    "note",
    "printable",
    "root_option",
    "say",
    "tell_diagnostics",
    "tell_error",
    "tell_interrupted",
    "tell_lowered",
    "write_json",
]

_ALLOWED = frozenset("\n\t")
_STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
root_option = click.option(
    "--root",
    type=click.Path(file_okay=False),
    help="The project's root folder (default: TOOLCRIB_ROOT, or the nearest project upward).",
)


def write_json(document: Any) -> None:
    """The one document of `--json`."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    plain = encoding != "utf8" or os.environ.get("PYTHONUTF8") == "0"
    say(json.dumps(document, ensure_ascii=plain, indent=2, default=str))


def say(text: str, *, nl: bool = True) -> None:
    """A result on standard output; a terminal is not steered by it."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=nl)


def note(text: str, *, nl: bool = True) -> None:
    """A line for the person, on standard error."""
    click.echo(text, err=True, nl=nl)


def tell_lowered(project: Project) -> None:
    """Say on standard error what is weaker than usual in a project, and which settings count not yet."""
    if project.waiting:
        names = ", ".join(weak.name for weak in project.waiting)
        note(printable(f"note: {names} of this project will not count until you run `toolcrib trust`"))
    told = project.lowered()
    if told:
        note(f"warning: {told}")


def printable(text: str) -> str:
    """The text with every character replaced that steers a terminal or reorders what it shows."""
    if text.isascii() and text.isprintable():
        return text
    import unicodedata

    return "".join(
        char
        if char in _ALLOWED or unicodedata.category(char) not in _STEERING
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def paint(text: str, colour: str, stream: IO[str]) -> str:
    """Coloured on a terminal, unless NO_COLOR is set."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, fg=colour, bold=True)


def tell_error(error: ToolcribError, *, as_json: bool = False) -> int:
    """Print an error and give its exit code."""
    if as_json:
        write_json({"error": error.as_dict()})
        return error.exit_code
    found = diagnostics_in(error)
    if found:
        tell_diagnostics(found)
        if error.hint and error.hint not in {finding.hint for finding in found}:
            _hint(error.hint)
        return error.exit_code
    label = paint(f"error[{error.code}]:", "red", sys.stderr)
    violations = error.violations
    if len(violations) > 1 and error.message.startswith(violations[0].path):
        note(f"{label} {len(violations)} things do not fit:")
    else:
        note(f"{label} {_below(printable(error.message))}")
    if len(violations) > 1:
        for violation in violations:
            note(printable(f"  {violation.path} {violation.message}"))
    if error.hint:
        _hint(error.hint)
    return error.exit_code


def _below(text: str) -> str:
    """The text with its further lines set in: none of them looks like one of ours."""
    first, *more = text.split("\n")
    return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in more)])


def tell_interrupted(told: str = "interrupted", *, as_json: bool = False) -> int:
    """Say that Ctrl-C ended the command, and give its exit code."""
    if as_json:
        return tell_error(Cancelled(told), as_json=True)
    note(told)
    return Cancelled.exit_code


def _hint(text: str) -> None:
    note(f"{paint('hint:', 'cyan', sys.stderr)} {printable(text)}")


def diagnostics_in(error: ToolcribError) -> list[Diagnostic]:
    """The findings about files that an error carries; none for most errors."""
    told = error.details.get("diagnostics")
    if not told:
        return []
    from toolcrib.manifest import Diagnostic

    return [Diagnostic(**finding) for finding in told]


def tell_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """What is wrong with files, with the source line and a caret each; paths as from here."""
    here = os.getcwd() + os.sep  # noqa: PTH109 - text is what is compared
    for finding in diagnostics:
        short = replace(finding, path=finding.path.removeprefix(here))
        label = f"{finding.severity}[{finding.rule}]:"
        colour = "red" if finding.is_error else "yellow"
        note(short.render().replace(label, paint(label, colour, sys.stderr), 1))
