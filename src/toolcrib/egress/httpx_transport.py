"""The guarded client as a transport of httpx2, for libraries that use httpx2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.egress.client import Egress, destination_of
from toolcrib.egress.decoding import decoded
from toolcrib.egress.destination import Destination
from toolcrib.egress.policy import HostPolicy
from toolcrib.errors import HttpFailed

if TYPE_CHECKING:
    import aiohttp
    import httpx2


_NOT_SENT = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
_PORTION = 4 * 1024
"""Bytes of a stream passed on at once: many short lines in a longer piece would keep the event loop busy."""
_DECODED = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers of an answer that no longer apply: it is decoded."""


def guarded_transport(
    egress: Egress,
    policy: HostPolicy | Callable[[Destination], HostPolicy],
    *,
    home: Destination,
    secrets: Mapping[str, str],
    seen: Callable[[str, int], None] = lambda *_: None,
    max_bytes: int = 16 * 1024 * 1024,
) -> httpx2.AsyncBaseTransport:
    """Return a transport that checks every request by `policy`, which may depend on its destination.

    Redirects are requests too.

    `secrets` are headers that are sent to the origin of `home`, and to no other. `seen` is called with URL
    and status of each answer. An answer of more than `max_bytes`, decoded, raises HttpFailed; streams of
    events have no limit. Raises otherwise what `Egress.begin` raises.
    """
    import httpx2

    class AnswerBody(httpx2.AsyncByteStream):
        def __init__(self, answer: aiohttp.ClientResponse, destination: Destination) -> None:
            self._answer = answer
            self._destination = destination

        async def __aiter__(self) -> AsyncIterator[bytes]:
            is_stream = self._answer.content_type == "text/event-stream"
            left = max_bytes
            with egress.translated(self._destination):
                async for chunk in decoded(self._answer):
                    if is_stream:
                        for start in range(0, len(chunk), _PORTION):
                            yield chunk[start : start + _PORTION]
                            await asyncio.sleep(0)
                        continue
                    left -= len(chunk)
                    if left < 0:
                        where = self._destination.authority
                        raise HttpFailed(f"the answer of {where} is longer than {max_bytes:,} bytes")
                    yield chunk

        async def aclose(self) -> None:
            self._answer.close()

    class GuardedTransport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            destination = destination_of(str(request.url))
            headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _NOT_SENT]
            # A redirect to another origin is a request of its own here, and must not carry the secrets along.
            if destination.origin == home.origin:
                headers = [(k, v) for k, v in headers if k.lower() not in secrets]
                headers += secrets.items()
            body: Any = await request.aread()
            own = policy if isinstance(policy, HostPolicy) else policy(destination)
            answer = await egress.begin(request.method, destination, headers, body or None, own)
            seen(destination.url, answer.status)
            received = [(k, v) for k, v in answer.headers.items() if k.lower() not in _DECODED]
            return httpx2.Response(answer.status, headers=received, stream=AnswerBody(answer, destination))

    return GuardedTransport()
