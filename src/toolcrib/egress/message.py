"""One request out and one answer back, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["DEFAULT_RESPONSE_BYTES", "EgressRequest", "EgressResponse"]

DEFAULT_RESPONSE_BYTES = 2 * 1024 * 1024
"""How many decoded bytes of a body are read unless the request says otherwise."""


# Made for every call, so slotted but not frozen: a frozen dataclass triples the cost of making one.


@dataclass(slots=True)
class EgressRequest:
    """What to send, and how far to go for it."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    timeout_s: float | None = None
    """Seconds for everything: name, connection, headers, body, redirects. None: no limit of its own."""
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    """Decoded bytes of the body; what lies beyond is not read and `truncated` says so."""
    follow_redirects: bool = True
    secret_headers: frozenset[str] = frozenset()
    """Lower-case names of headers derived from a secret: like Authorization and Cookie, they never go to
    another origin."""
    secret_body: bool = False
    """The body is derived from a secret: a redirect that would send it to another origin is refused."""


@dataclass(slots=True)
class EgressResponse:
    """What came back, whatever its status."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str
    """Of the last request, after redirects."""
    truncated: bool = False
    redirects: int = 0

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case of letters."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    @property
    def content_type(self) -> str:
        """The media type in lower case without parameters, or nothing."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()
