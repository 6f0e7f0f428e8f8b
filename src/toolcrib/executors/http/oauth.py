"""Access tokens of OAuth 2 (RFC 6749) for HTTP tools, by authlib's client over the guarded one.

Tokens are files in the user's own folder, which all processes share. The name of a file depends on the
secrets and on the hosts that the tool may reach, so no tool finds a token that was not meant for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from weakref import WeakKeyDictionary

from toolcrib.egress import Egress, EgressRequest, EgressResponse, HostPolicy
from toolcrib.errors import HttpFailed, SecretMissing, TimedOut, ToolUnavailable
from toolcrib.spec import Auth, OAuth2
from toolcrib.state import data_home, read_private, write_private
from toolcrib.state.installation import install_hint
from toolcrib.state.private import make_private

_EARLY_S = 60.0
"""Seconds before its expiry that a token is renewed; at most half of its lifetime."""
_TIMEOUT_S = 30.0
_POLL_S = 0.05
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_WAITING = ("authorization_pending", "slow_down")


class AccessTokens:
    """The access tokens of one tool, for one entry of its `auth`.

    `folder` returns the folder for the files; `learn` is called with each token, so that it is masked.
    """

    def __init__(
        self,
        auth: Auth,
        egress: Egress,
        policy: HostPolicy,
        hosts: tuple[str, ...],
        folder: Callable[[], Path],
        learn: Callable[[Mapping[str, str]], None],
        now: Callable[[], float],
    ) -> None:
        assert auth.oauth2 is not None
        self._auth, self._rule = auth, auth.oauth2
        self._egress, self._policy, self._hosts = egress, policy, hosts
        self._folder, self._learn, self._now = folder, learn, now
        self._fetching: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, asyncio.Task[str]]] = (
            WeakKeyDictionary()
        )

    @property
    def by_device(self) -> bool:
        """True if a person must log in."""
        return self._rule.grant == "device_code"

    async def get(self, secrets: Mapping[str, str], refused: str | None = None) -> str:
        """Return a token that is valid for some time, new if the present one was `refused` by the server.

        Many callers, in any process, wait for one request. Raises HttpFailed, SecretMissing, ToolUnavailable
        (nobody has logged in) and TimedOut.
        """
        path = self._path(secrets)
        if (token := self._valid(read_private(path), refused)) is not None:
            return token
        tasks = self._fetching.setdefault(asyncio.get_running_loop(), {})
        task = tasks.get(path)
        if task is None:
            task = tasks[path] = asyncio.ensure_future(self._renewed(path, dict(secrets), refused))
            task.add_done_callback(lambda _: tasks.pop(path, None))
        # A caller that is cancelled must not end the request for the others that wait for it.
        return await asyncio.shield(task)

    async def log_in(
        self,
        secrets: Mapping[str, str],
        show: Callable[[str, str], None],
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        """Log in on another device (RFC 8628): `show` gets the address and the code for the person.

        Raises HttpFailed if the person refuses or takes too long.
        """
        client = self._client(secrets)
        fields = {"client_id": client.client_id, "scope": self._rule.scope, **self._rule.params}
        body = urlencode({name: value for name, value in fields.items() if value})
        answer = await self._post(self._rule.device_url or "", body, {"Accept": "application/json"})
        started: Any = None
        try:
            started = answer.json()
            device_code, user_code = started["device_code"], str(started["user_code"])
            address = str(started.get("verification_uri_complete") or started["verification_uri"])
            interval = max(1.0, float(started.get("interval", 5)))
            until = self._now() + float(started["expires_in"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._failed("did not return a device code", started) from None
        show(address, user_code)
        while self._now() < until:
            await sleep(interval)
            try:
                token = await client.fetch_token(
                    self._rule.token_url, grant_type=_DEVICE, device_code=device_code
                )
            except client.oauth_error_class as error:
                if error.error not in _WAITING:
                    raise self._failed(f"refused the login: {error.error}", {}) from None
                interval += 5 if error.error == "slow_down" else 0
                continue
            self._store(self._path(secrets), dict(token))
            return
        raise TimedOut("nobody logged in before the code expired", hint="Run the command again.")

    def _path(self, secrets: Mapping[str, str]) -> Path:
        auth, rule = self._auth, self._rule
        own = {
            name: secrets.get(name)
            for name in (auth.secret, auth.username_secret, rule.refresh_secret)
            if name
        }
        identity = json.dumps([asdict(rule), own, sorted(self._hosts)], sort_keys=True)
        return self._folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"

    def _valid(self, stored: Any, refused: str | None) -> str | None:
        """Return the stored token if it can still be used, and have it masked."""
        if not isinstance(stored, dict) or not isinstance(stored.get("access_token"), str):
            return None
        self._learn({"access_token": stored["access_token"]})
        lifetime = float(stored.get("lifetime") or 0)
        early = min(_EARLY_S, lifetime / 2)
        if stored["access_token"] == refused or (lifetime and self._now() >= stored["until"] - early):
            return None
        return str(stored["access_token"])

    async def _renewed(self, path: Path, secrets: Mapping[str, str], refused: str | None) -> str:
        async with _locked(path):
            # Read again: another process may have renewed it while this one waited for the lock.
            stored = read_private(path)
            if (token := self._valid(stored, refused)) is not None:
                return token
            return self._store(path, await self._fetch(stored if isinstance(stored, dict) else {}, secrets))

    def _store(self, path: Path, token: dict[str, Any]) -> str:
        self._learn({name: token[name] for name in ("access_token", "refresh_token") if token.get(name)})
        lifetime = float(token.get("expires_in") or 0)
        kept = {name: token.get(name) for name in ("access_token", "refresh_token")}
        write_private(path, {**kept, "lifetime": lifetime, "until": self._now() + lifetime})
        return str(token["access_token"])

    async def _fetch(self, stored: dict[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
        rule, client = self._rule, self._client(secrets)
        try:
            if rule.grant == "client_credentials":
                token = await client.fetch_token(rule.token_url, grant_type=rule.grant, **rule.params)
                return dict(token)
            first = secrets.get(rule.refresh_secret or "")
            tokens = list(dict.fromkeys(token for token in (stored.get("refresh_token"), first) if token))
            if not tokens:
                raise ToolUnavailable(
                    f"nobody has logged in at {urlsplit(rule.token_url).netloc} for this tool",
                    hint="Log in: toolcrib secrets login NAME",
                )
            for number, refresh in enumerate(tokens, 1):
                try:
                    token = await client.refresh_token(rule.token_url, refresh_token=refresh, **rule.params)
                    # A server may give a new refresh token with each answer, and then the old one is void
                    # (RFC 6749, 6).
                    return {"refresh_token": refresh, **token}
                except client.oauth_error_class as error:
                    if error.error != "invalid_grant" or number == len(tokens):
                        raise
            raise AssertionError
        except client.oauth_error_class as error:
            raise self._failed(
                f"did not return a token: {error.error}", {"error_description": error.description}
            ) from None
        except (KeyError, ValueError, TypeError):
            raise self._failed("did not return a token: its answer is not one of OAuth 2", {}) from None

    def _client(self, secrets: Mapping[str, str]) -> Any:
        auth, rule = self._auth, self._rule
        for name in (auth.secret, auth.username_secret):
            if name is not None and name not in secrets:
                raise SecretMissing(f"the secret {name} is not set", details={"name": name})
        client_id = secrets.get(auth.username_secret or "") or rule.client_id
        return _client(rule, client_id, secrets.get(auth.secret or ""), self._post)

    async def _post(self, url: str, body: str, headers: Mapping[str, str]) -> _HttpAnswer:
        request = EgressRequest(
            "POST",
            url,
            [*headers.items(), ("Content-Type", "application/x-www-form-urlencoded")],
            body.encode(),
            timeout_s=_TIMEOUT_S,
            follow_redirects=False,
            secret_body=True,
        )
        return _HttpAnswer(await self._egress.request(request, self._policy))

    def _failed(self, what: str, answer: Any) -> HttpFailed:
        reason = answer.get("error_description") or answer.get("error") if isinstance(answer, dict) else None
        message = f"{urlsplit(self._rule.token_url).netloc} {what}" + (
            f" ({str(reason)[:200]})" if reason else ""
        )
        return HttpFailed(message, details={"reason": "oauth"})


class _HttpAnswer:
    """An answer as authlib reads one."""

    def __init__(self, answer: EgressResponse) -> None:
        self.status_code = answer.status
        self._answer = answer

    def json(self) -> Any:
        """Return the body. Raises ValueError if it is not JSON."""
        return json.loads(self._answer.body)

    def raise_for_status(self) -> None:
        """Raise HttpFailed for an error status."""
        if self.status_code >= 400:
            where = urlsplit(self._answer.url).netloc
            raise HttpFailed(
                f"{where} did not return a token: it answered {self.status_code}",
                details={"reason": "oauth", "status": self.status_code},
                retryable=self.status_code >= 500 or self.status_code == 429,
            )


def _client(rule: OAuth2, client_id: str | None, secret: str | None, post: Callable[..., Any]) -> Any:
    """Return authlib's client, whose requests `post` sends."""
    try:
        from authlib.oauth2.client import OAuth2Client
    except ImportError:
        raise ToolUnavailable(
            "OAuth 2 needs authlib, which is not installed", hint=install_hint("oauth")
        ) from None

    class GuardedClient(OAuth2Client):  # type: ignore[misc]  # authlib has no types
        async def _fetch_token(
            self, url: str, body: str = "", headers: Any = None, auth: Any = None, **_: Any
        ) -> dict[str, Any]:
            sent = {name: value for name, value in (headers or {}).items() if name != "Content-Type"}
            url, sent, body = auth.prepare("POST", url, sent, body)
            token: dict[str, Any] = self.parse_response_token(await post(url, body, sent))
            if not token.get("access_token"):
                raise ValueError
            return token

        async def _refresh_token(self, url: str, **more: Any) -> dict[str, Any]:
            return await self._fetch_token(url, **more)

    method = "none" if rule.client_auth == "none" else f"client_secret_{rule.client_auth}"
    return GuardedClient(
        None, client_id, secret, token_endpoint_auth_method=method if secret else "none", scope=rule.scope
    )


def shared_folder() -> Path:
    """Return the user's folder for the tokens of tools without a project."""
    folder = data_home() / "oauth"
    make_private(folder)
    return folder


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock on a file beside `path`, against all processes; waiting blocks no thread."""
    descriptor = os.open(
        path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
