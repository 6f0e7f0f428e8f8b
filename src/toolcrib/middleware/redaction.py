"""Values that are masked in what tools return, beyond the secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.middleware.handler import Handler, Middleware
from toolcrib.spec import Call, CallContext, Outcome
from toolcrib.spec.calls.content import Content, blocks_of


def redaction_middleware(
    patterns: Collection[str] = (), *, keys: Collection[str] = (), mask: str = "***"
) -> Middleware:
    """Mask parts of texts that match a pattern, and the values of these keys in any case of letters.

    It covers the value, warnings and details of a result, and the message and details of an error. Images,
    sound and other binary data, and chunks that a tool sends while it runs, are not covered.
    """
    found = [re.compile(pattern) for pattern in patterns]
    hidden = frozenset(key.lower() for key in keys)

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            for pattern in found:
                value = pattern.sub(mask, value)
            return value
        if isinstance(value, dict):
            return {masked(key): member(value, key, part) for key, part in value.items()}
        return [masked(part) for part in value] if isinstance(value, list | tuple) else value

    def member(block: dict[Any, Any], key: Any, part: Any) -> Any:
        if isinstance(key, str) and key.lower() in hidden:
            return mask
        is_image = key == "data" and block.get("type") in ("image", "audio")
        return part if is_image or (key == "blob" and "uri" in block) else masked(part)

    def redaction(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            from toolcrib.schema.jsonable import to_json

            try:
                outcome = await following(call, ctx)
            except ToolcribError as error:
                error.message, error.details = masked(error.message), masked(error.details)
                # `str(error)` shows these, not the message.
                error.args = (error.message,)
                raise
            value = outcome.value
            if found := blocks_of(value):
                value = [Content(masked(block)) for block in found]
            elif not isinstance(value, bytes):
                value = masked(to_json(value))
            warnings, blocks = (tuple(masked(list(one))) for one in (outcome.warnings, outcome.blocks))
            return Outcome(value, warnings, masked(outcome.details), blocks)

        return handle

    return redaction
