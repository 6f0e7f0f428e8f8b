"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from toolcrib.cli.caller import given_token
from toolcrib.errors import Cancelled, ToolcribError
from toolcrib.spec import naming

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic
    from toolcrib.project import Project


_results: TextIO | None = None


def results() -> TextIO:
    """Return the stream of results: standard output, as this process got it."""
    return _results or sys.stdout


def keep_output() -> None:
    """Keep standard output for results: what tools of this process print goes to standard error."""
    global _results
    if _results is None:
        sys.stdout.flush()
        kept = open(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115
        os.dup2(2, 1)
        _results = kept


def print_json(document: Any) -> None:
    """Print the one document of `--json`."""
    # Where the output is not UTF-8, JSON's own escapes keep every character.
    encoding = (getattr(results(), "encoding", None) or "utf-8").lower().replace("-", "")
    print_result(json.dumps(document, ensure_ascii=encoding != "utf8", indent=2, default=str))


def print_result(text: str, *, nl: bool = True) -> None:
    """Print to standard output: unchanged to a pipe, without control characters to a terminal."""
    click.echo(printable(text) if results().isatty() else text, file=results(), nl=nl)


def print_note(text: str, *, nl: bool = True) -> None:
    """Print a line for a person on standard error, without control characters."""
    click.echo(printable(text), err=True, nl=nl)


def print_change(as_json: bool, document: Any, note: str) -> None:
    """Print what a command has changed: the document of `--json`, or a line for a person."""
    if as_json:
        print_json(document)
    else:
        print_note(note)


def print_shown(as_json: bool, document: Any, text: str) -> None:
    """Print what a command shows: the document of `--json`, or its text for a person."""
    if as_json:
        print_json(document)
    else:
        print_result(text)


def print_value(value: Any) -> None:
    """Print the value of a call: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        print_result(value, nl=bool(value) and not value.endswith("\n"))
    elif value is not None:
        print_json(value)


def print_settings_note(project: Project) -> None:
    """Print whose settings apply to a Python file, where there is a project above it."""
    if project.note:
        print_note(f"note: {project.note}")


def print_warnings(project: Project) -> None:
    """Warn about settings without effect, and about a sandbox that is weaker than usual."""
    if project.waiting:
        names = ", ".join(weak.name for weak in project.waiting)
        print_note(f"note: these settings have no effect until you run `{project.place.trust}`: {names}")
    weaker = project.catalog.binder.lowered
    if weaker:
        print_note(f"warning: {weaker}")


def printable(text: str) -> str:
    """Return a text as it may go to a terminal, with its lines and tabs."""
    return naming.printable(text, keep="\n\t")


def one_line(text: str) -> str:
    """Return the text printable and on one line, so that it cannot imitate a line of ours."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 tool`, `2 tools`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def cut_names(names: Sequence[str]) -> str:
    """Return the first ten names on one line, and the number of the others."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return one_line(", ".join(names[:10]) + more)


def print_error(error: ToolcribError, *, as_json: bool = False) -> int:
    """Print an error and return its exit code."""
    found = diagnostics_in(error)
    if as_json:
        if found:
            error.details["diagnostics"] = [finding.as_dict() for finding in shown(found)]
        print_json({"error": error.as_dict()})
        return error.exit_code
    if found:
        print_diagnostics(found)
        if error.hint not in {finding.hint for finding in found}:
            _print_hint(error.hint)
        return error.exit_code
    violations = error.violations if len(error.violations) > 1 else ()
    message = error.message
    # The message is the first of them, which the list below shows too.
    if violations and message.startswith(violations[0].path):
        message = f"{len(violations)} problems in the arguments:"
    _echo(f"{_paint(f'error[{error.code}]:', 'red')} {_indented(message)}")
    for violation in violations:
        print_note(f"  {violation.path} {violation.message}")
    _print_hint(error.hint)
    return error.exit_code


def _indented(text: str) -> str:
    """Return the text with its further lines indented, so that none of them imitates a line of ours."""
    first, *more = printable(text).split("\n")
    return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in more)])


def _print_hint(text: str | None) -> None:
    if text:
        _echo(f"{_paint('hint:', 'cyan')} {printable(text)}")


def _echo(text: str, *, err: bool = True) -> None:
    """Print a text with colours; click would remove them where there is no terminal."""
    click.echo(text, err=err, color=True if os.environ.get("FORCE_COLOR") else None)


def _paint(text: str, colour: str) -> str:
    """Colour a label of standard error, on a terminal or by FORCE_COLOR, unless NO_COLOR is set."""
    wanted = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if os.environ.get("NO_COLOR") or not (wanted or os.environ.get("FORCE_COLOR")):
        return text
    return click.style(text, fg=colour, bold=True)


def print_interrupted(message: str = "interrupted", *, as_json: bool = False) -> int:
    """Report that Ctrl-C ended the command, and return its exit code."""
    if as_json:
        return print_error(Cancelled(message), as_json=True)
    print_note(message)
    return Cancelled.exit_code


def diagnostics_in(error: ToolcribError) -> list[Diagnostic]:
    """Return the findings about files that an error carries; most errors have none."""
    findings = error.details.get("diagnostics")
    if not findings:
        return []
    from toolcrib.manifest import Diagnostic

    return [Diagnostic(**finding) for finding in findings]


def shown(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return findings as the caller of this command may see them: an agent with a token sees no line."""
    agent = given_token() is not None
    return [finding.without_line() if agent else finding for finding in diagnostics]


def print_diagnostics(diagnostics: Iterable[Diagnostic], *, err: bool = True) -> None:
    """Print findings about files, each with its source line and a caret; paths are relative to here.

    They go to standard error, or are the result of the command.
    """
    here = os.getcwd() + os.sep
    for finding in shown(diagnostics):
        short = replace(finding, path=finding.path.removeprefix(here))
        label = f"{finding.severity}[{finding.rule}]:"
        painted = _paint(label, "red" if finding.is_error else "yellow")
        _echo(short.render().replace(label, painted, 1), err=err)
