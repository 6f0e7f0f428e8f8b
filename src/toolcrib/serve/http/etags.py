"""ETags: a client changes what it has seen, or nothing (RFC 9110, 8.8.3 and 13.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from toolcrib.errors import PreconditionFailed


def etag_of(body: bytes) -> str:
    """Return the ETag of a body."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def matches(header: str | None, tag: str) -> bool:
    """Return True if a list of ETags, or `*`, names this one."""
    listed = "" if header is None else header
    # A proxy that compresses an answer makes its ETag weak; the record is the same.
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in listed.split(","))


def check_preconditions(headers: Mapping[str, str], current: Any) -> None:
    """Raise PreconditionFailed if `If-Match` or `If-None-Match` forbids a change.

    `current` is what a GET would answer now, None if there is nothing.
    """
    tag = "" if current is None else etag_of(msgspec.json.encode(current))
    wanted = headers.get("if-match")
    if wanted is not None and (not tag or not matches(wanted, tag)):
        raise PreconditionFailed(hint="GET it again, and send the new ETag.", details={"etag": tag or None})
    if tag and matches(headers.get("if-none-match"), tag):
        raise PreconditionFailed("it exists already", details={"etag": tag})
