"""One HTTP request passed on and its answer passed back: one, whatever else either side sends."""

from __future__ import annotations

import asyncio

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.body import LAST_CHUNK, chunk, pass_body
from toolcrib.egress.proxy.head import BadMessage, RequestHead, ResponseHead, plain_answer, read_head
from toolcrib.egress.proxy.wire import Idle, Wire

__all__ = ["exchange"]

_MAX_INTERIM = 16
_FROM_SERVER = 502


class _ServerGone(Exception):
    """The server takes no more of the request's body."""


async def exchange(
    client: Wire, server: Wire, head: RequestHead, destination: Destination, idle_s: float
) -> None:
    """Pass on `head` and its body, and the answer back.

    When there is no answer that can be passed on, the client gets one of the proxy's own; an answer that
    breaks off in the middle breaks off for the client too.
    """
    one = _Exchange(client, server, head)
    try:
        async with Idle(idle_s, client, server):
            await one.run(destination)
    except TimeoutError:
        await one.fail(504, f"{destination.authority} did not answer within {idle_s:g} s")
    except BadMessage as error:
        if error.status == _FROM_SERVER:
            text = f"{destination.authority} did not answer in HTTP that can be passed on: {error.text}"
            await one.fail(_FROM_SERVER, text)
        else:
            await one.fail(error.status, error.text)
    except (EOFError, OSError):
        await one.fail(502, f"{destination.authority} closed the connection without an answer")


class _Exchange:
    def __init__(self, client: Wire, server: Wire, head: RequestHead) -> None:
        self._client = client
        self._server = server
        self._head = head
        self._begun = False

    async def run(self, destination: Destination) -> None:
        await self._server.send(self._head.onward(destination))
        if self._head.body == 0:
            await self._answer()
            return
        sender = asyncio.create_task(self._send_body())
        try:
            await self._answer()
        except (EOFError, OSError):
            # The server may have been cut off because of what the client sent.
            if sender.done() and not sender.cancelled() and (error := sender.exception()) is not None:
                raise error from None
            raise
        finally:
            sender.cancel()
            await asyncio.wait((sender,))
            if not sender.cancelled():
                sender.exception()

    async def fail(self, status: int, text: str) -> None:
        """Answer in the server's stead, unless it has begun to answer itself."""
        if not self._begun:
            try:
                await self._client.send(plain_answer(status, text))
            except OSError:
                pass

    async def _send_body(self) -> None:
        chunked = self._head.body == "chunked"

        async def give(piece: bytes) -> None:
            try:
                await self._server.send(chunk(piece) if chunked else piece)
            except OSError:
                raise _ServerGone from None
            await self._server.share()

        try:
            await pass_body(self._client, self._head.body, give)
            if chunked:
                await self._server.send(LAST_CHUNK)
        except _ServerGone:
            pass  # it may have answered and closed before it has read everything
        except (BadMessage, EOFError, OSError):
            self._server.abort()
            raise

    async def _answer(self) -> None:
        head = await self._final_head()
        chunked = head.body == "chunked" and self._head.chunks_understood
        ahead = head.onward(chunked=chunked)
        if not self._server.holds:
            ahead = await self._pass_on(ahead)

        async def give(piece: bytes) -> None:
            nonlocal ahead
            ahead = await self._pass_on(ahead + (chunk(piece) if chunked else piece))
            await self._client.share()

        # What came with the head goes on with it, in one go: each costs both sides a wake-up.
        await pass_body(self._server, head.body, give)
        if ahead or chunked:
            await self._pass_on(ahead + (LAST_CHUNK if chunked else b""))
        # The client waits for this end; closing the connection to the server can wait for it.
        self._client.finish()

    async def _pass_on(self, data: bytes) -> bytes:
        """Send part of the answer; nothing of it is left to be sent."""
        self._begun = True
        await self._client.send(data)
        return b""

    async def _final_head(self) -> ResponseHead:
        """The head of the answer proper, after passing on the interim ones (RFC 9110, 15.2)."""
        for _ in range(_MAX_INTERIM):
            try:
                head = ResponseHead.parse(await read_head(self._server), self._head.method)
            except BadMessage as error:
                raise BadMessage(error.text, _FROM_SERVER) from None
            if head.status >= 200:
                return head
            if head.status == 101:
                raise BadMessage("it changes to another protocol unasked", _FROM_SERVER)
            if self._head.chunks_understood:
                await self._client.send(head.onward(chunked=False))
        raise BadMessage("it sends interim answers without end", _FROM_SERVER)
