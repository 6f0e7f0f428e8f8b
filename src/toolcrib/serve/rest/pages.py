"""The queries and pages of lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from toolcrib.project.catalog.pages import page_token, read_page_token

T = TypeVar("T")

DEFAULT_PAGE, MOST = 25, 256
PageToken = Annotated[str, Meta(description="`nextPageToken` of the page before.")]


class PageQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The part of a query that names a page."""

    page_size: Annotated[int, Meta(ge=1, le=MOST)] = DEFAULT_PAGE
    page_token: PageToken | UnsetType = UNSET


def page_start(query: PageQuery, question: object, *types: type) -> tuple[Any, ...] | None:
    """Return the place where the page of a query begins; None for the first page.

    It is a place of `page_of`, with values of these types. InvalidInput for the token of another question.
    """
    if query.page_token is UNSET:
        return None
    return tuple(read_page_token(query.page_token, question, *types))


def page_before(query: PageQuery, question: object) -> str | None:
    """Return the id of the last item before the page of a query; None for the first page."""
    start = page_start(query, question, str)
    return None if start is None else start[0]


def page_of(
    found: Sequence[T], query: PageQuery, question: object, place: Callable[[T], list[Any]]
) -> tuple[list[T], str | None]:
    """Return the first page of a list, and the token of the page after it if there is more."""
    # Callers look for one more than a page: it shows that another page follows.
    page = list(found[: query.page_size])
    return page, page_token(question, place(page[-1])) if len(found) > len(page) else None


def token_of(token: str | UnsetType) -> str | None:
    """Return the `page_token` of a query, None for the first page."""
    return None if token is UNSET else token
