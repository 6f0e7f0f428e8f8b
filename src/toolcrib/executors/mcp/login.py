"""Login to an MCP server: the official client's OAuth flow, with tokens in the user's own folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from toolcrib.errors import TimedOut, ToolUnavailable
from toolcrib.state import Vault, read_private, write_private

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

__all__ = ["Login", "OAuthTokens"]

_EARLY_S = 30.0
"""Seconds before its expiry that a token is renewed."""
_MAX_HEAD = 65_536
_PAGE = "text/plain; charset=utf-8"


class OAuthTokens:
    """The stored result of a login to one server. That of another address under its name does not count."""

    def __init__(self, vault: Vault, spec: ServerSpec) -> None:
        self._vault = vault
        self._server = spec.name
        self._name = f"{spec.name}.tokens.json"
        self._identity = spec.identity
        self.stored: dict[str, Any] = self._read()
        """Any of `tokens`, `until` (seconds since 1970), `client` and `metadata`."""

    @property
    def path(self) -> Path:
        """The file, which only the user can read."""
        return self._vault.path / "mcp" / self._name

    def _read(self) -> dict[str, Any]:
        found = read_private(self.path)
        return found if isinstance(found, dict) and found.get("server") == self._identity else {}

    def store(self, **facts: Any) -> None:
        """Store these facts beside those that are there."""
        self.stored = {**self.stored, **facts, "server": self._identity}
        write_private(self._vault.folder / "mcp" / self._name, self.stored)

    def forget(self) -> bool:
        """Remove everything, and return True if there was anything."""
        self.stored = {}
        there = self.path.exists()
        self.path.unlink(missing_ok=True)
        return there

    # The methods of the official client's TokenStorage.

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any."""
        from mcp.shared.auth import OAuthToken

        stored = self.stored.get("tokens")
        return None if stored is None else OAuthToken.model_validate(stored)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens and their expiry."""
        until = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self.store(tokens=tokens.model_dump(mode="json", exclude_none=True), until=until)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return our registration at the authorization server."""
        from mcp.shared.auth import OAuthClientInformationFull

        stored = self.stored.get("client")
        return None if stored is None else OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store our registration at the authorization server."""
        self.store(client=client_info.model_dump(mode="json", exclude_none=True))

    def auth(self, url: str) -> httpx2.Auth | None:
        """Return an object that signs requests and renews the tokens; None if nobody has logged in."""
        if "tokens" not in self.stored:
            return None
        from mcp.shared.auth import OAuthMetadata

        async def expired(_: str) -> None:
            raise ToolUnavailable(
                f"the login to {self._server} has expired",
                hint=f"Log in again: toolcrib servers login {self._server}",
            )

        auth = _provider(url, self, "http://127.0.0.1/callback", expired, None)
        if (until := self.stored.get("until")) is not None:
            auth.context.token_expiry_time = until - _EARLY_S
        if (metadata := self.stored.get("metadata")) is not None:
            auth.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        return auth


def _provider(
    url: str,
    tokens: OAuthTokens,
    redirect: str,
    open_page: Callable[[str], Awaitable[None]],
    wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]] | None,
) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "Toolcrib",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    return OAuthClientProvider(
        url, metadata, tokens, redirect_handler=open_page, callback_handler=wait_for_code
    )


class Login:
    """One login: a listener on loopback, to which the browser returns with a code.

    `show` gets the address that the person has to open. The listener is open inside `async with`.
    """

    def __init__(self, tokens: OAuthTokens, show: Callable[[str], None], *, limit_s: float = 300.0) -> None:
        self._tokens = tokens
        self._show = show
        self._limit_s = limit_s
        self._state = ""
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._auth: OAuthClientProvider | None = None

    async def __aenter__(self) -> Login:
        # Each login registers anew, because the port of the listener is part of the registration.
        self._tokens.forget()
        self._server = await asyncio.start_server(self._receive, "127.0.0.1", 0, limit=_MAX_HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._answer.cancel()

    def auth(self, url: str) -> httpx2.Auth:
        """Return an object that signs requests, and sends the person to log in if that is needed."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        redirect = f"http://127.0.0.1:{port}/callback"
        self._auth = _provider(url, self._tokens, redirect, self._open_page, self._wait_for_code)
        return self._auth

    def finish(self) -> bool:
        """Store the metadata that renewing needs, and return True if the server asked for a login."""
        if self._auth is None or "tokens" not in self._tokens.stored:
            return False
        metadata = self._auth.context.oauth_metadata
        if metadata is not None:
            self._tokens.store(metadata=metadata.model_dump(mode="json", exclude_none=True))
        return True

    async def _open_page(self, url: str) -> None:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(url)

    async def _wait_for_code(self) -> AuthorizationCodeResult:
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            async with asyncio.timeout(self._limit_s):
                values = await asyncio.shield(self._answer)
        except TimeoutError:
            raise TimedOut(
                f"nobody logged in within {self._limit_s:g} s", hint="Run the command again."
            ) from None
        if "code" not in values:
            raise ToolUnavailable(f"the login was refused: {values.get('error', 'no code came back')[:200]}")
        return AuthorizationCodeResult(code=values["code"], state=values.get("state"), iss=values.get("iss"))

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser. Only the one with our state brings the code."""
        try:
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            target = head.split(" ", 2)[1]
            parts = urlsplit(target)
            values = {name: given[0] for name, given in parse_qs(parts.query).items()}
            ours = parts.path == "/callback" and bool(self._state) and values.get("state") == self._state
            if ours and not self._answer.done():
                self._answer.set_result(values)
            status, text = (200, "You can close this page.") if ours else (404, "Nothing is here.")
            lines = f"HTTP/1.1 {status} -\r\nContent-Type: {_PAGE}\r\nConnection: close\r\n"
            writer.write(f"{lines}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            await writer.drain()
        except (TimeoutError, OSError, ValueError, IndexError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
