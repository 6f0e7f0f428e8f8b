"""The queries and pages of lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from toolcrib.bundles.records import Uuid
from toolcrib.errors import DeniedError
from toolcrib.project.catalog.pages import page_token, read_page_token
from toolcrib.runs.filters import Filters
from toolcrib.serve.rest.records import in_zone

T = TypeVar("T")

DEFAULT_PAGE, MOST = 25, 256
PageSize = Annotated[int, Meta(ge=1, le=MOST)]
PageToken = Annotated[str, Meta(description="`nextPageToken` of the page before.")]


class PageQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The part of a query that names a page."""

    page_size: PageSize = DEFAULT_PAGE
    page_token: PageToken | UnsetType = UNSET


class Paged(Protocol):
    """A query that names a page, also one that has conditions besides."""

    page_size: int
    page_token: str | UnsetType


Time = Annotated[datetime, Meta(examples=["2026-05-04T09:30:00.000Z"])]
"""RFC 3339; one without a zone is in UTC."""


class Matching(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Conditions that calls or runs meet all of."""

    tool: str | UnsetType = UNSET
    """Full name of the tool; of a run, of one that it has called."""
    agent: str | UnsetType = UNSET
    """The agent; of a call, the one whose run made it. A workflow is `workflow:NAME`."""
    session_id: str | UnsetType = UNSET
    caller: str | UnsetType = UNSET
    """`token:NAME`, `cli`, …: only an administrator sees those of other callers."""
    since: Time | UnsetType = UNSET
    """RFC 3339, as is `until`."""
    until: Time | UnsetType = UNSET


class MatchingPage(Matching, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The query of a page of those that match."""

    page_size: PageSize = DEFAULT_PAGE
    page_token: PageToken | UnsetType = UNSET


class ChangeOf(Matching, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A change of all that match."""

    at_most: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Nothing is changed if more match; without it they are only counted."""


class ChangedMany(Struct, frozen=True, kw_only=True):
    """The result of a change of all that match."""

    count: int
    """The number of those to which the change applied."""
    done: list[Uuid]
    refused: dict[str, str]
    """Ids of those that could not be changed any more, each with the reason."""


def filters_of(query: Matching, whose: str | None) -> Filters:
    """Return the filters of a query, for a client that sees what this caller made; None: all.

    Raises DeniedError for another caller.
    """
    caller = given(query.caller) or whose
    if whose not in (None, caller):
        raise DeniedError("only an administrator sees what others made", hint=f"Yours are of {whose}.")
    return Filters(
        tool=given(query.tool),
        agent=given(query.agent),
        session_id=given(query.session_id),
        caller=caller,
        since=_seconds(query.since),
        until=_seconds(query.until),
    )


def given(value: str | UnsetType) -> str | None:
    """Return a value of a query; None if it was not given."""
    return None if value is UNSET else value


def _seconds(value: datetime | UnsetType) -> float | None:
    return None if value is UNSET else in_zone(value).timestamp()


def page_start(query: Paged, question: object, *types: type) -> tuple[Any, ...] | None:
    """Return the place where the page of a query begins; None for the first page.

    It is a place of `page_of`, with values of these types. InvalidInput for the token of another question.
    """
    if query.page_token is UNSET:
        return None
    return tuple(read_page_token(query.page_token, question, *types))


def page_before(query: Paged, question: object) -> str | None:
    """Return the id of the last item before the page of a query; None for the first page."""
    start = page_start(query, question, str)
    return None if start is None else start[0]


def page_of(
    found: Sequence[T], query: Paged, question: object, place: Callable[[T], list[Any]]
) -> tuple[list[T], str | None]:
    """Return the first page of a list, and the token of the page after it if there is more."""
    # Callers look for one more than a page: it shows that another page follows.
    page = list(found[: query.page_size])
    return page, page_token(question, place(page[-1])) if len(found) > len(page) else None
