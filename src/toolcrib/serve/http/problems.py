"""Errors as HTTP responses, in the one shape that every interface uses: `{"error": {code, message, …}}`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from toolcrib.errors import InvalidToken, RateLimited, ToolcribError

__all__ = ["problem"]


def problem(error: ToolcribError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, with the status of its class."""
    more = dict(headers or {})
    if isinstance(error, InvalidToken):
        more["www-authenticate"] = "Bearer"
    if isinstance(error, RateLimited):
        more["retry-after"] = str(max(1, math.ceil(error.details.get("retry_after_s", 1))))
    body = msgspec.json.encode({"error": error.as_dict()}, enc_hook=str)
    return Response(body, error.status, more, "application/json")
