"""Bearer tokens of callers from elsewhere, and their rights. Only their digests are stored."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, cast

from toolcrib.errors import ConflictError, InvalidToken, NotFoundError, UsageError
from toolcrib.spec import SCOPES, Caller, Scope
from toolcrib.spec.moment import written
from toolcrib.spec.naming import suggestion
from toolcrib.spec.record import record
from toolcrib.state import Database, ForwardClock, SqliteDatabase, Vault

MOST = 1_000
"""The most tokens of one project."""
_FILE = "tokens.db"
_NO_FILE = (0, 0, 0)
_SECOND_NS = 1_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# 32 random bytes and the 4 bytes of the checksum, in Base64 without padding.
_TEXT = re.compile(r"tcr_([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})")
_LONGEST_S = 10 * 366 * 86_400
_TABLES = (
    """CREATE TABLE token (
        digest TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        scopes TEXT NOT NULL,
        tools TEXT,
        owner TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION,
        expired INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE used_name (name TEXT PRIMARY KEY, times INTEGER NOT NULL);
    INSERT INTO used_name SELECT name, 1 FROM token;
    ALTER TABLE token ADD COLUMN number INTEGER NOT NULL DEFAULT 1""",
)
_COLUMNS = "digest, name, number, scopes, tools, owner, created, expires, expired"
_USE = (
    "INSERT INTO used_name VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET times = times + 1 RETURNING times"
)


@record
class Token:
    """The stored facts about a token, never the token itself."""

    caller: Caller
    created: float
    """Seconds since the epoch, as is `expires`."""
    expires: float | None
    """None if it is valid until it is revoked."""
    expired: bool = False
    """True once it was seen to have expired: it stays so when the clock goes back."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        caller = self.caller
        return {
            "name": caller.given_name,
            "scopes": [scope for scope in SCOPES if scope in caller.scopes],
            "tools": None if caller.tools is None else list(caller.tools),
            "owner": caller.owner,
            "created": written(self.created),
            "expires": written(self.expires),
        }


class Tokens:
    """The tokens of one project."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._clock = ForwardClock(vault.data)
        self._path = str(vault.path / _FILE)
        self._lock = Lock()
        """Locked while the file is opened or closed."""
        self._opened: Database | None = None
        self._folder: int | None = None
        """The folder of the file while it is open: a path from there is found three times as fast."""
        self._seen, self._looked_ns, self._settled_ns = [_NO_FILE, _NO_FILE], 0, 0
        self._ends: dict[str, float] = {}
        """Digest to the end of a token, as read from the files in this state."""

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        tools: Sequence[str] | None = None,
        *,
        owner: str,
        expires: float | None = None,
    ) -> str:
        """Create a token and return it, the only time that it is shown.

        `tools` are patterns of names, None for all; `owner` is the person it acts for; `expires` is in
        seconds since the epoch. Raises `UsageError`, and `ConflictError` for a name that is taken.
        """
        caller = Caller(name, _scopes(scopes), None if tools is None else tuple(tools), owner)
        _require_sound(caller)
        now = self._clock()
        if expires is not None and not now < expires <= now + _LONGEST_S:
            raise UsageError("a token must expire in the future, and within ten years")
        text = _new_text()
        row: dict[str, Any] = {
            "digest": _digest(text),
            "name": name,
            "scopes": " ".join(sorted(caller.scopes)),
            "tools": None if caller.tools is None else json.dumps(caller.tools),
            "owner": owner,
            "created": now,
            "expires": expires,
        }
        with self._database.write() as transaction:
            # Counted in the transaction that inserts, so that two processes cannot pass the limit together.
            (count,) = transaction.one("SELECT COUNT(*) FROM token") or (0,)
            if count >= MOST:
                raise ConflictError(
                    f"there are already {MOST} tokens", hint="Revoke some: toolcrib token list"
                )
            # What was made in the name of a revoked token is not for the next one of this name.
            (row["number"],) = transaction.one(_USE, name) or (1,)
            if not transaction.insert("token", row):
                raise ConflictError(
                    f"there is a token named {name!r} already",
                    hint=f"Revoke it: toolcrib token revoke {name}",
                )
        return text

    def all(self) -> list[Token]:
        """Return every token, oldest first, including those that have expired."""
        if not self._exists:
            return []
        with self._database.read() as transaction:
            rows = transaction.all(f"SELECT {_COLUMNS} FROM token ORDER BY created, name")
        return [_token(row) for row in rows]

    def get(self, name: str) -> Token:
        """Return the token of this name; `NotFoundError`."""
        known = {one: token for token in self.all() for one in (token.caller.given_name, token.caller.name)}
        if name not in known:
            hint = suggestion(name, known, "To see all: toolcrib token list")
            raise NotFoundError(f"there is no token named {name!r}", hint=hint)
        return known[name]

    def revoke(self, name: str) -> Caller:
        """Revoke a token; `NotFoundError`."""
        caller = self.get(name).caller
        with self._database.write() as transaction:
            transaction.run("DELETE FROM token WHERE digest = ?", caller.digest)
        return caller

    def verify(self, text: str) -> Caller:
        """Return the caller with this token. `InvalidToken` for one that is unknown, revoked or expired.

        A token has 256 random bits, so one round of SHA-256 is enough: a slow hash is for what can be
        guessed. The search is by digest, so its duration reveals nothing about other tokens.
        """
        if not well_formed(text):
            raise InvalidToken(
                "this is not a Toolcrib token, or it is incomplete or mistyped",
                hint="A token begins with tcr_ and has 53 characters.",
            )
        token = self._find(_digest(text))
        self.require_valid(token.caller)
        return token.caller

    def require_valid(self, caller: Caller) -> None:
        """Raise `InvalidToken` if the caller's token was revoked or has expired since it was verified.

        This takes microseconds: the file is read again only after it has changed. A caller without a digest
        has no stored token.
        """
        if not caller.digest:
            return
        self._refresh()
        end = self._ends.get(caller.digest)
        if end is None:
            token = self._find(caller.digest)
            end = math.inf if token.expires is None else -math.inf if token.expired else token.expires
            self._ends[caller.digest] = end
        if end <= self._clock():
            # Stored once (then the end is -inf), so that the token stays expired if the machine's clock is
            # set back.
            if end > 0:
                with self._database.write() as transaction:
                    transaction.run("UPDATE token SET expired = 1 WHERE digest = ?", caller.digest)
            raise InvalidToken(
                f"the token {caller.name!r} has expired",
                hint="Its owner can create a new one.",
            )

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            database, folder = self._opened, self._folder
            self._opened = self._folder = None
        if database is not None:
            database.close()
        if folder is not None:
            os.close(folder)

    def _refresh(self) -> None:
        """Forget what was read from the file if it has changed since, or is another one.

        Two changes in one tick of the file system's clock can look like one, so within a second after a
        change nothing is remembered.
        """
        now, log = time.time_ns(), self._log_state()
        # A change is in SQLite's write-ahead log first, which stays while a connection is open: ours has been
        # since a token was read. So the file itself, which somebody may remove, is looked at once a second.
        if log != self._seen[1] or not 0 <= now - self._looked_ns < _SECOND_NS:
            seen = [_file_state(self._path), log]
            if seen != self._seen:
                # Another inode: the connection is to a file that was removed.
                if seen[0][0] != self._seen[0][0]:
                    self.close()
                self._seen, self._ends = seen, {}
                self._settled_ns = max(changed for _, changed, _ in seen) + _SECOND_NS
            self._looked_ns = now
        if now < self._settled_ns:
            self._ends = {}

    def _log_state(self) -> tuple[int, int, int]:
        folder = self._folder
        if folder is not None:
            with suppress(OSError):  # Another thread has just closed it.
                return _file_state(f"{_FILE}-wal", folder)
        return _file_state(f"{self._path}-wal")

    def _find(self, digest: str) -> Token:
        row = None
        if self._exists:
            with self._database.read() as transaction:
                row = transaction.one(f"SELECT {_COLUMNS} FROM token WHERE digest = ?", digest)
        if row is None:
            raise InvalidToken(
                "the token is unknown here, or was revoked",
                hint="A person of this project can create one.",
            )
        return _token(row)

    @property
    def _exists(self) -> bool:
        """True if a token was ever created: reading does not create the file."""
        return os.path.lexists(self._path)

    @property
    def _database(self) -> Database:
        with self._lock:
            if self._opened is None:
                folder = self._vault.folder
                self._opened = SqliteDatabase(folder / _FILE, _TABLES)
                self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return self._opened


def _file_state(path: str, folder: int | None = None) -> tuple[int, int, int]:
    try:
        found = os.stat(path, dir_fd=folder)
    except FileNotFoundError:
        return _NO_FILE
    return found.st_ino, found.st_mtime_ns, found.st_size


def well_formed(text: str) -> bool:
    """Return True if a text has the form of a token and the right checksum (CRC-32) at its end."""
    match = _TEXT.fullmatch(text)
    return match is not None and match[2] == _checksum(match[1])


def _new_text() -> str:
    secret = _base64(secrets.token_bytes(32))
    return f"tcr_{secret}{_checksum(secret)}"


def _checksum(secret: str) -> str:
    return _base64(zlib.crc32(secret.encode()).to_bytes(4, "big"))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _token(row: tuple[Any, ...]) -> Token:
    digest, name, number, scopes, tools, owner, created, expires, expired = row
    patterns = None if tools is None else tuple(json.loads(tools))
    caller = Caller(
        name if number == 1 else f"{name}#{number}", _scopes(scopes.split()), patterns, owner, digest=digest
    )
    return Token(caller, created, expires, bool(expired))


def _scopes(scopes: Iterable[str]) -> frozenset[Scope]:
    return frozenset(cast(Iterable[Scope], scopes))


def _require_sound(caller: Caller) -> None:
    if _NAME.fullmatch(caller.name) is None:
        raise UsageError(
            f"{caller.name!r} cannot be the name of a token",
            hint="Use up to 64 letters, digits, `.`, `_` and `-`, a letter or digit first.",
        )
    unknown = sorted(caller.scopes - set(SCOPES))
    if unknown or not caller.scopes:
        problem = f"there is no scope {unknown[0]!r}" if unknown else "a token needs a scope"
        raise UsageError(problem, hint=f"Scopes are {', '.join(SCOPES)}.")
    if caller.tools is not None and (
        not caller.tools or len(caller.tools) > 100 or not all(0 < len(one) <= 256 for one in caller.tools)
    ):
        raise UsageError("tools must be 1 to 100 patterns of up to 256 characters each")
    if not caller.owner or len(caller.owner) > 256:
        raise UsageError("a token needs the name of its owner, of up to 256 characters")
