"""One-time login links, and the sessions of browsers that used one. They end with the process."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

from toolcrib.errors import InvalidToken

LINK_S = 15 * 60.0
"""Seconds for which a login link can be used."""
SESSION_S = 12 * 3600.0
"""Seconds after which a session ends that made no request."""
_MOST = 100
"""Links and sessions kept; the oldest is forgotten first."""


class LoginSessions:
    """Login codes and sessions. Only their digests are kept. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}

    def new_code(self) -> str:
        """Return the code of a new login link, good for one use within 15 minutes."""
        return self._add(self._codes, LINK_S)

    def log_in(self, code: str) -> str:
        """Use up a code and return the name of a new session. Raises InvalidToken."""
        with self._lock:
            end = self._codes.pop(_digest(code), 0.0)
        if end <= self._clock():
            raise InvalidToken(
                "this login link was used, has expired or is incomplete",
                hint="Start the server again, or ask for a link with POST /login.",
            )
        return self._add(self._sessions, SESSION_S)

    def is_open(self, session: str) -> bool:
        """Return True for an open session, which then lasts longer."""
        digest, now = _digest(session), self._clock()
        with self._lock:
            if self._sessions.get(digest, 0.0) <= now:
                self._sessions.pop(digest, None)
                return False
            self._sessions[digest] = now + SESSION_S
        return True

    def log_out(self, session: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(session), None)

    def _add(self, known: dict[str, float], lifetime: float) -> str:
        text = secrets.token_urlsafe(32)
        with self._lock:
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[_digest(text)] = self._clock() + lifetime
        return text


def _digest(text: str) -> str:
    """Return what is kept of a secret. A look-up by digest takes as long for a near miss as for any other."""
    return hashlib.sha256(text.encode()).hexdigest()
