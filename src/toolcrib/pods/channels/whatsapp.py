"""WhatsApp, by the Cloud API."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import orjson

from toolcrib.errors import HttpFailed, InvalidToken
from toolcrib.pods.channels.channel import (
    Channel,
    Inbound,
    Outbound,
    WebAnswer,
    WebRequest,
    parsed,
    user_of,
)

_TOKEN = (0, 10, 190)
_TOO_MANY = (4, 80007, 130429, 131048, 131056)
_LATER = (1, 2, 131000, 131016, 133004)


class WhatsApp(Channel):
    """`WHATSAPP_TOKEN` and `WHATSAPP_PHONE_ID` send; a chat is a phone number.

    `WHATSAPP_SECRET`, the app's, and `WHATSAPP_VERIFY_TOKEN` are for requests to `--listen`.
    """

    name = "whatsapp"
    limit = 4096

    async def check(self) -> None:
        await self._call("?fields=id", None)

    async def send(self, message: Outbound, key: str) -> None:  # noqa: ARG002 - the API takes none
        body: dict[str, Any] = {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": user_of(message.chat_id) or message.chat_id,
        }
        # A message with buttons takes 1,024 characters.
        if message.buttons and len(message.text) <= 1024:
            buttons = [
                {"type": "reply", "reply": {"id": one.action, "title": one.label[:20]}}
                for one in message.buttons
            ]
            content = {"type": "button", "body": {"text": message.text}, "action": {"buttons": buttons}}
            body |= {"type": "interactive", "interactive": content}
        else:
            body |= {"type": "text", "text": {"body": message.text, "preview_url": False}}
        await self._call("/messages", body)

    def accept(self, request: WebRequest) -> WebAnswer:
        if request.method == "GET":
            given, known = request.query.get("hub.verify_token", ""), self.settings.need("VERIFY_TOKEN")
            if not hmac.compare_digest(given.encode(), known.encode()):
                raise InvalidToken("the request has another verify token than WHATSAPP_VERIFY_TOKEN")
            return WebAnswer(text=request.query.get("hub.challenge", ""))
        given = request.headers.get("x-hub-signature-256", "")
        self.require_signature(given, self.settings.need("SECRET"), request.body)
        values = [
            change.get("value", {})
            for entry in orjson.loads(request.body).get("entry", [])
            for change in entry.get("changes", [])
        ]
        return WebAnswer([self._read(one) for value in values for one in value.get("messages", [])])

    def _read(self, message: Mapping[str, Any]) -> Inbound:
        person = str(message["from"])
        pressed = message.get("interactive", {}).get("button_reply", {}).get("id", "")
        text = message.get("text", {}).get("body", "")
        return Inbound(self.name, str(message["id"]), person, person, text, "", pressed)

    async def _call(self, path: str, body: Mapping[str, Any] | None) -> None:
        base = self.settings.get("API_URL", "https://graph.facebook.com/v23.0")
        url = f"{base}/{self.settings.need('PHONE_ID')}{path}"
        answer = await self._post(url, body, authorization=f"Bearer {self.settings.need('TOKEN')}")
        if answer.status < 300:
            return
        error = parsed(answer).get("error", {})
        code, why = error.get("code"), str(error.get("message", f"status {answer.status}"))
        if code in _TOKEN or answer.status == 401:
            raise self.wrong_token("TOKEN", why)
        if code in _TOO_MANY:
            raise self.limited(5.0)
        if code in _LATER:
            raise HttpFailed(f"whatsapp answered {why}", retryable=True)
        raise self.refused(why)
