"""Requests and answers of the guarded client, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

DEFAULT_RESPONSE_BYTES = 2 * 1024 * 1024
"""The decoded bytes of a body that are read if the request sets no other limit."""
MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""The bytes of a body that are sent at most."""


# Made for every call, so slotted but not frozen: a frozen dataclass triples the cost of making one.


@dataclass(slots=True)
class EgressRequest:
    """One request, and the limits for its answer."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    timeout_s: float | None = None
    """Seconds for everything: name, connection, headers, body, redirects. None: no limit of its own."""
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    """Decoded bytes of the body. The rest is not read, and `truncated` is set."""
    follow_redirects: bool = True
    secret_headers: frozenset[str] = frozenset()
    """Lower-case names of headers derived from a secret: like Authorization and Cookie, they never go to
    another origin."""
    on_chunk: Callable[[bytes], None] | None = None
    """Called with each decoded piece of a successful answer that is a stream of events or lines, or plain
    text in chunks."""
    secret_body: bool = False
    """The body is derived from a secret: a redirect that would send it to another origin is refused."""


@dataclass(slots=True)
class EgressResponse:
    """One answer, whatever its status."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str
    """The URL of the last request, after redirects."""
    truncated: bool = False
    redirects: int = 0

    def header(self, name: str) -> str | None:
        """Return the first header of this name, upper or lower case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    @property
    def content_type(self) -> str:
        """The media type in lower case without parameters, or no text."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def retry_after_s(self) -> float | None:
        """The seconds to wait that the server asks for (RFC 9110, 10.2.3), at least 0; None without."""
        value = (self.header("retry-after") or "").strip()
        if value.isascii() and value.isdigit():
            return float(value[:9])
        from email.utils import parsedate_to_datetime

        try:
            when = parsedate_to_datetime(value)
        except (OverflowError, ValueError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds())
