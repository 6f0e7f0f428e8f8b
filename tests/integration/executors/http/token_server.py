"""A token server (RFC 6749, RFC 8628) and an API behind it, strict about what it takes."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

CLIENT, PASSWORD = "shop-client", "client-secret-1"


@dataclass
class TokenServer:
    """Gives tokens, counts them, and answers `/api` only for the last one."""

    expires_in: int | None = 3600
    rotates: bool = False
    pending: int = 0
    """Polls of the device flow that are answered with `authorization_pending`."""
    issued: list[str] = field(default_factory=list)
    refresh: str = "refresh-0"
    requests: list[dict[str, str]] = field(default_factory=list)
    api: list[str] = field(default_factory=list)
    device_answer: bytes | None = None
    """The answer of the device flow, if not the usual one."""
    refuses: bool = False
    """The API takes no token at all."""
    failure: web.Response | None = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        routes = {"/token": self.token, "/device": self.device, "/api": self.answer}
        return await routes[request.path](request)

    async def answer(self, request: web.Request) -> web.Response:
        given = request.headers.getall("Authorization", [])
        self.api.append(" | ".join(given))
        if self.refuses or not self.issued or given != [f"Bearer {self.issued[-1]}"]:
            return web.json_response({"error": "invalid_token"}, status=401)
        return web.json_response({"ok": True, "echo": given[0]})

    async def device(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["client_id"] == CLIENT
        if self.device_answer is not None:
            return web.Response(body=self.device_answer, content_type="application/json")
        url = "https://example.com/activate"
        return web.json_response({
            "device_code": "dc", "user_code": "WDJB-MJHT",
            "verification_uri": url, "expires_in": 60, "interval": 1,
        })  # fmt: skip

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(form)
        if self.failure is not None:
            return self.failure
        kind, _, basic = request.headers.get("Authorization", "").partition(" ")
        pair = (
            b64decode(basic).decode()
            if kind == "Basic"
            else f"{form.get('client_id')}:{form.get('client_secret')}"
        )
        grant = form.get("grant_type")
        if pair != f"{CLIENT}:{PASSWORD}" and grant != "urn:ietf:params:oauth:grant-type:device_code":
            return web.json_response({"error": "invalid_client", "error_description": "Who?"}, status=401)
        if grant == "refresh_token" and form.get("refresh_token") != self.refresh:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if "device_code" in str(grant):
            if self.pending:
                self.pending -= 1
                return web.json_response({"error": "authorization_pending"}, status=400)
        elif grant not in ("client_credentials", "refresh_token"):
            return web.json_response({"error": "unsupported_grant_type"}, status=400)
        self.issued.append(f"access-token-{len(self.issued)}")
        answer: dict[str, Any] = {"access_token": self.issued[-1], "token_type": "Bearer"}
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if grant != "client_credentials" and (self.rotates or grant != "refresh_token"):
            self.refresh = f"refresh-{len(self.issued)}"
            answer["refresh_token"] = self.refresh
        return web.json_response(answer)
