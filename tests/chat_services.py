"""Local servers with the shape of the chat services: their paths, logins, answers and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "right-token"


@dataclass
class Heard:
    """A request that was made to a service."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Service:
    """One service. It takes what is right, and refuses the rest as the real one does."""

    answer: Callable[[Heard], tuple[int, Any]]
    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    first: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    """Status, body and headers of the answers to the next messages, before it answers as usual."""

    def said(self, part: str) -> list[Any]:
        """Return the bodies of the requests whose path has this part."""
        return [one.body for one in self.heard if part in one.path]

    async def serve(self, request: web.Request) -> web.Response:
        text = await request.text()
        heard = Heard(request.path_qs, request.headers, await request.json() if text else None)
        status, body = self.answer(heard)
        headers: dict[str, str] = {}
        if self.first and status < 300 and request.method == "POST" and _is_message(heard):
            status, body, headers = self.first.pop(0)
        else:
            self.heard.append(heard)
        return web.json_response(body, status=status, headers=headers)


def _is_message(heard: Heard) -> bool:
    return any(part in heard.path for part in ("sendMessage", "/messages", "chat.postMessage", "/hook"))


def telegram(heard: Heard) -> tuple[int, Any]:
    token, method = heard.path.removeprefix("/bot").split("/")
    if token != TOKEN:
        return 401, {"ok": False, "error_code": 401, "description": "Unauthorized"}
    if method == "sendMessage":
        if heard.body["chat_id"] == "404":
            return 400, {"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}
        if len(heard.body["text"].encode("utf-16-le")) > 2 * 4096:
            return 400, {"ok": False, "error_code": 400, "description": "Bad Request: message is too long"}
    return 200, {"ok": True, "result": {}}


def discord(heard: Heard) -> tuple[int, Any]:
    if heard.headers.get("Authorization") != f"Bot {TOKEN}":
        return 401, {"message": "401: Unauthorized", "code": 0}
    if heard.path == "/users/@me/channels":
        return 200, {"id": f"dm-{heard.body['recipient_id']}", "type": 1}
    if heard.body and len(heard.body["content"]) > 2000:
        return 400, {"code": 50035, "message": "Invalid Form Body"}
    if "/channels/404/" in heard.path:
        return 404, {"code": 10003, "message": "Unknown Channel"}
    return 200, {"id": "1"}


def slack(heard: Heard) -> tuple[int, Any]:
    # Slack answers an error with status 200.
    if heard.headers.get("Authorization") != f"Bearer {TOKEN}":
        return 200, {"ok": False, "error": "invalid_auth"}
    if heard.body.get("channel") == "404":
        return 200, {"ok": False, "error": "channel_not_found"}
    return 200, {"ok": True, "ts": "1.2"}


def whatsapp(heard: Heard) -> tuple[int, Any]:
    if heard.headers.get("Authorization") != f"Bearer {TOKEN}":
        return 401, {"error": {"message": "Invalid OAuth access token", "code": 190}}
    if heard.body is not None and heard.body["to"] == "404":
        return 400, {"error": {"message": "Recipient not in allowed list", "code": 131030}}
    return 200, {"messages": [{"id": "wamid.1"}]}


def webhook(heard: Heard) -> tuple[int, Any]:
    return (404, {}) if heard.body.get("chatId") == "404" else (200, {})


SERVICES = {
    "telegram": telegram,
    "discord": discord,
    "slack": slack,
    "whatsapp": whatsapp,
    "webhook": webhook,
}
LIMITED: Mapping[str, tuple[int, Any, dict[str, str]]] = {
    "telegram": (429, {"ok": False, "error_code": 429, "parameters": {"retry_after": 0.01}}, {}),
    "discord": (429, {"message": "You are being rate limited.", "retry_after": 0.01}, {}),
    "slack": (429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "0"}),
    "whatsapp": (429, {"error": {"message": "Too many", "code": 130429}}, {"Retry-After": "0"}),
    "webhook": (429, {}, {"Retry-After": "0"}),
}
"""The answer of each service that asks to wait."""


def environment(name: str, url: str, token: str = TOKEN) -> dict[str, str]:
    """Return the variables of a channel of this service."""
    settings = {
        "TOKEN": token,
        "API_URL": url,
        "PHONE_ID": "555",
        "OWNER": "me",
        "SECRET": "signing",
        "VERIFY_TOKEN": "verify",
        "URL": f"{url}/hook",
    }
    return {f"{name.upper()}_{key}": value for key, value in settings.items()}


@asynccontextmanager
async def served(name: str) -> AsyncIterator[Service]:
    """Run one service."""
    service = Service(SERVICES[name])
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", service.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    service.url = f"http://{host}:{port}"
    try:
        yield service
    finally:
        await runner.cleanup()
