"""Slack, by its Web API and its Events API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import orjson

from toolcrib.errors import HttpFailed
from toolcrib.pods.channels.channel import (
    Channel,
    Inbound,
    Outbound,
    WebAnswer,
    WebRequest,
    parsed,
    user_of,
)

_TOKEN = ("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission")
_LATER = ("internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org")


class Slack(Channel):
    """`SLACK_TOKEN` is the bot's token, `SLACK_SECRET` the signing secret of requests to `--listen`.

    The id of a person as a chat is the private chat with that person.
    """

    name = "slack"
    limit = 4000

    async def check(self) -> None:
        await self._call("auth.test", {})

    async def send(self, message: Outbound, key: str) -> None:  # noqa: ARG002 - the API takes none
        # Else a text could mention everybody: `<!channel>`.
        text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        chat = user_of(message.chat_id) or message.chat_id
        # Else the service would open what an agent, or a question, links to.
        body: dict[str, Any] = {"channel": chat, "text": text, "unfurl_links": False, "unfurl_media": False}
        if message.thread_id:
            body["thread_ts"] = message.thread_id
        if message.buttons:
            buttons = [
                {
                    "type": "button",
                    "action_id": one.action,
                    "value": one.action,
                    "text": {"type": "plain_text", "text": one.label},
                }
                for one in message.buttons
            ]
            body["blocks"] = [
                # A section takes less than a message does; the whole text is in the notification.
                {"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}},
                {"type": "actions", "elements": buttons},
            ]
        await self._call("chat.postMessage", body)

    def accept(self, request: WebRequest) -> WebAnswer:
        at = request.headers.get("x-slack-request-timestamp", "")
        signed = b"v0:" + at.encode() + b":" + request.body
        given, secret = request.headers.get("x-slack-signature", ""), self.settings.need("SECRET")
        self.require_signature(given, secret, signed, "v0=")
        self.require_recent(at)
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return WebAnswer(self._pressed(orjson.loads(parse_qs(request.body.decode())["payload"][0])))
        body = orjson.loads(request.body)
        if body.get("type") == "url_verification":
            return WebAnswer(text=str(body["challenge"]))
        event = body.get("event", {})
        # One with a subtype is an edit, a join or a message of a bot, such as our own.
        if event.get("type") not in ("message", "app_mention") or "subtype" in event or "bot_id" in event:
            return WebAnswer()
        thread = str(event.get("thread_ts", ""))
        return WebAnswer(
            [
                Inbound(
                    self.name,
                    # A mention comes as a message too.
                    f"{event['channel']}-{event['ts']}",
                    str(event["channel"]),
                    str(event["user"]),
                    str(event.get("text", "")),
                    thread,
                )
            ]
        )

    def _pressed(self, body: Mapping[str, Any]) -> list[Inbound]:
        chat, person = str(body["channel"]["id"]), str(body["user"]["id"])
        return [
            Inbound(self.name, f"{chat}-{one['action_ts']}", chat, person, "", "", str(one["value"]))
            for one in body.get("actions", [])
        ]

    async def _call(self, method: str, body: Mapping[str, Any]) -> None:
        base = self.settings.get("API_URL", "https://slack.com/api")
        token = f"Bearer {self.settings.need('TOKEN')}"
        found = parsed(await self._post(f"{base}/{method}", body, authorization=token))
        if found.get("ok") is True:
            return
        why = str(found.get("error", "an answer that is not JSON"))
        if why in _TOKEN:
            raise self.wrong_token("TOKEN", why)
        if why in ("ratelimited", "rate_limited"):
            raise self.limited(1.0)
        if why in _LATER or not found:
            raise HttpFailed(f"slack answered {why}", retryable=True)
        raise self.refused(why)
