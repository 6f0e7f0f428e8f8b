"""Login to an MCP server: the official client's OAuth flow, with tokens in the user's own folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from toolcrib.errors import TimedOut, ToolcribError, ToolUnavailable
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, expand
from toolcrib.state import Vault, read_private, write_private

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken


_EARLY_S = 30.0
"""Seconds before its expiry that a token is renewed."""
_MAX_HEAD = 65_536
_PAGE = "text/plain; charset=utf-8"
_REDIRECT = "http://127.0.0.1/callback"


class OAuthTokens:
    """The stored result of a login to one server. That of another address under its name does not count."""

    def __init__(
        self, vault: Vault, spec: ServerSpec, secrets: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._vault, self._spec, self._secrets = vault, spec, secrets
        self.error: ToolcribError | None = None
        """Set when the tokens no longer suffice, and a person has to log in again."""
        self.stored: dict[str, Any] = self._read()
        """Any of `tokens`, `until` (seconds since 1970), `client`, `metadata`, `hosts` that a person allowed
        to log them in, and `scope` that a login has to ask for."""

    def _path(self, folder: Path) -> Path:
        return folder / "mcp" / f"{self._spec.name}.tokens.json"

    def _read(self) -> dict[str, Any]:
        found = read_private(self._path(self._vault.path))
        return found if isinstance(found, dict) and found.get("server") == self._spec.identity else {}

    def store(self, **facts: Any) -> None:
        """Store these facts beside those that are there."""
        self.stored = {**self.stored, **facts, "server": self._spec.identity}
        write_private(self._path(self._vault.folder), self.stored)

    def begin_login(self) -> None:
        """Remove all but the hosts and the scope, which the next login needs."""
        kept = {name: self.stored[name] for name in ("hosts", "scope") if name in self.stored}
        self.forget()
        if kept:
            self.store(**kept)

    def login_host(self, host: str) -> bool:
        """Return True for a host that a person has allowed to log them in."""
        return host in self.stored.get("hosts", ())

    @property
    def client_url(self) -> str | None:
        """The address of our client metadata, if the settings name one as client id."""
        named = self._spec.oauth.client_id
        return named if named.startswith("https://") else None

    def forget(self) -> bool:
        """Remove everything, and return True if there was anything."""
        self.stored, path = {}, self._path(self._vault.path)
        there = path.exists()
        path.unlink(missing_ok=True)
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
        """Return our registration at the authorization server: the one in the settings, or the one made."""
        from mcp.shared.auth import OAuthClientInformationFull

        stored = self.stored.get("client")
        oauth = self._spec.oauth
        if stored is None and oauth.client_id and self.client_url is None:
            secret = expand(oauth.client_secret, self._secrets()) if oauth.client_secret else None
            method = "client_secret_basic" if secret else "none"
            stored = {"client_id": oauth.client_id, "client_secret": secret, "redirect_uris": [_REDIRECT]}
            stored["token_endpoint_auth_method"] = method
        return None if stored is None else OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store our registration at the authorization server."""
        self.store(client=client_info.model_dump(mode="json", exclude_none=True))

    def auth(self, url: str) -> httpx2.Auth | None:
        """Return an object that signs requests and renews the tokens; None if nobody has logged in."""
        if "tokens" not in self.stored:
            return None
        from mcp.shared.auth import OAuthMetadata

        async def expired(page: str) -> None:
            scope = parse_qs(urlsplit(page).query).get("scope", [""])[0]
            held = ((self.stored.get("tokens") or {}).get("scope") or "").split()
            added = " ".join(one for one in scope.split() if one not in held)
            # The next login asks for these rights too; without that it would be refused again.
            self.store(scope=scope)
            what = "asks for further rights: " + added if added and held else "asks for a new login"
            self.error = ToolUnavailable(
                f"{self._spec.name} {what}", hint=f"Log in again: toolcrib servers login {self._spec.name}"
            )
            raise self.error

        async def never() -> AuthorizationCodeResult:
            # `expired` raises before the client waits for a code.
            raise AssertionError

        auth = _provider(url, self, _REDIRECT, expired, never)
        if (until := self.stored.get("until")) is not None:
            auth.context.token_expiry_time = until - _EARLY_S
        # A new process has not discovered where tokens are renewed.
        if (metadata := self.stored.get("metadata")) is not None:
            auth.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        return auth


def _provider(
    url: str,
    tokens: OAuthTokens,
    redirect: str,
    open_page: Callable[[str], Awaitable[None]],
    wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.utils import union_scopes
    from mcp.shared.auth import OAuthClientMetadata

    class Provider(OAuthClientProvider):
        async def _perform_authorization_code_grant(self) -> tuple[str, str]:
            # A call was refused for its scope before this login, which asks for that as well.
            wanted, metadata = tokens.stored.get("scope"), self.context.client_metadata
            metadata.scope = union_scopes(metadata.scope, wanted)
            return await super()._perform_authorization_code_grant()

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "Toolcrib",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
    )
    return Provider(url, metadata, tokens, open_page, wait_for_code, client_metadata_url=tokens.client_url)


class Login:
    """One login: a listener on loopback, to which the browser returns with a code.

    `show` gets the address that the person has to open; `allow` is asked for each further host that takes
    part in the login. The listener is open inside `async with`.
    """

    def __init__(
        self,
        tokens: OAuthTokens,
        show: Callable[[str], None],
        *,
        allow: Callable[[str], bool] = lambda _: False,
        port: int = 0,
        limit_s: float = 300.0,
    ) -> None:
        self._tokens, self._show, self._allow = tokens, show, allow
        self._port, self._limit_s = port, limit_s
        self._refused: set[str] = set()
        self._state = ""
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._auth: OAuthClientProvider | None = None
        self.error: ToolcribError | None = None

    async def __aenter__(self) -> Login:
        # Each login registers anew, because the port of the listener is part of the registration.
        self._tokens.begin_login()
        self._server = await asyncio.start_server(self._receive, "127.0.0.1", self._port, limit=_MAX_HEAD)
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

    def login_host(self, host: str) -> bool:
        """Return True if this host may take part in the login; the person is asked once about each."""
        if not self._tokens.login_host(host) and host not in self._refused:
            if self._allow(host):
                self._tokens.store(hosts=[*self._tokens.stored.get("hosts", ()), host])
            else:
                self._refused.add(host)
        return self._tokens.login_host(host)

    def finish(self) -> bool:
        """Store the metadata that renewing needs, and return True if the server asked for a login."""
        if self._auth is None or "tokens" not in self._tokens.stored:
            return False
        metadata = self._auth.context.oauth_metadata
        if metadata is not None:
            self._tokens.store(metadata=metadata.model_dump(mode="json", exclude_none=True))
        return True

    async def _open_page(self, url: str) -> None:
        if self._answer.done():  # Another request needs a login of its own, such as one at a second server.
            self._answer = asyncio.get_running_loop().create_future()
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(url)

    async def _wait_for_code(self) -> AuthorizationCodeResult:
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            async with asyncio.timeout(self._limit_s):
                # Shielded: the listener uses the same future, which a time-out would cancel.
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
            # RFC 6749, 10.12: any page can send a browser to this port with a code of its own, but it cannot
            # know the state.
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
