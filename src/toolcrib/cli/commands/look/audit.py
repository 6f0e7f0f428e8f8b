"""`toolcrib audit`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import moment
from toolcrib.cli.options import project_options
from toolcrib.cli.output import count, print_interrupted, print_json, print_note, print_result, printable
from toolcrib.cli.progress import waiting
from toolcrib.errors import AuditUnavailable

if TYPE_CHECKING:
    from toolcrib.guard import AuditEntry
    from toolcrib.guard.audit.check import Verdict
    from toolcrib.guard.audit.search import AuditLine

_POLL_S = 0.2
_MOST_NAMED = 10
"""Calls without an end that are named."""
_store_option = click.option("--store", is_flag=True, help="The log of your bundles, not the project's.")


@click.group("audit")
def command() -> None:
    """Verify, show and search the audit log."""


@command.command("verify")
@_store_option
@project_options
def verify_command(store: bool, root: str | None, as_json: bool) -> int:
    """Verify every line of the log.

    Exit 1 if a line was changed, removed or added; the first such place is printed.
    """
    from toolcrib.guard.audit.check import verify

    path, anchor = _places(root, store)
    with _readable(path), waiting(f"verifying {path.name}"):
        verdict = verify(path, anchor=anchor)
    problem = verdict.problem
    if as_json:
        print_json(verdict.as_dict())
    elif problem is None:
        _print_valid(verdict)
    else:
        print_result(
            printable(f"{path.parent / problem.file}:{problem.line}: {problem.kind}: {problem.message}")
        )
        print_note("The lines before it are valid; from it on, the log proves nothing.")
        if problem.kind in ("cut", "gap"):
            print_note(f"If you removed the log on purpose, move its files away and remove {anchor}")
    if not as_json:
        _print_open("running", verdict.running)
        _print_open("interrupted", verdict.interrupted)
    return 0 if verdict.ok else 1


def _print_open(state: str, starts: Sequence[AuditEntry]) -> None:
    """Print the calls without an end."""
    for start in starts[-_MOST_NAMED:]:
        print_note(f"seq {start.seq}: {printable(str(start.fields.get('name')))} is {state}.")
    if len(starts) > _MOST_NAMED:
        print_note(f"{len(starts) - _MOST_NAMED} earlier calls are {state} (see --json).")


def _print_valid(verdict: Verdict) -> None:
    files = f" in {len(verdict.files)} files" if len(verdict.files) > 1 else ""
    anchor = verdict.anchor
    end = f"anchored at seq {anchor.seq}" if anchor is not None else "no anchor"
    print_result(f"ok: {count(verdict.lines, 'line')}{files}, {end}")
    for check in verdict.skipped:
        print_note(f"Skipped: {check}.")
    for event in ("AUDIT_RESUMED", "AUDIT_RECOVERED"):
        if event in verdict.notices:
            print_note(f"{event}: {verdict.notices[event]}. See `toolcrib audit search --event {event}`.")


@command.command("tail")
@click.option(
    "-n",
    "--lines",
    "number",
    type=click.IntRange(0, 100_000),
    default=20,
    help="Number of lines (default: 20).",
)
@click.option("-f", "--follow", is_flag=True, help="Also show new lines, until interrupted.")
@_store_option
@project_options
def tail_command(number: int, follow: bool, store: bool, root: str | None, as_json: bool) -> int:
    """Show the last lines, and which calls still run or broke off.

    With --follow, --json prints one document for each line.
    """
    from toolcrib.guard.audit.search import AuditQuery, AuditReader

    path, _ = _places(root, store)
    reader = AuditReader(path)
    with _readable(path):
        found = reader.newest(AuditQuery(), number)
    if as_json and not follow:
        print_json({"lines": _documents(found)})
        return 0
    _print_lines(found, as_json)
    try:
        while follow:
            with _readable(path):
                found = list(reader.news(AuditQuery()))
            _print_lines(found, as_json)
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return print_interrupted()  # no document: with --json, each line is one already
    return 0


@command.command("search")
@click.option("--tool", help="Lines about this tool.")
@click.option("--event", help="Lines with this event: TOOL_EXECUTED, TOOL_REFUSED, …")
@click.option("--caller", help="Lines with this caller: cli, local, mcp:…")
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="From this time on: 2026-01-31T15:00 (UTC), or 10m, 2h, 3d ago.",
)
@click.option("--until", type=moment, metavar="TIME", help="Up to this time.")
@click.option("--status", help="Lines with this status: success, error, refused or pending.")
@click.option("--code", help="Lines with this error code.")
@click.option("--text", help="Lines that contain this text.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, help="Show only the newest lines (default: 100)."
)
@_store_option
@project_options
def search_command(store: bool, root: str | None, as_json: bool, limit: int, **asked: Any) -> None:
    """Show the lines that match every option, the newest last."""
    from toolcrib.guard.audit.search import AuditQuery, AuditReader

    path, _ = _places(root, store)
    with _readable(path), waiting(f"searching {path.name}"):
        found = AuditReader(path).newest(AuditQuery(**asked), limit)
    if as_json:
        print_json({"lines": [line.as_dict() for line in found]})
        return
    for line in found:
        print_result(_shown(line))
    if len(found) == limit:
        print_note(f"These are the newest {limit} lines. To see more, raise --limit.")
    elif not found:
        print_note("No line matches.")


def _places(root: str | None, store: bool) -> tuple[Path, Path]:
    """Return the paths of the log, and of the anchor that records where it ends."""
    if store:
        from toolcrib.bundles import log_of
        from toolcrib.state import data_home

        return log_of(data_home())
    from toolcrib.guard import ANCHOR
    from toolcrib.project import find
    from toolcrib.state import Vault

    place = find(root)
    return place.audit, Vault(place.path).path / ANCHOR


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AuditUnavailable(
            f"The audit log {error.filename or path} cannot be read: {error.strerror}.",
            hint="Read it as the user that Toolcrib runs as; look for a process that is stopped.",
            details={"path": str(path)},
        ) from None


def _print_lines(lines: list[AuditLine], as_json: bool) -> None:
    """Print the newest lines. A call without an end among them is running or was interrupted."""
    for line, document in zip(lines, _documents(lines), strict=True):
        state = f" ({document['state']})" if "state" in document else ""
        print_result(json.dumps(document) if as_json else _shown(line) + state)


def _documents(lines: list[AuditLine]) -> list[dict[str, Any]]:
    from toolcrib.guard.audit.search import open_calls

    found, states = [line.as_dict() for line in lines], open_calls(lines)
    return [one | {"state": states[one["seq"]]} if one.get("seq") in states else one for one in found]


def _shown(line: AuditLine) -> str:
    # The hash means nothing to a person. A line that Toolcrib did not write may hold anything.
    text = line.raw.decode(errors="replace").partition(" prev=")[0]
    return printable(text).replace("\t", " ")
