"""The caller of an HTTP request, by its token or that of a session; checks of Host and Origin."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from toolcrib.errors import DeniedError, InvalidToken, ToolcribError
from toolcrib.guard import Tokens
from toolcrib.spec import Caller, Scope
from toolcrib.spec.calls.caller import seen_by
from toolcrib.spec.record import record

NOBODY = Caller("nobody", frozenset())
"""Stands for a caller without a token where texts are shortened."""

LINK_S = 15 * 60.0
"""Seconds for which a login link can be used."""
SESSION_S = 12 * 3600.0
"""Seconds after which a session ends that made no request."""
DOWNLOAD_S = 60.0
"""Seconds for which a one-time address can be used."""
_SESSION = "tcs_"
"""The beginning of a session's token."""
_MOST = 100
"""Links and sessions kept; the oldest is forgotten first."""


class OpenSession(NamedTuple):
    """A session, or the link to begin one."""

    ends_at: float
    identity: Caller | None
    """The token that made the link, whose rights the session has; None for the person at this machine."""


class LoginSessions:
    """Login codes and sessions. Only their digests are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, OpenSession] = {}
        self._sessions: dict[str, OpenSession] = {}

    def new_code(self, identity: Caller | None = None) -> str:
        """Return the code of a new login link, good for one use within 15 minutes.

        `identity` is the token that asks for it: the session then is that token, never the person.
        """
        return self._add(self._codes, LINK_S, identity)

    def log_in(self, code: str) -> str:
        """Use up a code and return the token of a new session. Raises InvalidToken."""
        with self._lock:
            # Taken out first: of two browsers that race with one link, one gets a session.
            link = self._codes.pop(_digest(code), None)
        # Monotonic: a clock that is set back does not make a link last longer.
        if link is None or link.ends_at <= time.monotonic():
            raise InvalidToken(
                "this login link was used, has expired or is incomplete",
                hint="Get another one with `toolcrib ui`.",
            )
        return self._add(self._sessions, SESSION_S, link.identity, _SESSION)

    def find(self, token: str) -> OpenSession:
        """Return the open session of a token; it then lasts longer. Raises InvalidToken."""
        digest, now = _digest(token), time.monotonic()
        with self._lock:
            found = self._sessions.pop(digest, None)
            if found is None or found.ends_at <= now:
                raise InvalidToken("this session has ended", hint="Begin another one with `toolcrib ui`.")
            # Put in again at the end: the session that was not used for longest is the first to go.
            found = self._sessions[digest] = found._replace(ends_at=now + SESSION_S)
        return found

    def log_out(self, token: str) -> None:
        """End the session of a token."""
        with self._lock:
            self._sessions.pop(_digest(token), None)

    def _add(
        self, known: dict[str, OpenSession], lifetime: float, identity: Caller | None, prefix: str = ""
    ) -> str:
        text = prefix + secrets.token_urlsafe(32)
        with self._lock:
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[_digest(text)] = OpenSession(time.monotonic() + lifetime, identity)
        return text


def _digest(text: str) -> str:
    """Return what is kept of a secret. A look-up by digest takes as long for a near miss as for any other."""
    return hashlib.sha256(text.encode()).hexdigest()


class Download(NamedTuple):
    """The one request that the code of a download allows."""

    ends_at: float
    path: str
    client: Client


LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TrustedHosts:
    """The names by which a server may be addressed."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower() for name in (*LOOPBACK, *names)}

    def check(self, host: str | None, origin: str | None) -> None:
        """Refuse a request of another host or origin. Raises DeniedError.

        `host` and `origin` are the values of these headers. Programs send no Origin; a browser sends it with
        each request that changes something, and it must be the origin that the page itself came from.
        """
        if host is None or _name(host) not in self._names:
            raise DeniedError(
                f"this server does not answer for the host {host!r}",
                hint="Use the address it printed, or start it with --allow-host and the name.",
            )
        # With the port: another server on this machine is another site. `null`, the origin of a page in a
        # sandboxed frame, has no host, so it is refused too.
        if origin is not None and _place(origin) != host.lower():
            raise DeniedError(
                f"requests from pages of {origin!r} are refused",
                hint=f"The request is for the host {host!r}. A proxy must pass on the Host of the browser.",
            )


def _name(host: str) -> str:
    """Return the host's name in a Host header, without its port; "" if it has no such form."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _place(origin: str) -> str:
    """Return host and port in an Origin header; "" if it has no such form."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def bearer(authorization: str) -> str:
    """Return the token in a header Authorization; "" without one."""
    scheme, _, text = authorization.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


_MOST_KNOWN = 256


@record
class Client:
    """The sender of a request."""

    caller: str
    """As in `Call.caller`: `token:<name>`, or `page` for the person who used the login link."""
    identity: Caller | None = None
    """The token and its rights; None for this person, who may do everything."""
    verify: Callable[[], object] | None = field(default=None, compare=False)
    """Raises InvalidToken once that token is no longer valid."""

    @property
    def seen_by(self) -> str | None:
        """The caller whose calls, runs and sessions it may see; None for those of all callers."""
        return seen_by(self.caller, self.identity)

    def require(self, scope: Scope) -> None:
        """Raise DeniedError unless this client has a right."""
        if self.identity is not None and not self.identity.may(scope):
            raise DeniedError(
                f"the token {self.identity.name!r} lacks the scope `{scope}`", hint="Use a token that has it."
            )


class Access:
    """Finds the client of each request. It also serves other interfaces on the same port."""

    def __init__(
        self,
        tokens: Tokens,
        sessions: LoginSessions,
        hosts: TrustedHosts,
        hide: Callable[[ToolcribError, Caller | None], None] = lambda *_: None,
    ) -> None:
        self.sessions, self.hosts, self.hide = sessions, hosts, hide
        self.tokens = tokens
        self._known: dict[str, Client] = {}
        """The clients of tokens that were verified."""
        self._downloads: dict[str, Download] = {}

    def client(self, headers: Mapping[str, str]) -> Client:
        """Return the sender of a request by its token, or by that of its session. Raises InvalidToken."""
        text = bearer(headers.get("authorization", ""))
        if not text.startswith(_SESSION):
            return self.program(text)
        found = self.sessions.find(text)
        if found.identity is None:
            return Client("page")
        # A session that a token has made ends with that token.
        self.tokens.require_valid(found.identity)
        return Client(f"token:{found.identity.name}", found.identity)

    def new_download(self, client: Client, path: str) -> str:
        """Return a code with which one GET of this path, within a minute, counts as one of this client."""
        code = secrets.token_urlsafe(32)
        if len(self._downloads) >= _MOST:
            self._downloads.pop(next(iter(self._downloads)), None)
        self._downloads[_digest(code)] = Download(time.monotonic() + DOWNLOAD_S, path, client)
        return code

    def downloading(self, code: str, path: str) -> Client:
        """Use up the code of a download, and return its client. Raises InvalidToken."""
        found = self._downloads.pop(_digest(code), None)
        if found is None or found.path != path or found.ends_at <= time.monotonic():
            raise InvalidToken("this one-time address was used or has expired", hint="Save it again.")
        self.require_valid(found.client)
        return found.client

    def require_valid(self, client: Client) -> None:
        """Raise InvalidToken if the token of this client was revoked or has expired since."""
        if client.identity is not None:
            self.tokens.require_valid(client.identity)

    def verified_before(self, authorization: str) -> Client | None:
        """Return the client of a bearer token that was verified before; None for any other.

        It may have been revoked since. For calls alone: their path verifies the token once more.
        """
        scheme, _, text = authorization.partition(" ")
        return self._known.get(text) if scheme == "Bearer" else None

    def program(self, text: str) -> Client:
        """Return the client with this token, which is not that of a session. Raises InvalidToken.

        A known one costs no query, unless tokens have changed since.
        """
        if not text:
            raise InvalidToken(
                "this request has no token",
                hint="Send `Authorization: Bearer <token>` (toolcrib token create), or use `toolcrib ui`.",
            )
        client = self._known.get(text)
        if client is not None:
            self.require_valid(client)
            return client
        # Raises for an unknown token, so nobody can fill the memory below with invented ones.
        caller = self.tokens.verify(text)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        verify = partial(self.tokens.require_valid, caller)
        client = self._known[text] = Client(f"token:{caller.name}", caller, verify)
        return client
