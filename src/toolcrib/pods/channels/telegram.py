"""Telegram, by the Bot API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from toolcrib.errors import HttpFailed, ToolFailed
from toolcrib.pods.channels.channel import Channel, Inbound, Outbound, parsed, user_of

_WAIT_S = 50
"""Seconds that Telegram holds a request for messages open."""


class Telegram(Channel):
    """`TELEGRAM_TOKEN` is the bot's token. A private chat has the id of its person."""

    name = "telegram"
    limit = 4096

    async def check(self) -> None:
        await self._call("getMe")

    async def send(self, message: Outbound, key: str) -> None:  # noqa: ARG002 - the Bot API takes none
        body: dict[str, Any] = {
            "chat_id": user_of(message.chat_id) or message.chat_id,
            "text": message.text,
            # Else the service would open what an agent, or a question, links to.
            "link_preview_options": {"is_disabled": True},
        }
        if message.thread_id:
            body["message_thread_id"] = int(message.thread_id) if message.thread_id.isdigit() else 0
        if message.buttons:
            row = [{"text": one.label, "callback_data": one.action} for one in message.buttons]
            body["reply_markup"] = {"inline_keyboard": [row]}
        await self._call("sendMessage", body)

    async def receive(self, after: Inbound | None) -> AsyncIterator[Sequence[Inbound]]:  # noqa: ARG002 - Telegram knows
        offset = 0
        while True:
            body = {
                "offset": offset,
                "timeout": _WAIT_S,
                "allowed_updates": ["message", "callback_query"],
            }
            updates = (await self._call("getUpdates", body)).get("result", [])
            yield [one for one in map(self._read, updates) if one is not None]
            offset = max([offset, *(int(update["update_id"]) + 1 for update in updates)])
            for update in updates:
                if "callback_query" in update:  # Without an answer the button shows that it waits.
                    await self._answer(update["callback_query"]["id"])

    async def _answer(self, query: str) -> None:
        try:
            await self._call("answerCallbackQuery", {"callback_query_id": query})
        except (HttpFailed, ToolFailed):  # It is too late for one that is a few minutes old.
            return

    def _read(self, update: Mapping[str, Any]) -> Inbound | None:
        query = update.get("callback_query")
        message = query.get("message") if query else update.get("message")
        if not message or not (query or "text" in message):
            return None
        return Inbound(
            self.name,
            str(update["update_id"]),
            str(message["chat"]["id"]),
            str((query or message).get("from", {}).get("id", "")),
            "" if query else message["text"],
            str(message.get("message_thread_id", "")),
            query.get("data", "") if query else "",
        )

    async def _call(self, method: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        base = self.settings.get("API_URL", "https://api.telegram.org")
        answer = await self._post(f"{base}/bot{self.settings.need('TOKEN')}/{method}", body)
        found = parsed(answer)
        if found.get("ok") is True:
            return found
        why = str(found.get("description", f"status {answer.status}"))
        # A token of another form is an unknown address.
        if answer.status in (401, 404):
            raise self.wrong_token("TOKEN", why)
        raise self.refused(why)
