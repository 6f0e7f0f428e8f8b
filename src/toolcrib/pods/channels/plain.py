"""The channels without a service: a URL of one's own, and this terminal."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from threading import Thread

import msgspec

from toolcrib.errors import InvalidInput
from toolcrib.pods.channels.channel import Channel, Inbound, Outbound, WebAnswer, WebRequest
from toolcrib.spec.identifier import new_id

_SIGNATURE = "x-toolcrib-signature"


class Webhook(Channel):
    """Posts each message as JSON to `WEBHOOK_URL`, signed with `WEBHOOK_SECRET`.

    The header `X-Toolcrib-Signature` is `sha256=` and the HMAC of the body; `X-Toolcrib-Id` is the same at
    each attempt. Requests to `--listen` are signed in the same way, and have the form of an `Inbound`.
    """

    name = "webhook"
    limit = 1_000_000

    async def check(self) -> None:
        for name in ("URL", "SECRET"):
            self.settings.need(name)

    async def send(self, message: Outbound, key: str) -> None:
        body = msgspec.json.encode(message)
        made = hmac.new(self.settings.need("SECRET").encode(), body, hashlib.sha256).hexdigest()
        headers = {_SIGNATURE: f"sha256={made}", "x-toolcrib-id": key}
        answer = await self._post(self.settings.need("URL"), body, **headers)
        if answer.status in (401, 403):
            raise self.wrong_token("SECRET", f"status {answer.status}")
        if answer.status >= 300:
            raise self.refused(f"status {answer.status}")

    def accept(self, request: WebRequest) -> WebAnswer:
        given = request.headers.get(_SIGNATURE, "")
        self.require_signature(given, self.settings.need("SECRET"), request.body)
        try:
            message = msgspec.json.decode(request.body, type=Inbound)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the request is not a message: {error}") from None
        message.channel = self.name
        return WebAnswer([message])


class Console(Channel):
    """Prints messages to standard output, and reads one from each line of standard input."""

    name = "console"
    limit = 1_000_000
    defaults = {"CONSOLE_OWNER": "owner"}  # noqa: RUF012 - nobody changes it

    async def send(self, message: Outbound, key: str) -> None:  # noqa: ARG002 - a terminal needs none
        lines = [message.text, *(f"[{one.label}] {one.action}" for one in message.buttons)]
        for line in "\n".join(lines).splitlines() or [""]:
            # Escape sequences would change the terminal.
            shown = "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
            sys.stdout.write(f"{message.chat_id}: {shown}\n")
        sys.stdout.flush()

    async def receive(self, after: Inbound | None) -> AsyncIterator[Sequence[Inbound]]:  # noqa: ARG002 - lines are new
        owner = self.settings.need("OWNER")
        lines = _lines()
        while line := await lines.get():
            if line.strip():
                yield [Inbound(self.name, new_id(), owner, owner, line.strip())]


def _lines() -> asyncio.Queue[str]:
    """Return the lines of standard input as they come, and an empty one at its end."""
    lines, loop = asyncio.Queue[str](), asyncio.get_running_loop()

    def read() -> None:
        with (
            open(0, errors="replace", closefd=False) as source,
            suppress(RuntimeError),
        ):  # The loop has ended.
            for line in source:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

    # The end of the process does not wait for a daemon, nor the daemon for a key.
    Thread(target=read, daemon=True).start()
    return lines
