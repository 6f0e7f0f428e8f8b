"""The events of a call as server-sent events (WHATWG HTML, 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import StreamingResponse

from toolcrib.errors import InvalidToken
from toolcrib.serve.rest.running import OpenCall
from toolcrib.spec import CallEvent

EVENT_STREAM = "text/event-stream"
_QUIET_S = 15.0
"""Seconds without an event after which a comment shows that the connection still works."""


class EventData(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The data of an event."""

    call_id: str
    tool: str
    attempt: int = 1
    done: float | None = None
    total: float | None = None
    message: str = ""
    text: str = ""
    approval: str | None = None
    missed: int = 0


def event_stream(
    call: OpenCall, after: int, closing: asyncio.Event, check: Callable[[], None]
) -> StreamingResponse:
    """Return the events of a call after this number, and its result. The client may leave at any time.

    `check` is called before anything is sent; InvalidToken ends the stream.
    """
    return StreamingResponse(_events(call, after, closing, check), media_type=EVENT_STREAM)


async def _events(
    call: OpenCall, after: int, closing: asyncio.Event, check: Callable[[], None]
) -> AsyncGenerator[bytes]:
    stopping: asyncio.Future[Any] = asyncio.ensure_future(closing.wait())
    try:
        while True:
            check()
            for number, event, missed in call.after(after):
                after = number
                data = msgspec.json.encode(_data(event, missed))
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event.kind.encode(), data)
            if call.result is not None and after >= call.last:
                yield b"id: %d\nevent: result\ndata: %s\n\n" % (call.last + 1, call.body)
                return
            change: asyncio.Future[Any] = call.change()
            try:
                if after < call.last:  # Events came while the client read slowly.
                    continue
                done, _ = await asyncio.wait(
                    {change, stopping}, timeout=_QUIET_S, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                call.forget(change)
            if not done:
                yield b":\n\n"
            elif stopping in done and call.result is None:
                yield b": the server stops\n\n"
                return
    except InvalidToken:
        yield b": the token is no longer valid\n\n"
    finally:
        stopping.cancel()


def _data(event: CallEvent, missed: int) -> EventData:
    return EventData(
        call_id=event.call_id,
        tool=event.tool,
        attempt=event.attempt,
        done=event.done,
        total=event.total,
        message=event.message,
        text=event.text,
        approval=event.approval,
        missed=missed,
    )
