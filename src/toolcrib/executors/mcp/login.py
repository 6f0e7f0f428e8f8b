"""Logging in to an MCP server: the official client's OAuth flow, its tokens in the user's own folder."""

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

__all__ = ["Login", "Tokens"]

_EARLY_S = 30.0
"""Seconds before its end that a token is renewed."""
_MAX_HEAD = 65_536
_PAGE = "text/plain; charset=utf-8"


class Tokens:
    """What a login to one server gave, kept for later; what belongs to another address does not count."""

    def __init__(self, vault: Vault, spec: ServerSpec) -> None:
        self._vault = vault
        self._name = f"{spec.name}.tokens.json"
        self._identity = spec.identity
        self.kept: dict[str, Any] = self._read()
        """`tokens`, `until` (seconds since 1970), `client` and `metadata`, as far as they are there."""

    @property
    def path(self) -> Path:
        """Where they are; only the user reads it."""
        return self._vault.path / "mcp" / self._name

    def _read(self) -> dict[str, Any]:
        found = read_private(self.path)
        return found if isinstance(found, dict) and found.get("server") == self._identity else {}

    def keep(self, **facts: Any) -> None:
        """Keep these from now on, beside what is there."""
        self.kept = {**self.kept, **facts, "server": self._identity}
        write_private(self._vault.folder / "mcp" / self._name, self.kept)

    def forget(self) -> bool:
        """Throw away all of it; whether there was anything."""
        self.kept = {}
        there = self.path.exists()
        self.path.unlink(missing_ok=True)
        return there

    # What the official client asks of a storage.

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens."""
        from mcp.shared.auth import OAuthToken

        kept = self.kept.get("tokens")
        return None if kept is None else OAuthToken.model_validate(kept)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, and until when they hold."""
        until = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self.keep(tokens=tokens.model_dump(mode="json", exclude_none=True), until=until)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """What the authorization server knows us as."""
        from mcp.shared.auth import OAuthClientInformationFull

        kept = self.kept.get("client")
        return None if kept is None else OAuthClientInformationFull.model_validate(kept)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what we were registered as."""
        self.keep(client=client_info.model_dump(mode="json", exclude_none=True))

    def signing(self, url: str) -> httpx2.Auth | None:
        """What signs requests with these tokens, and renews them; None where nobody has logged in."""
        if "tokens" not in self.kept:
            return None
        from mcp.shared.auth import OAuthMetadata

        async def expired(_: str) -> None:
            raise ToolUnavailable("the login has ended", hint="Log in again: toolcrib servers login NAME.")

        auth = _provider(url, self, "http://127.0.0.1/callback", expired, None)
        if (until := self.kept.get("until")) is not None:
            auth.context.token_expiry_time = until - _EARLY_S
        if (metadata := self.kept.get("metadata")) is not None:
            auth.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        return auth


def _provider(
    url: str,
    tokens: Tokens,
    redirect: str,
    go: Callable[[str], Awaitable[None]],
    back: Callable[[], Awaitable[AuthorizationCodeResult]] | None,
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
    return OAuthClientProvider(url, metadata, tokens, redirect_handler=go, callback_handler=back)


class Login:
    """One login under way: a listener on loopback, to which the browser is sent back with a code.

    `show` is given the address that the person opens. It holds for `async with`.
    """

    def __init__(self, tokens: Tokens, show: Callable[[str], None], *, limit_s: float = 300.0) -> None:
        self._tokens = tokens
        self._show = show
        self._limit_s = limit_s
        self._state = ""
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._auth: OAuthClientProvider | None = None

    async def __aenter__(self) -> Login:
        # A new registration each time: the port of the listener is part of it.
        self._tokens.forget()
        self._server = await asyncio.start_server(self._heard, "127.0.0.1", 0, limit=_MAX_HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._answer.cancel()

    def signing(self, url: str) -> httpx2.Auth:
        """What signs requests, and asks the person where that is needed."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        self._auth = _provider(url, self._tokens, f"http://127.0.0.1:{port}/callback", self._go, self._back)
        return self._auth

    def finish(self) -> bool:
        """Keep what renewing the tokens needs; whether a login was asked for at all."""
        if self._auth is None or "tokens" not in self._tokens.kept:
            return False
        metadata = self._auth.context.oauth_metadata
        if metadata is not None:
            self._tokens.keep(metadata=metadata.model_dump(mode="json", exclude_none=True))
        return True

    async def _go(self, url: str) -> None:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(url)

    async def _back(self) -> AuthorizationCodeResult:
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            async with asyncio.timeout(self._limit_s):
                told = await asyncio.shield(self._answer)
        except TimeoutError:
            raise TimedOut(f"nobody logged in within {self._limit_s:g} s") from None
        if "code" not in told:
            raise ToolUnavailable(f"the login was refused: {told.get('error', 'no code came back')[:200]}")
        return AuthorizationCodeResult(code=told["code"], state=told.get("state"), iss=told.get("iss"))

    async def _heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a browser's; only the one with our state is an answer."""
        try:
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            target = head.split(" ", 2)[1]
            parts = urlsplit(target)
            told = {name: values[0] for name, values in parse_qs(parts.query).items()}
            ours = parts.path == "/callback" and bool(self._state) and told.get("state") == self._state
            if ours and not self._answer.done():
                self._answer.set_result(told)
            status, text = (200, "You can close this page.") if ours else (404, "Nothing is here.")
            lines = f"HTTP/1.1 {status} -\r\nContent-Type: {_PAGE}\r\nConnection: close\r\n"
            writer.write(f"{lines}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            await writer.drain()
        except (TimeoutError, OSError, ValueError, IndexError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
