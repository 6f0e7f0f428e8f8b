"""Values that are masked in what tools return, beyond the secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.middleware.handler import Handler, Middleware
from toolcrib.spec import Call, CallContext, Outcome


def redaction_middleware(
    patterns: Iterable[str] = (), *, keys: Iterable[str] = (), mask: str = "***"
) -> Middleware:
    """Mask parts of texts that match a pattern, and the values of these keys in any case of letters.

    It covers the value, warnings and details of a result, and the message and details of an error. Chunks
    that a tool sends while it runs are not covered.
    """
    found = [re.compile(pattern) for pattern in patterns]
    hidden = frozenset(key.lower() for key in keys)

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            for pattern in found:
                value = pattern.sub(mask, value)
            return value
        if isinstance(value, dict):
            return {
                masked(key): mask if isinstance(key, str) and key.lower() in hidden else masked(part)
                for key, part in value.items()
            }
        return [masked(part) for part in value] if isinstance(value, list | tuple) else value

    def redaction(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            from toolcrib.schema.jsonable import to_json

            try:
                outcome = await following(call, ctx)
            except ToolcribError as error:
                error.message, error.details = masked(error.message), masked(error.details)
                error.args = (error.message,)
                raise
            warnings = tuple(masked(list(outcome.warnings)))
            return Outcome(masked(to_json(outcome.value)), warnings, masked(outcome.details))

        return handle

    return redaction
