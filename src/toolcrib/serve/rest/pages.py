"""Pages of lists: each begins behind the last entry of the one before, whatever has changed since."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from toolcrib.errors import UsageError

__all__ = ["DEFAULT_PAGE", "MOST", "PageSize", "page_token", "read_page_token"]

DEFAULT_PAGE, MOST = 25, 256
PageSize = Annotated[int, Meta(ge=1, le=MOST)]


def page_token(question: object, place: list[Any]) -> str:
    """Return the token of the page that begins behind a place. It is valid for this question only."""
    return base64.urlsafe_b64encode(msgspec.json.encode([_digest(question), *place])).decode().rstrip("=")


def read_page_token(token: str, question: object, *types: type) -> list[Any]:
    """Return the place in a token, values of these types. Raises UsageError if it is of another question."""
    try:
        padded = token + "=" * (-len(token) % 4)
        place: list[Any]
        digest, *place = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
        if [type(value) for value in place] != list(types):
            raise TypeError
    except (ValueError, TypeError):
        raise UsageError(
            "this is not a page token", hint="Send `nextPageToken` of the page before."
        ) from None
    if digest != _digest(question):
        raise UsageError(
            "this page token belongs to another list", hint="Send the filters of the first page too."
        )
    return place


def _digest(question: object) -> str:
    return hashlib.sha256(repr(question).encode()).hexdigest()[:16]
