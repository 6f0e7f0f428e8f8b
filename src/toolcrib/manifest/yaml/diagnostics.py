"""Findings: what is wrong with a manifest, where, and how to fix it; the rules that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from toolcrib.errors import InvalidError, ManifestError, ToolcribError, Violation
from toolcrib.spec.naming import cell_width, printable
from toolcrib.spec.record import record

Severity = Literal["error", "warning"]


class LintRule(NamedTuple):
    """One rule. A tool with an `error` cannot be used; a `warning` is only reported."""

    severity: Severity
    meaning: str


_error, _warning = partial(LintRule, "error"), partial(LintRule, "warning")
RULES: dict[str, LintRule] = {
    # The file
    "unreadable": _error("The manifest cannot be opened, or is not a regular file."),
    "too-large": _error("The manifest is larger than 1 MiB, or grows too large through its aliases."),
    "encoding": _error("The file is not UTF-8."),
    "file-name": _warning("The manifest is called `tool.yaml` instead of `tool.yml`."),
    "file-place": _error(
        "Only `config.yml`, and `NAME/tool.yml` in the folder of tools, are read: not this file."
    ),
    # YAML
    "yaml-syntax": _error("The file is not YAML: half-written, badly indented, or a quote is not closed."),
    "yaml-tab": _error("A tab indents a line; YAML takes spaces only."),
    "yaml-character": _error("The file has a control character or a line break that editors do not show."),
    "yaml-depth": _error("Lists and mappings are nested too deep, or there are too many brackets."),
    "yaml-documents": _error("The file contains more than one YAML document."),
    "yaml-directive": _error("The file contains a `%` directive."),
    "yaml-tag": _error("A value has a YAML tag (`!name`, `!!python/…`)."),
    "yaml-alias": _error("An alias (`*name`) refers to itself, or to nothing."),
    "yaml-merge-key": _error("A mapping has the merge key `<<`."),
    "yaml-key": _error("A key is not text."),
    "yaml-duplicate-key": _error("A mapping has the same key twice."),
    "yaml-number": _error("A number that JSON does not have: `.nan`, `.inf`, or beyond 64 bits."),
    # JSON
    "json-syntax": _error("The file is not JSON: half-written, or a character in the wrong place."),
    # Other formats
    "dialect": _error("The format of the file is unknown, or the file breaks the rules of its format."),
    "unmapped": _warning("A part of another format is kept, but has no meaning here."),
    "disabled": _warning("The file disables its tool, so it is not loaded."),
    # The form
    "not-a-mapping": _error("The manifest is empty, a list or a single value instead of a mapping."),
    "unknown-key": _error("The format does not have this key."),
    "missing-key": _error("A required key is missing."),
    "wrong-type": _error("A value has the wrong type."),
    "wrong-value": _error("The format does not allow this value."),
    "name": _error("`name` is missing or not usable as a folder name."),
    "name-folder": _error("`name` differs from the folder's name."),
    "description": _error("`description` is missing or empty."),
    "version": _error("`version` is neither a whole number from 1 up nor text."),
    "exec-kind": _error("`exec` does not have exactly one kind, or its kind differs from `kind`."),
    "exit-codes": _error("`exit_codes_ok` is empty, so that no run could succeed."),
    "approval-reason": _error("`approval.required` is true without a reason."),
    # What it says
    "input-schema": _error("`inputs.schema` is not a valid JSON Schema 2020-12 of an object."),
    "output-schema": _error(
        "`outputs.schema` is not a valid JSON Schema 2020-12, or stands with format text."
    ),
    "schema-keyword": _warning("A key of a schema is misspelled, or is the rest of a text with a comma."),
    "default-value": _error("A property's default does not fit the property's own schema."),
    "example": _error("An example's params do not fit `inputs.schema`."),
    "example-output": _warning("An example's expected_output does not match the outputs block."),
    "command-words": _warning("A word is written for a shell or another format; it is taken as it is."),
    "program": _warning("The program of a command is not installed, or its file is missing."),
    "module": _warning("The module of a Python tool is in none of the folders where it is searched."),
    "unused-argument": _warning("A property of `inputs.schema` is used nowhere in the tool."),
    "secret-argument": _error(
        "A secret is in `args`, where any user of the machine can read it during the call."
    ),
    "placeholder": _error("A `${…}` is not declared, ambiguous, not closed, or used in a key."),
    "condition": _error("A control line (`{{if}}`, `{{end}}`) has no partner, or is in the wrong place."),
    "shell": _error("A shell line has a placeholder where no value is allowed."),
    "agent": _warning("An agent lists a tool or an agent that is in no file of the project."),
    "team": _error("A member of a team lists a tool that does not exist."),
    "network": _error("An http tool has no permission for the network, or not for its own host."),
    "url": _error("`exec.http.url` is not an address the tool may have."),
    "response": _error("`response` extracts in two ways, repeats a field name, or has a bad pattern."),
    "style": _error("A style is for no argument, or for one not used alone, or does not match the place."),
    "body": _error("Body, `body_format`, `parts` and `cookies` do not match."),
    "auth": _error("`auth` lacks a key, names an undeclared secret, or sets what the request sets."),
    "step": _error("A step of a composite tool names a missing step, is part of a circle, or repeats an id."),
    "step-tool": _warning("A step calls a tool that has no manifest in this project."),
    "retry": _warning("A POST or PATCH that is not marked idempotent is retried."),
    "program-network": _warning("A command without HTTP and SOCKS has a list of hosts, or `network: true`."),
    "grant": _warning("A permission covers `/`, a folder above the project, or the machine's network."),
    "code": _warning("A program takes a value of the call as code. Calls of such a tool need approval."),
    "code-shape": _warning("An option of an unknown program seems to take a value as code."),
    "property-description": _warning("A property of `inputs.schema` has no description."),
    "default-untold": _warning("A property's default is not mentioned in its description."),
    "hidden-characters": _warning("A text shown to the model contains hidden or bidirectional characters."),
    "instruction-text": _warning("A description reads like an instruction to the model."),
}
"""Every rule by its id, in the order of the documentation."""


BREAK = re.compile(r"\r\n|\n|\r")
_WINDOW = 110
_MAX_LINE = 4096
_MAX_NAME = 100


@record
class Diagnostic:
    """One finding at one place of one file."""

    path: str
    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    severity: Severity
    rule: str
    """An id from `RULES`."""
    message: str
    hint: str | None = None
    """The way to fix it."""
    where: str = "$"
    """The place in the data, as a JSON path."""
    source: str = ""
    """The line of the file; of a very long one, the part near the position."""
    cut: int = 0
    """The number of characters cut off before that part."""

    @property
    def is_error(self) -> bool:
        """True if the tool cannot be used."""
        return self.severity == "error"

    def moved(self, at: tuple[int, int], text: str) -> Diagnostic:
        """Return the finding at another line and column, of the file whose text is given."""
        return replace(self, line=at[0], column=at[1], source=source_line(text, at[0]))

    def without_line(self) -> Diagnostic:
        """Return the finding without the line of the file, for an agent."""
        return replace(self, source="", cut=0)

    def render(self, *, hint: bool = True) -> str:
        """Return `file:line:col: error[rule]: message`, the source line, a caret below it, the hint.

        Characters that could steer a terminal or reorder text are replaced. `hint=False` leaves out the hint.
        """
        place = f"{printable(self.path)}:{self.line}:{self.column}"
        out = [f"{place}: {self.severity}[{self.rule}]: {printable(self.message)}"]
        if self.source.strip():
            out += _pointed(self.source, self.column - self.cut)
        if self.hint and hint:
            out.append(f"  hint: {printable(self.hint)}")
        return "\n".join(out)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "path": _writable(self.path),
            "line": self.line,
            "column": self.column,
            "severity": self.severity,
            "rule": self.rule,
            "message": _writable(self.message),
            "hint": None if self.hint is None else _writable(self.hint),
            "where": _writable(self.where),
            "source": _writable(self.source),
            **({"cut": self.cut} if self.cut else {}),
        }


def failure(diagnostics: Sequence[Diagnostic]) -> ManifestError:
    """Return the error that carries these findings; its message is the first one as rendered.

    `details["diagnostics"]` holds all of them in their JSON form.
    """
    first = next((finding for finding in diagnostics if finding.is_error), diagnostics[0])
    more = len(diagnostics) - 1
    return ManifestError(
        first.render(hint=False) + (f"\n  and {more} more" if more else ""),
        hint=first.hint,
        violations=[Violation(finding.where, finding.message) for finding in diagnostics],
        details={"diagnostics": [finding.as_dict() for finding in diagnostics]},
    )


def diagnostics_of(error: InvalidError) -> tuple[Diagnostic, ...]:
    """Return the findings that `error` carries."""
    found = cast("list[dict[str, Any]]", error.details.get("diagnostics", []))
    return tuple(Diagnostic(**finding) for finding in found)


def hide_lines(error: ToolcribError) -> None:
    """Remove the lines of files from an error that goes to an agent or over the network."""
    if "diagnostics" not in error.details:
        return
    # A line may hold a secret, and an agent can cause an error to read it.
    found = [Diagnostic(**finding) for finding in error.details.get("diagnostics", ())]
    for finding in found:
        hidden = finding.without_line()
        error.message = error.message.replace(finding.render(hint=False), hidden.render(hint=False))
    error.args = (error.message,)
    error.details["diagnostics"] = [finding.without_line().as_dict() for finding in found]


def report(diagnostics: Iterable[Diagnostic]) -> dict[str, Any]:
    """Return the JSON document of a lint run: the findings, and the number of errors and warnings."""
    found = [finding.as_dict() for finding in diagnostics]
    errors = sum(finding["severity"] == "error" for finding in found)
    return {"diagnostics": found, "errors": errors, "warnings": len(found) - errors}


def make(
    path: str,
    at: tuple[int, int],
    rule: str,
    message: str,
    *,
    hint: str | None = None,
    where: str = "$",
    source: str = "",
) -> Diagnostic:
    """Return a finding with the severity of its rule."""
    # A minified file is one line of up to 1 MiB, and each finding carries its line.
    cut = 0 if at[1] <= _MAX_LINE else at[1] - _WINDOW
    source = source[cut : cut + _MAX_LINE]
    return Diagnostic(path, at[0], at[1], RULES[rule].severity, rule, message, hint, where, source, cut)


def source_line(text: str, number: int) -> str:
    """Return line `number` (from 1) of a text without its end; empty if there is none."""
    start = 0
    for _ in range(number - 1):
        found = BREAK.search(text, start)
        if found is None:
            return ""
        start = found.end()
    end = BREAK.search(text, start)
    return text[start : end.start() if end else len(text)]


def split_lines(text: str) -> list[str]:
    """Return all lines of a text without their ends."""
    return BREAK.split(text)


def quoted(value: Any) -> str:
    """Return a value as a message names it: short, text in backticks."""
    if isinstance(value, str):
        return f"`{_short(value)}`"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"


def _writable(text: str) -> str:
    """Replace the lone surrogates of undecodable bytes in a file name."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _pointed(line: str, column: int) -> list[str]:
    """Return the line and a caret below the position; a long line is cut around it."""
    at = min(column - 1, len(line))
    start = 0 if at < _WINDOW - 20 else at - _WINDOW // 2
    # A tab has no fixed width, so the caret would not be below the right character.
    shown = printable(line[start : start + _WINDOW].replace("\t", " "))
    lead, tail = ("…" if start else ""), ("…" if start + _WINDOW < len(line) else "")
    pad = cell_width(lead + shown[: at - start])
    return [f"  {lead}{shown.rstrip()}{tail}", "  " + " " * pad + "^"]
