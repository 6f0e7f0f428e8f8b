"""Discord, by its REST API."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import orjson

from toolcrib.errors import InvalidInput, InvalidToken, SecretMissing, ToolFailed
from toolcrib.pods.channels.channel import Channel, Inbound, Outbound, WebAnswer, WebRequest, user_of

_log = logging.getLogger("toolcrib.pods")
T = TypeVar("T")
_LOOK_S = 3.0
_EPOCH_MS = 1_420_070_400_000
"""The time of the id 0."""
_ROW, _BUTTON = 1, 2
"""Kinds of components."""
_PING, _PRESS = 1, 3
"""Kinds of interactions."""
_PONG, _SEEN = 1, 6
"""Kinds of answers to them."""


class Discord(Channel):
    """`DISCORD_TOKEN` is the bot's token; `user:ID` as a chat is the private chat with a person.

    Messages are read from the chats in `DISCORD_CHATS`, separated by commas, and from the owner's. Presses of
    buttons come to `--listen`, signed with the key whose public half is `DISCORD_PUBLIC_KEY`.
    """

    name = "discord"
    limit = 2000

    async def check(self) -> None:
        await self._call("/users/@me")

    async def send(self, message: Outbound, key: str) -> None:
        chat = await self._chat(message.thread_id or message.chat_id)
        body = {
            "content": message.text,
            # Text of an agent must not alarm everybody on a server.
            "allowed_mentions": {"parse": []},
            # Within some minutes Discord drops a second message with the same one.
            "nonce": hashlib.sha256(key.encode()).hexdigest()[:25],
            "enforce_nonce": True,
        }
        if message.buttons:
            buttons = [
                {"type": _BUTTON, "style": 1, "label": one.label, "custom_id": one.action}
                for one in message.buttons
            ]
            body["components"] = [{"type": _ROW, "components": buttons}]
        await self._call(_messages(chat), body)

    async def receive(self, after: Inbound | None) -> AsyncIterator[Sequence[Inbound]]:
        now = (int(time.time() * 1000) - _EPOCH_MS) << 22
        named = (
            one.strip() for one in f"{self.settings.get('CHATS')},{self.settings.get('OWNER')}".split(",")
        )
        chats = [await self._found(name, self._chat(name)) for name in named if name]
        # A minute earlier: another chat may have older messages, and what comes twice counts once.
        last = dict.fromkeys(filter(None, chats), int(after.id) - (60_000 << 22) if after else now)
        while last:
            for chat, seen in list(last.items()):
                path = f"{_messages(chat)}?after={seen}&limit=100"
                page = await self._found(chat, self._call(path))
                if page is None:
                    del last[chat]
                    continue
                page = sorted(page, key=lambda one: int(one["id"]))
                yield [self._read(one) for one in page if not one.get("author", {}).get("bot")]
                if page:
                    last[chat] = int(page[-1]["id"])
            await asyncio.sleep(_LOOK_S)

    async def _found(self, chat: str, asked: Awaitable[T]) -> T | None:
        """Return an answer about a chat to read; if Discord refuses it, say so and return None."""
        try:
            return await asked
        except ToolFailed as error:
            _log.error(
                "%s, so nothing is read in %s: check DISCORD_CHATS and DISCORD_OWNER", error.message, chat
            )
            return None

    def accept(self, request: WebRequest) -> WebAnswer:
        at = request.headers.get("x-signature-timestamp", "")
        self._require_own(request.headers.get("x-signature-ed25519", ""), at.encode() + request.body)
        self.require_recent(at)
        body = orjson.loads(request.body)
        if body["type"] == _PING:
            return WebAnswer((), f'{{"type":{_PONG}}}', "application/json")
        if body["type"] != _PRESS:
            raise InvalidInput(f"discord sent an interaction of type {body['type']}")
        person = body["member"]["user"] if "member" in body else body["user"]
        chat, action = str(body["channel_id"]), str(body["data"]["custom_id"])
        pressed = Inbound(self.name, str(body["id"]), chat, str(person["id"]), "", "", action)
        return WebAnswer([pressed], f'{{"type":{_SEEN}}}', "application/json")

    def _require_own(self, signature: str, signed: bytes) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.settings.need("PUBLIC_KEY")))
        except ValueError:
            raise SecretMissing(
                "DISCORD_PUBLIC_KEY is not a key", hint="Copy it from the application."
            ) from None
        try:
            key.verify(bytes.fromhex(signature), signed)
        except (InvalidSignature, ValueError):
            raise InvalidToken("the request is not signed by discord") from None

    def _read(self, message: Mapping[str, Any]) -> Inbound:
        author, text = str(message["author"]["id"]), str(message.get("content", ""))
        return Inbound(self.name, str(message["id"]), str(message["channel_id"]), author, text)

    async def _chat(self, chat: str) -> str:
        user = user_of(chat)
        if user is None:
            return chat
        return str((await self._call("/users/@me/channels", {"recipient_id": user}))["id"])

    async def _call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        base = self.settings.get("API_URL", "https://discord.com/api/v10")
        token = f"Bot {self.settings.need('TOKEN')}"
        answer = await self._post(base + path, body, authorization=token)
        if answer.status == 401:
            raise self.wrong_token("TOKEN", "401 Unauthorized")
        if answer.status >= 300:
            why = f"status {answer.status}: {answer.body[:200].decode(errors='replace')}"
            raise ToolFailed(f"discord answered {why}") if body is None else self.refused(why)
        return orjson.loads(answer.body)


def _messages(chat: str) -> str:
    return f"/channels/{quote(chat, safe='')}/messages"
