"""One channel as a process: it delivers what is on the bus, and publishes what people write."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from toolcrib.errors import HttpFailed, InvalidToken, RateLimited, SecretMissing, ToolcribError
from toolcrib.pods.bus import RECEIVED, SEND, STATE, Bus, envelope
from toolcrib.pods.channels.channel import Channel, Inbound, Outbound, WebRequest, split

if TYPE_CHECKING:
    from aiohttp import web

_LONGEST_WAIT_S = 60.0
_log = logging.getLogger("toolcrib.pods")


class Settled(msgspec.Struct, rename="camel", omit_defaults=True):
    """The end of a message: the data of `channel.message.state`."""

    id: str
    state: str
    """`delivered` or `dead`."""
    message: Outbound
    error: str = ""


class ChannelProcess:
    """Serves one channel until it is cancelled.

    Messages are delivered in their order. While the service cannot be reached or asks to wait, they wait;
    after `give_up_s` seconds a message is a dead letter, and at once if the service does not take it.
    """

    def __init__(self, channel: Channel, bus: Bus, give_up_s: float = 3_600.0) -> None:
        self._channel, self._bus, self._give_up_s = channel, bus, give_up_s
        self._allowed = channel.settings.allowed

    async def run(self, listen: tuple[str, int] | None = None) -> None:
        """Deliver and receive; `listen` is where requests of the service are accepted.

        Raises InvalidToken as soon as the service refuses the token: nothing is lost, messages wait.
        """
        await self._patiently(self._channel.check)
        parts = [self._deliver(), self._receive(), *([self._listen(*listen)] if listen else [])]
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        except* ToolcribError as errors:
            raise errors.exceptions[0] from None

    async def _deliver(self) -> None:
        await self._bus.consume(f"channel-{self._channel.name}", SEND, Outbound, self._sent)

    async def _sent(self, messages: Sequence[tuple[str, Outbound]]) -> None:
        for key, message in messages:
            if message.channel == self._channel.name:
                await self._send(key, message)

    async def _send(self, key: str, message: Outbound) -> None:
        error = ""
        try:
            chat = message.chat_id or self._channel.settings.need("OWNER")
            text = f"{message.text}\n{message.link}" if message.link else message.text
            parts = split(text, self._channel.limit)
            for number, text in enumerate(parts, 1):
                # The buttons belong to the end of a long text.
                buttons = message.buttons if number == len(parts) else []
                part = Outbound(message.channel, text, chat, message.thread_id, buttons)
                await self._patiently(partial(self._channel.send, part, f"{key}/{number}"))
        except InvalidToken:
            raise
        except ToolcribError as failure:
            error = failure.message
            _log.error("message %s is a dead letter: %s", key, error)
        # Buttons and link are for this person alone.
        shown = msgspec.structs.replace(message, buttons=[], link="")
        settled = Settled(key, "dead" if error else "delivered", shown, error)
        await self._bus.insist(STATE, f"{key}:{settled.state}", envelope(STATE, settled))

    async def _patiently(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do something of the service; wait and do it again as long as that may help."""
        began, pause = time.monotonic(), 1.0
        while True:
            try:
                return await act()
            except (HttpFailed, RateLimited) as error:
                wait = error.details.get("retryAfterS", pause)
                if not error.retryable or time.monotonic() + wait - began > self._give_up_s:
                    raise
                _log.warning("%s; again in %g s", error.message, wait)
            await asyncio.sleep(wait)
            pause = min(pause * 2, _LONGEST_WAIT_S)

    async def _receive(self) -> None:
        # Apart from what `accept` reads, whose ids may be of another order.
        subject = f"{RECEIVED}.{self._channel.name}"
        after = await self._bus.last(subject, Inbound)
        pause = 1.0
        while True:
            try:
                async for page in self._channel.receive(after):
                    pause = 1.0
                    for one in page:
                        after = one
                    await self._publish(page, subject)
                return
            except (HttpFailed, RateLimited) as error:
                wait = error.details.get("retryAfterS", pause)
                _log.warning("%s; again in %g s", error.message, wait)
            await asyncio.sleep(wait)
            pause = min(pause * 2, _LONGEST_WAIT_S)

    async def _publish(self, messages: Sequence[Inbound], subject: str) -> None:
        for one in messages:
            if one.sender not in self._allowed:
                _log.warning("%s: a message of %s, who is not allowed, is dropped", one.channel, one.sender)
                continue
            await self._bus.insist(subject, f"{one.channel}/{one.id}", envelope(subject, one))

    async def _listen(self, host: str, port: int) -> None:
        from aiohttp import web

        app = web.Application()
        app.router.add_route("*", "/", self._accept)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _accept(self, request: web.Request) -> web.Response:
        from aiohttp import web

        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            body = await request.read()
            answer = self._channel.accept(WebRequest(request.method, request.query, headers, body))
        except InvalidToken as error:
            _log.warning("%s", error.message)
            return web.Response(status=401)
        except SecretMissing as error:
            _log.error("%s", error.message)
            return web.Response(status=503)
        except (ToolcribError, LookupError, TypeError, ValueError, AttributeError):
            return web.Response(status=400)
        await self._publish(answer.messages, f"{RECEIVED}.{self._channel.name}.web")
        return web.Response(text=answer.text, content_type=answer.content_type)
