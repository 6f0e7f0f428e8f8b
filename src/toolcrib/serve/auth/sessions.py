"""One-time login links, and the sessions of browsers that used one. They end with the process."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from typing import NamedTuple

from toolcrib.errors import InvalidToken
from toolcrib.spec import Caller

LINK_S = 15 * 60.0
"""Seconds for which a login link can be used."""
SESSION_S = 12 * 3600.0
"""Seconds after which a session ends that made no request."""
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
        """Use up a code and return the name of a new session. Raises InvalidToken."""
        with self._lock:
            # Taken out first: of two browsers that race with one link, one gets a session.
            link = self._codes.pop(_digest(code), None)
        # Monotonic: a clock that is set back does not make a link last longer.
        if link is None or link.ends_at <= time.monotonic():
            raise InvalidToken(
                "this login link was used, has expired or is incomplete",
                hint="Start the server again, or ask for a link with POST /login.",
            )
        return self._add(self._sessions, SESSION_S, link.identity)

    def find(self, session: str) -> OpenSession | None:
        """Return an open session, which then lasts longer."""
        digest, now = _digest(session), time.monotonic()
        with self._lock:
            found = self._sessions.pop(digest, None)
            if found is None or found.ends_at <= now:
                return None
            # Put in again at the end: the session that was not used for longest is the first to go.
            found = self._sessions[digest] = found._replace(ends_at=now + SESSION_S)
        return found

    def log_out(self, session: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(session), None)

    def _add(self, known: dict[str, OpenSession], lifetime: float, identity: Caller | None) -> str:
        text = secrets.token_urlsafe(32)
        with self._lock:
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[_digest(text)] = OpenSession(time.monotonic() + lifetime, identity)
        return text


def _digest(text: str) -> str:
    """Return what is kept of a secret. A look-up by digest takes as long for a near miss as for any other."""
    return hashlib.sha256(text.encode()).hexdigest()
