"""The routes of the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.responses import StreamingResponse

from toolcrib.bundles.records import Moment
from toolcrib.errors import AuditUnavailable
from toolcrib.guard import ANCHOR
from toolcrib.guard.audit.check import verify
from toolcrib.guard.audit.search import AuditLine, AuditQuery, AuditReader
from toolcrib.project.catalog.pages import page_token
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.pages import DEFAULT_PAGE, PageSize, PageToken, Time, page_start
from toolcrib.serve.rest.records import in_zone
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_JSON_LINES = "application/jsonl"
_SENT = 256
"""Lines that are sent at a time."""


class LinesQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The conditions on lines of the audit log. A line matches all of them."""

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
    since: Time | UnsetType = UNSET
    """RFC 3339, as is `until`."""
    until: Time | UnsetType = UNSET

    def asked(self) -> dict[str, Any]:
        """Return the conditions that were given, by their names in an `AuditQuery`."""
        given = {name: getattr(self, name) for name in LinesQuery.__struct_fields__}
        return {
            name: in_zone(value) if isinstance(value, datetime) else value
            for name, value in given.items()
            if value is not UNSET
        }


class LinesPageQuery(LinesQuery, kw_only=True, rename="camel"):
    """The conditions, and the page."""

    page_size: PageSize = DEFAULT_PAGE
    page_token: PageToken | UnsetType = UNSET


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


@ROUTES.add("GET", "/audit", "admin", {200: LinePage}, AuditUnavailable, query=LinesPageQuery)
def list_audit_lines(request: RestRequest) -> Answer:
    """List lines of the audit log, the newest first."""
    query: LinesPageQuery = request.query
    asked = query.asked()
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
    return Answer(
        LinePage(lines=[msgspec.convert(line.as_dict(), Line) for line in page], next_page_token=token)
    )


@ROUTES.add("GET", "/audit/export", "admin", {200: _JSON_LINES}, AuditUnavailable, query=LinesQuery)
def export_audit_lines(request: RestRequest) -> StreamingResponse:
    """Return all matching lines of the audit log, the newest first: one JSON object a line, as it is read."""
    reader = AuditReader(request.services.project.place.audit)
    parts = _parts(reader.matching(AuditQuery(**request.query.asked())))
    try:
        first = next(parts, b"")  # Only before the answer begins a failure can be one.
    except OSError as error:
        raise _unreadable(error) from None
    headers = {"content-disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(chain([first], parts), headers=headers, media_type=_JSON_LINES)


def _parts(lines: Iterator[AuditLine]) -> Iterator[bytes]:
    while part := [msgspec.json.encode(line.as_dict()) + b"\n" for line in islice(lines, _SENT)]:
        yield b"".join(part)


@ROUTES.add("GET", "/audit/verify", "admin", {200: AuditVerdict}, AuditUnavailable)
def verify_audit(request: RestRequest) -> Answer:
    """Check every line of the audit log: no line was changed, removed or added."""
    try:
        verdict = verify(
            request.services.project.place.audit, anchor=request.services.project.vault.path / ANCHOR
        )
    except OSError as error:
        raise _unreadable(error) from None
    return Answer(msgspec.convert(verdict.as_dict(), AuditVerdict))


def _unreadable(error: OSError) -> AuditUnavailable:
    return AuditUnavailable(f"the audit log {error.filename} cannot be read: {error.strerror}")
