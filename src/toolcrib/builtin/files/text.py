"""Text arguments as the bytes of a file."""

from __future__ import annotations

from toolcrib.errors import InvalidInput

__all__ = ["encoded"]


def encoded(text: str) -> bytes:
    """Return the text as UTF-8. Raises InvalidInput for half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the content contains half of a surrogate pair") from None
