"""Values that are masked in what tools return and report, beyond the secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from toolcrib.errors import ToolcribError
from toolcrib.middleware.handler import Handler, Middleware
from toolcrib.spec import Call, CallContext, Outcome
from toolcrib.spec.calls.content import Content, blocks_of


def redaction_middleware(
    patterns: Collection[str] = (), *, keys: Collection[str] = (), mask: str = "***"
) -> Middleware:
    """Mask parts of texts that match a pattern, and the values of these keys in any case of letters.

    It covers results and errors, and what a tool reports while it runs: progress, chunks and log messages.
    In chunks a pattern is searched line by line, so they come in whole lines. Images, sound and other binary
    data are not covered.
    """
    from toolcrib.guard import MaskRules, Redactor

    rules = MaskRules({re.compile(one): mask for one in patterns}, {key.lower(): mask for key in keys})
    own = Redactor(()).with_rules(rules)

    def redaction(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            from toolcrib.schema.decode import to_json

            known = ctx.redactor if isinstance(ctx.redactor, Redactor) else Redactor(ctx.secrets)
            ctx.redactor = known.with_rules(known.rules | rules)  # type: ignore[misc] # others only read it
            try:
                outcome = await following(call, ctx)
            except ToolcribError as error:
                error.apply_mask(own.redact)
                raise
            value = outcome.value
            if content := blocks_of(value):
                value = [Content(own.redact(block)) for block in content]
            elif not isinstance(value, bytes):
                value = to_json(value)
            return replace(outcome, value=value).masked(own.redact)

        return handle

    return redaction
