"""Pages of tools, and conditions for them. The token of a page says where it begins, for one question."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import orjson

from toolcrib.errors import InvalidInput

if TYPE_CHECKING:
    from toolcrib.bundles import ListedTool

T = TypeVar("T")


class ToolPage(NamedTuple, Generic[T]):
    """One page of tools."""

    tools: list[T]
    next: str | None
    """Token of the next page."""
    total: int | None = None
    """All tools that a search has found."""


class Facets(NamedTuple):
    """Counts of tools."""

    total: int
    disabled: int
    """The number of disabled ones, whether `total` has them or not."""
    tags: dict[str, int]
    kinds: dict[str, int]
    types: dict[str, int]
    sources: dict[str, int]
    bundles: dict[str, int]
    """Id of a bundle to the number of its tools."""
    availability: dict[str, int]
    """`available` and `unavailable`, as far as it is known."""
    touches: dict[str, int]
    """Things that they may touch; empty with more than 1,000 records."""


class Filter(NamedTuple):
    """Conditions for the tools of a search beside its words."""

    bundles: Collection[str] = ()
    """Ids; all without any."""
    include_disabled: bool = False
    sees: Callable[[ListedTool], bool] | None = None
    """Returns True for a tool that the caller may see; None: all."""

    def hides(self, tool: ListedTool) -> bool:
        """Return True for a tool that must not even be counted."""
        return self.sees is not None and not self.sees(tool)


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
