"""Errors as HTTP responses, in the one shape that every interface uses: `{"error": {code, message, …}}`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from toolcrib.errors import InvalidToken, MethodNotAllowed, RateLimited, SlowRequest, ToolcribError
from toolcrib.manifest import hide_lines


class ViolationAnswer(Struct, frozen=True):
    """One place where a value is wrong."""

    path: str
    message: str


class Problem(Struct, frozen=True):
    """An error as every interface reports it."""

    code: str
    message: str
    retryable: bool
    hint: str | None
    violations: list[ViolationAnswer]
    details: dict[str, Any]


class ErrorAnswer(Struct, frozen=True):
    """The body of every error."""

    error: Problem


def problem(error: ToolcribError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, with the status of its class, and without lines of files."""
    hide_lines(error)
    more = dict(headers or {})
    if isinstance(error, InvalidToken):
        # RFC 6750, 3: the scheme has at least one parameter.
        more.setdefault("www-authenticate", 'Bearer realm="toolcrib"')
    if isinstance(error, RateLimited):
        # RFC 9110, 10.2.3: whole seconds. With 0 a client would ask again at once.
        more["retry-after"] = str(max(1, math.ceil(error.details.get("retryAfterS", 1))))
    if isinstance(error, SlowRequest):
        more["connection"] = "close"  # The rest of the body could be taken for the next request.
    body = msgspec.json.encode({"error": error.as_dict()}, enc_hook=str)
    return Response(body, error.status, more, "application/json")


def no_such_method(methods: Iterable[str]) -> Response:
    """Return the response of an address that has only these methods (RFC 9110, 15.5.6)."""
    allow = ", ".join(sorted(methods))
    return problem(MethodNotAllowed(hint=f"Allowed: {allow}."), {"allow": allow})
