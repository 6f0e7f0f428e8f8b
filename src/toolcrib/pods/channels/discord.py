"""Discord, by its REST API."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson

from toolcrib.pods.channels.channel import Channel, Inbound, Outbound, user_of

_LOOK_S = 3.0
_EPOCH_MS = 1_420_070_400_000
"""The time of the id 0."""


class Discord(Channel):
    """`DISCORD_TOKEN` is the bot's token; `user:ID` as a chat is the private chat with a person.

    Messages are read from the chats in `DISCORD_CHATS`, separated by commas, and from the owner's.
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
        await self._call(f"/channels/{chat}/messages", body)

    async def receive(self, after: Inbound | None) -> AsyncIterator[Sequence[Inbound]]:
        now = (int(time.time() * 1000) - _EPOCH_MS) << 22
        named = [one.strip() for one in self.settings.get("CHATS").split(",") if one.strip()]
        if owner := self.settings.get("OWNER"):
            named.append(await self._chat(owner))
        # A minute earlier: another chat may have older messages, and what comes twice counts once.
        last = dict.fromkeys(named, int(after.id) - (60_000 << 22) if after else now)
        while last:
            for chat, seen in last.items():
                page = await self._call(f"/channels/{chat}/messages?after={seen}&limit=100")
                page = sorted(page, key=lambda one: int(one["id"]))
                yield [self._read(one) for one in page if not one.get("author", {}).get("bot")]
                if page:
                    last[chat] = int(page[-1]["id"])
            await asyncio.sleep(_LOOK_S)

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
            raise self.refused(f"status {answer.status}: {answer.body[:200].decode(errors='replace')}")
        return orjson.loads(answer.body)
