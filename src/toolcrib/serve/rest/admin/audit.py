"""The routes of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType, convert

from toolcrib.bundles.records import Moment
from toolcrib.errors import AuditUnavailable
from toolcrib.guard import ANCHOR
from toolcrib.guard.audit.check import verify
from toolcrib.guard.audit.search import AuditQuery, AuditReader
from toolcrib.project.catalog.pages import page_token
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.pages import PageQuery, page_start
from toolcrib.serve.rest.records import in_zone
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()


class LinesQuery(PageQuery, kw_only=True):
    """The query of lines of the audit log. A line matches all of it."""

    tool: str | UnsetType = UNSET
    event: str | UnsetType = UNSET
    """`TOOL_EXECUTED`, `TOOL_REFUSED`, …"""
    caller: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    """`success`, `error`, `refused` or `pending`."""
    code: str | UnsetType = UNSET
    """An error code."""
    text: str | UnsetType = UNSET
    """A text anywhere in the line."""
    since: datetime | UnsetType = UNSET
    """RFC 3339, as is `until`."""
    until: datetime | UnsetType = UNSET


class Line(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One line of the audit log."""

    file: str
    time: Moment | UnsetType = UNSET
    event: str | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    prev: str | UnsetType = UNSET
    """SHA-256 of the line before."""
    fields: dict[str, Any] | UnsetType = UNSET
    stray: str | UnsetType = UNSET
    """The text of a line that Toolcrib did not write: it has none of the others but `file`."""


class LinePage(Struct, kw_only=True, rename="camel"):
    """A page of lines, the newest first."""

    lines: list[Line]
    next_page_token: str | None


class LineRef(Struct, kw_only=True, rename="camel"):
    """A line, by its number and the SHA-256 of its text."""

    seq: int
    hash: str


class BrokenPlace(Struct, kw_only=True, rename="camel"):
    """A place where lines do not follow from each other."""

    line: int
    """Counted from 1 in its file."""
    kind: str
    """`added`, `altered`, `cut`, `gap`, `missing` or `reordered`."""
    message: str
    file: str


class OpenCall(Struct, kw_only=True, rename="camel"):
    """The beginning of a call that has no end in the log."""

    seq: int
    time: Moment
    name: str | None
    """The tool."""


class AuditVerdict(Struct, kw_only=True, rename="camel"):
    """The result of a check of the whole log."""

    ok: bool
    lines: int
    files: list[str]
    head: LineRef
    anchor: LineRef | None
    problem: BrokenPlace | None
    """The first place that was changed, removed or added."""
    notices: dict[str, int]
    skipped: list[str]
    """Checks that were not possible, with the reason."""
    running: list[OpenCall]
    """Calls without an end whose process still runs."""
    interrupted: list[OpenCall]
    """Calls without an end whose process has ended."""


@ROUTES.add("GET", "/audit", "admin", {200: LinePage}, AuditUnavailable, query=LinesQuery)
def list_audit_lines(request: RestRequest) -> Answer:
    """List lines of the audit log, the newest first."""
    query: LinesQuery = request.query
    names = ("tool", "event", "caller", "status", "code", "text", "since", "until")
    asked = {name: value for name in names if (value := getattr(query, name)) is not UNSET}
    asked |= {name: in_zone(asked[name]) for name in ("since", "until") if name in asked}
    question = ("audit", sorted((name, str(value)) for name, value in asked.items()))
    if (start := page_start(query, question, int)) is not None:
        (asked["before"],) = start
    try:
        reader = AuditReader(request.services.project.place.audit)
        found = reader.newest(AuditQuery(**asked), query.page_size + 1)[::-1]
    except OSError as error:
        raise _unreadable(error) from None
    page = found[: query.page_size]
    # Stray lines have no number: the next page continues from the last line that has one.
    last = next((line.entry for line in reversed(page) if line.entry is not None), None)
    more = len(found) > len(page) and last is not None
    token = page_token(question, [last.seq]) if more and last is not None else None
    return Answer(LinePage(lines=[convert(line.as_dict(), Line) for line in page], next_page_token=token))


@ROUTES.add("GET", "/audit/verify", "admin", {200: AuditVerdict}, AuditUnavailable)
def verify_audit(request: RestRequest) -> Answer:
    """Check every line of the audit log: no line was changed, removed or added."""
    try:
        verdict = verify(
            request.services.project.place.audit, anchor=request.services.project.vault.path / ANCHOR
        )
    except OSError as error:
        raise _unreadable(error) from None
    return Answer(convert(verdict.as_dict(), AuditVerdict))


def _unreadable(error: OSError) -> AuditUnavailable:
    return AuditUnavailable(f"the audit log {error.filename} cannot be read: {error.strerror}")
