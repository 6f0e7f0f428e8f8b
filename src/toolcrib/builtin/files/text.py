"""Text that is cut at a number of bytes."""

from __future__ import annotations


def whole_characters(data: bytes) -> bytes:
    """Return the data without a character that is cut off at its end."""
    for back in range(1, min(4, len(data)) + 1):
        # UTF-8 (RFC 3629): 10xxxxxx continues a character; the first byte gives its length.
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            width = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if width > back and len(data) > back else data
    return data
