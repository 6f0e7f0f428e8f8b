"""The queries and pages of lists."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

DEFAULT_PAGE, MOST = 25, 256
PageToken = Annotated[str, Meta(description="`nextPageToken` of the page before.")]


class PageQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The part of a query that names a page."""

    page_size: Annotated[int, Meta(ge=1, le=MOST)] = DEFAULT_PAGE
    page_token: PageToken | UnsetType = UNSET


def token_of(token: str | UnsetType) -> str | None:
    """Return the `page_token` of a query, None for the first page."""
    return None if token is UNSET else token
