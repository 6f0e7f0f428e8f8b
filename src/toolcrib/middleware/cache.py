"""Recorded answers of read-only tools, by their arguments."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from toolcrib.middleware.handler import Handler, Middleware, tool_of
from toolcrib.spec import Call, CallContext, Outcome


def cache_middleware(
    ttl_s: float = 60.0, *, entries: int = 1_000, clock: Callable[[], float] = time.monotonic
) -> Middleware:
    """Answer a repeated call of a read-only tool with the earlier answer, for `ttl_s` seconds.

    A call is the same if tool, version, arguments, caller and run variables are. Tools without
    `annotations.read_only` and failures are never cached. At most `entries` answers are kept, the least
    recently used goes first. `details["cached"]` marks an answer from the cache.
    """
    kept: OrderedDict[bytes, tuple[float, Outcome]] = OrderedDict()

    def cache(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            key = _key(call, ctx)
            if key is None:
                return await following(call, ctx)
            until, found = kept.get(key, (0.0, None))
            if found is not None and clock() < until:
                kept.move_to_end(key)
                return replace(deepcopy(found), details={**(found.details or {}), "cached": True})
            outcome = await following(call, ctx)
            # A copy each way: whoever gets an answer may change it.
            kept[key] = clock() + ttl_s, deepcopy(outcome)
            kept.move_to_end(key)
            while len(kept) > entries:
                kept.popitem(last=False)
            return outcome

        return handle

    return cache


def _key(call: Call, ctx: CallContext) -> bytes | None:
    """Return the identity of the call; None for one that is not cached."""
    import orjson

    tool = tool_of(ctx)
    if tool is None or tool.annotations.read_only is not True:
        return None
    facts = [
        *(tool.bundle, tool.name, str(tool.version), call.caller, repr(call.identity)),
        *(call.variables, call.arguments),
    ]
    try:
        return b"%b" % orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)  # without spare room
    except TypeError:  # Values that are not JSON have no identity.
        return None
