"""Findings: what is wrong with a manifest, where, and how to fix it; the rules that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from toolcrib.errors import InvalidInput, ManifestError, ToolcribError, Violation
from toolcrib.spec.naming import cell_width, printable
from toolcrib.spec.record import record

Severity = Literal["error", "warning"]


_ERRORS = (
    "unreadable", "too-large", "encoding", "file-place", "yaml-syntax", "yaml-tab", "yaml-character",
    "yaml-depth", "yaml-documents", "yaml-directive", "yaml-tag", "yaml-alias", "yaml-merge-key",
    "yaml-key", "yaml-duplicate-key", "yaml-number", "json-syntax", "dialect", "not-a-mapping",
    "unknown-key", "missing-key", "wrong-type", "wrong-value", "name", "name-folder", "description",
    "version", "exec-kind", "exit-codes", "approval-reason", "input-schema", "output-schema",
    "default-value", "example", "secret-argument", "placeholder", "condition", "shell", "team", "network",
    "url", "response", "style", "body", "auth", "step", "files", "code",
)  # fmt: skip
_WARNINGS = (
    "file-name", "unmapped", "disabled", "schema-keyword", "example-output", "command-words", "program",
    "module", "unused-argument", "agent", "step-tool", "retry", "program-network", "grant",
    "property-description", "default-untold", "hidden-characters", "instruction-text", "files-root",
    "server",
)  # fmt: skip
RULES: dict[str, Severity] = {**dict.fromkeys(_ERRORS, "error"), **dict.fromkeys(_WARNINGS, "warning")}
"""Every rule; `docs/manifest.md` says what each means. A tool with an `error` cannot be used."""


BREAK = re.compile(r"\r\n|\n|\r")
"""The end of a line."""
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


def diagnostics_of(error: InvalidInput) -> tuple[Diagnostic, ...]:
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
    return Diagnostic(path, at[0], at[1], RULES[rule], rule, message, hint, where, source, cut)


def source_line(text: str, number: int) -> str:
    """Return line `number` (from 1) of a text without its end; empty if there is none."""
    lines = BREAK.split(text)
    return lines[number - 1] if number <= len(lines) else ""


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
