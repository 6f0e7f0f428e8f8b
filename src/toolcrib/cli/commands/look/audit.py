"""`toolcrib audit`: check the log, look at its end, search it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, tell_interrupted, write_json

if TYPE_CHECKING:
    from toolcrib.guard import AuditLine, Verdict

__all__ = ["command"]

_POLL = 0.2
_AGO = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _time(value: str) -> datetime:
    """A moment: ISO 8601, in UTC where it names no zone, or how long ago: `10m`, `2h`, `3d`."""
    ago = _AGO.fullmatch(value)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no time: write 2026-01-31, 2026-01-31T15:00:00, or 10m, 2h, 3d (ago)"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@click.group("audit")
def command() -> None:
    """Check, show and search the project's audit log."""


@command.command("verify")
@root_option
@json_option
def verify_command(root: str | None, as_json: bool) -> int:
    """Check every line of the log. Exit 1 where the chain does not hold, with the first place."""
    from toolcrib.guard import verify

    path, anchor = _places(root)
    with _readable(path):
        verdict = verify(path, anchor=anchor)
    if as_json:
        write_json(_verdict(verdict))
    elif verdict.problem is not None:
        problem = verdict.problem
        say(printable(f"{path.parent / problem.file}:{problem.line}: {problem.kind}: {problem.message}"))
        note("The lines before it hold; from it on the log proves nothing.")
        if problem.kind in ("cut", "gap"):
            note(printable(f"If the log was removed on purpose: move its files away and remove {anchor}"))
    else:
        _tell(verdict)
    return 0 if verdict.ok else 1


def _verdict(verdict: Verdict) -> dict[str, Any]:
    anchor, head = verdict.anchor, verdict.head
    return {
        "ok": verdict.ok,
        "lines": verdict.lines,
        "files": list(verdict.files),
        "head": {"seq": head.seq, "hash": head.hash},
        "anchor": None if anchor is None else {"seq": anchor.seq, "hash": anchor.hash},
        "problem": None if verdict.problem is None else asdict(verdict.problem),
        "notices": verdict.notices,
    }


def _tell(verdict: Verdict) -> None:
    files = f" in {len(verdict.files)} files" if len(verdict.files) > 1 else ""
    anchor = verdict.anchor
    held = f"anchored at seq {anchor.seq}" if anchor is not None else "no anchor"
    say(f"ok: {verdict.lines} lines{files}, {held}")
    if anchor is None and verdict.lines:
        note("Without an anchor, lines taken from the end do not show. The next call sets one.")
    for event in ("AUDIT_RESUMED", "AUDIT_RECOVERED"):
        if event in verdict.notices:
            note(f"{event}: {verdict.notices[event]}. See `toolcrib audit search --event {event}`.")


@command.command("tail")
@click.option("-n", "--lines", "count", type=click.IntRange(0, 100_000), default=20, help="How many (20).")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@root_option
@json_option
def tail_command(count: int, follow: bool, root: str | None, as_json: bool) -> int:
    """Show the last lines. With --follow, --json gives one document a line."""
    from toolcrib.guard import AuditQuery, AuditReader

    path, _ = _places(root)
    with AuditReader(path) as reader:
        with _readable(path):
            found = reader.newest(AuditQuery(), count)
        if as_json and not follow:
            write_json({"lines": [_document(line) for line in found]})
            return 0
        _show(found, as_json)
        try:
            while follow:
                with _readable(path):
                    found = list(reader.news(AuditQuery()))
                _show(found, as_json)
                time.sleep(_POLL)
        except KeyboardInterrupt:
            return tell_interrupted()  # With --json too: each line shown is a document of its own.
    return 0


@command.command("search")
@click.option("--tool", help="Of this tool.")
@click.option("--event", help="Of this event: TOOL_EXECUTED, TOOL_REFUSED, …")
@click.option("--caller", help="Of this caller: cli, local, mcp:…")
@click.option(
    "--since",
    type=_time,
    metavar="TIME",
    help="From this time on: 2026-01-31T15:00 (UTC), or 10m, 2h, 3d ago.",
)
@click.option("--until", type=_time, metavar="TIME", help="Up to this time.")
@click.option("--status", help="success, error, refused or pending.")
@click.option("--code", help="With this error code.")
@click.option("--text", help="With this text anywhere in the line.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, help="The newest so many of them (100)."
)
@root_option
@json_option
def search_command(root: str | None, as_json: bool, limit: int, **asked: Any) -> None:
    """Show the lines that fit all that is asked, the newest last."""
    from toolcrib.guard import AuditQuery, AuditReader

    path, _ = _places(root)
    with _readable(path), AuditReader(path) as reader:
        found = reader.newest(AuditQuery(**asked), limit)
    if as_json:
        write_json({"lines": [_document(line) for line in found]})
        return
    _show(found, as_json=False)
    if len(found) == limit:
        note(f"These are the newest {limit}; --limit shows more.")
    elif not found:
        note("No line fits.")


def _places(root: str | None) -> tuple[Path, Path]:
    """The log, and the anchor that says where it ends."""
    from toolcrib.guard import ANCHOR
    from toolcrib.project.root import find
    from toolcrib.state import Vault

    place = find(root)
    return place.audit, Vault(place.root).path / ANCHOR


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    from toolcrib.errors import AuditUnavailable

    try:
        yield
    except OSError as error:
        raise AuditUnavailable(
            f"The audit log {error.filename or path} cannot be read: {error.strerror}.",
            hint="Read it as the user that Toolcrib runs as; look for a process that is stopped.",
            details={"path": str(path)},
        ) from None


def _show(lines: list[AuditLine], as_json: bool) -> None:
    import json

    for line in lines:
        if as_json:
            say(json.dumps(_document(line)))
        else:
            # The digest says nothing to a person; what is no audit line may hold anything.
            say(printable(line.raw.decode(errors="replace").partition(" prev=")[0]).replace("\t", " "))


def _document(line: AuditLine) -> dict[str, Any]:
    entry = line.entry
    if entry is None:
        return {"file": line.file, "stray": line.raw.decode(errors="replace")}
    return {
        "time": entry.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "event": entry.event,
        "seq": entry.seq,
        "prev": entry.prev,
        "file": line.file,
        "fields": entry.fields,
    }
