"""Pages of tools. The token of a page is the place where it begins, valid for one question only."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from toolcrib.errors import InvalidInput

if TYPE_CHECKING:
    from toolcrib.bundles.listing import ListedTool
    from toolcrib.search import Found, Hit


class ToolPage(NamedTuple):
    """One page of a list of tools."""

    tools: list[ListedTool]
    next: str | None
    """Token of the next page."""


class ToolHits(NamedTuple):
    """One page of hits, the best first, and how many there are in all."""

    hits: list[Hit]
    """Their tools are `ListedTool`s."""
    next: str | None
    """Token of the next page."""
    total: int
    found: Found | None = None
    """Counts them when it is asked."""

    @property
    def tags(self) -> dict[str, int]:
        """Hits with each tag."""
        return {} if self.found is None else dict(self.found.tags)

    @property
    def kinds(self) -> dict[str, int]:
        """Hits of each kind."""
        return {} if self.found is None else dict(self.found.kinds)

    @property
    def types(self) -> dict[str, int]:
        """Hits of each type."""
        return {} if self.found is None else dict(self.found.types)


def page_token(question: object, place: list[Any]) -> str:
    """Return the token of the page that begins behind a place, which is JSON."""
    return base64.urlsafe_b64encode(orjson.dumps([_digest(question), *place])).decode().rstrip("=")


def read_page_token(token: str, question: object, *types: type) -> list[Any]:
    """Return the place in a token: values of these types. InvalidInput if it is of another question."""
    try:
        padded = token + "=" * (-len(token) % 4)
        digest, *place = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        # Clients send it back, so it may be anything. `type`, because True is an instance of int.
        if [type(value) for value in place] != list(types):
            raise TypeError
    except (ValueError, TypeError, binascii.Error):
        raise InvalidInput("this is not a token of a page", hint="Use `next` of the page before.") from None
    # A place in another list would silently leave tools out, or show them twice.
    if digest != _digest(question):
        hint = "Repeat the words and filters that it came from."
        raise InvalidInput("this page belongs to another search", hint=hint)
    return list(place)


def _digest(question: object) -> str:
    return hashlib.sha256(repr(question).encode()).hexdigest()[:16]
