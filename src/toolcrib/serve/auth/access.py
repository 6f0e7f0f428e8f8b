"""The caller of an HTTP request, by its token or by the session of a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial

from toolcrib.errors import DeniedError, InvalidToken
from toolcrib.guard import Tokens
from toolcrib.serve.auth.origin import TrustedHosts
from toolcrib.serve.auth.sessions import LoginSessions
from toolcrib.spec import Caller, Scope
from toolcrib.spec.calls.caller import seen_by
from toolcrib.spec.record import record

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
                f"the token {self.identity.name!r} lacks the scope `{scope}`",
                hint="Use a token that has it.",
            )


class Access:
    """Finds the client of each request. It also serves other interfaces on the same port."""

    def __init__(self, tokens: Tokens, sessions: LoginSessions, hosts: TrustedHosts, cookie: str) -> None:
        self.sessions, self.hosts = sessions, hosts
        self.cookie = cookie
        """Name of the session's cookie. Ports of one host share their cookies, so each port has its own."""
        self._tokens = tokens
        self._known: dict[str, Client] = {}
        """The clients of tokens that were verified."""

    def client(self, headers: Mapping[str, str], cookies: Mapping[str, str], *, safe: bool) -> Client:
        """Return the sender of a request. `safe` means that its method changes nothing.

        Raises InvalidToken without a token or session, and DeniedError for a change by a session if the
        browser does not say that it comes from this server's own page.
        """
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._verified(text.strip())
        session = cookies.get(self.cookie, "")
        found = self.sessions.find(session) if session else None
        if found is None:
            raise InvalidToken(
                "this request has no token and no session",
                hint="Send `Authorization: Bearer <token>` (toolcrib token create), or use the login link.",
            )
        # An Origin, if there is one, is checked already. Without it nothing shows which page sent the cookie
        # (cross-site request forgery).
        if not safe and "origin" not in headers:
            raise DeniedError("a change by a session needs the header Origin, which browsers send")
        if found.identity is None:
            return Client("page")
        # A session that a token has made ends with that token.
        self._tokens.require_valid(found.identity)
        return Client(f"token:{found.identity.name}", found.identity)

    def require_valid(self, client: Client) -> None:
        """Raise InvalidToken if the token of this client was revoked or has expired since."""
        if client.identity is not None:
            self._tokens.require_valid(client.identity)

    def recall(self, authorization: str) -> Client | None:
        """Return the client of a bearer token that was verified before; None for any other.

        It may have been revoked since. For calls alone: their path verifies the token once more.
        """
        scheme, _, text = authorization.partition(" ")
        return self._known.get(text) if scheme == "Bearer" else None

    def _verified(self, text: str) -> Client:
        """Return the client with this token. A known one costs no query, unless tokens have changed since."""
        client = self._known.get(text)
        if client is not None:
            self.require_valid(client)
            return client
        # Raises for an unknown token, so nobody can fill the memory below with invented ones.
        caller = self._tokens.verify(text)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        verify = partial(self._tokens.require_valid, caller)
        client = self._known[text] = Client(f"token:{caller.name}", caller, verify)
        return client
