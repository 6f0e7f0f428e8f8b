"""Server-sent events (WHATWG HTML, 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from toolcrib.errors import InvalidInput, InvalidToken
from toolcrib.serve.http import EVENT_STREAM
from toolcrib.serve.rest.services import RestRequest

_QUIET_S = 15.0
"""Seconds without an event after which a comment shows that the connection still works."""


def event_stream(request: RestRequest, events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return the stream of these events, as of `sent_event`. The client may leave at any time.

    It also ends with the client's token, and with the server.
    """
    return StreamingResponse(_stream(request, events), media_type=EVENT_STREAM)


def sent_event(number: int, kind: str, data: bytes) -> bytes:
    """Return an event as it is sent; `data` is JSON."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)


def last_event_id(request: RestRequest) -> int:
    """Return the number of the event that the client got last. Raises InvalidInput."""
    last = request.http.headers.get("last-event-id", "0")
    if not (last.isascii() and last.isdecimal()) or len(last) > 15:
        raise InvalidInput(f"there is no event {last[:40]!r}", hint="Send the id of an event.")
    return int(last)


async def _stream(request: RestRequest, events: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    stopping: asyncio.Future[Any] = asyncio.ensure_future(request.services.closing.wait())
    following: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            # It stays over quiet times: to cancel `anext` would end the generator.
            following = following or asyncio.ensure_future(anext(events, None))
            ready: set[asyncio.Future[Any]] = {following, stopping}
            done, _ = await asyncio.wait(ready, timeout=_QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            # A stream may outlive the token that it was opened with.
            request.services.access.require_valid(request.client)
            if following in done:
                event, following = following.result(), None
                if event is None:
                    return
                yield event
            elif stopping in done:
                yield b": the server stops\n\n"
                return
            else:
                yield b":\n\n"
    except InvalidToken:
        yield b": the token is no longer valid\n\n"
    finally:
        stopping.cancel()
        if following is not None:
            following.cancel()
