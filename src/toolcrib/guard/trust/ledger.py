"""The ledger of trust: what a person has accepted of one project, and what its tools made.

A project may come from somebody else. What its user has accepted is kept in the user's own folder, out of
reach of the project: no file of a project can say that it is trusted, or hide who made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

from toolcrib.spec.identifier import new_id
from toolcrib.spec.record import record
from toolcrib.state import VAULT_TRUST, Database, SqliteDatabase, Vault
from toolcrib.state.database import matching

SETTINGS, POLICY = "settings", "policy"
"""Subjects of which a project has one each."""
_KEPT = 50
"""Rows in force of one subject; the newest are kept."""
_LOOK_S = 0.2
_COLUMNS = "subject, bundle, digest, source, shown, trusted_by, trusted_at, channel, until"
_IN_FORCE = "(until IS NULL OR until > ?)"
_LAST = f"SELECT {_COLUMNS} FROM trusted WHERE subject = ? AND bundle = ? AND {_IN_FORCE} ORDER BY id DESC"
_ONE = f"SELECT until FROM trusted WHERE subject = ? AND bundle = ? AND digest = ? AND {_IN_FORCE}"
_KNOWN = f"SELECT subject, bundle, source FROM trusted WHERE {_IN_FORCE} ORDER BY id"
_EVERY = f"SELECT subject, bundle, digest FROM trusted WHERE {_IN_FORCE}"
_OF = "FROM trusted WHERE subject = ? AND bundle = ?"
_OLDEST = f"DELETE {_OF} AND id <= (SELECT id {_OF} ORDER BY id DESC LIMIT 1 OFFSET ?)"


@record
class Trusted:
    """One row: a subject that a person has accepted with this digest."""

    subject: str
    """`settings`, `policy`, `tool:NAME`, `server:NAME`, `agent:NAME` or `workflow:NAME`."""
    digest: str
    """SHA-256 in hex of everything that the acceptance covers."""
    source: str = ""
    """SHA-256 in hex of the file that defines it; empty for none."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """The things that were shown and granted, as JSON: parts of the digest, definitions, hosts, rules."""
    bundle: str = ""
    by: str = ""
    at: float = 0.0
    """Seconds since the epoch."""
    channel: str = ""
    """`terminal`, `flag`, `program`, `lock`, `dev`, `init`, or an approval channel."""
    until: float | None = None
    """Its end, in seconds since the epoch; None: when somebody revokes it."""


class Created(NamedTuple):
    """A file or folder that starts other programs of the user, and that a call of a tool has created."""

    path: str
    tool: str
    at: float
    """Seconds since the epoch."""


class Ledger:
    """The ledger of one project. Nothing is created on disk before there is something to store."""

    def __init__(self, vault: Vault, *, clock: Callable[[], float] = time.time) -> None:
        self._vault, self._clock = vault, clock
        self._opened: Database | None = None
        self._held: tuple[int, set[tuple[str, str, str]]] = (-1, set())
        self._known: tuple[int, Mapping[tuple[str, str], str]] = (-1, {})
        self._every: tuple[int, Collection[tuple[str, str, str]]] = (-1, ())
        self._reading = Lock()
        self._made: tuple[int, dict[str, str]] = (-1, {})
        self._looked = (0.0, -1)
        self._own = 0
        """Changes by this object, which the version of the database does not count."""

    @cached_property
    def _database(self) -> Database:
        self._opened = SqliteDatabase(self._vault.folder / "trust.db", VAULT_TRUST)
        return self._opened

    @property
    def _exists(self) -> bool:
        # As text: a list asks this for each of its tools.
        return self._opened is not None or os.path.exists(f"{self._vault.path}/trust.db")

    # -- what is trusted -----------------------------------------------------------------------------

    def holds(self, subject: str, digest: str, bundle: str = "") -> bool:
        """Return True if a person has accepted the subject with this digest."""
        if not self._exists:
            return False
        version, key = self._database.version, (subject, bundle, digest)
        if self._held[0] != version:
            # Another process may have revoked it, so what was read before no longer counts.
            self._held = version, set()
        if key not in self._held[1]:
            rows = self._database.rows(_ONE, *key, self._clock())
            if rows and rows[0][0] is None:
                self._held[1].add(key)
            return bool(rows)
        return True

    def every(self) -> Collection[tuple[str, str, str]]:
        """Return subject, bundle and digest of all that is accepted, to ask for many at one time."""
        if not self._exists:
            return ()
        version = self._database.version
        if self._every[0] != version:
            self._every = (
                version,
                {(row[0], row[1], row[2]) for row in self._database.rows(_EVERY, self._clock())},
            )
        return self._every[1]

    def known(self) -> Mapping[tuple[str, str], str]:
        """Return by subject and bundle the `source` of what was accepted last."""
        if not self._exists:
            return {}
        with self._reading:  # Of threads that ask at the same time, as at a start, one reads all rows.
            version = self._database.version
            if self._known[0] != version:
                rows = self._database.rows(_KNOWN, self._clock())
                self._known = version, {(row[0], row[1]): row[2] for row in rows}
            return self._known[1]

    def last(self, subject: str, bundle: str = "") -> Trusted | None:
        """Return what was accepted last of the subject; None if nothing is in force."""
        return next(iter(self.all(subject, bundle)), None)

    def all(self, subject: str, bundle: str = "") -> list[Trusted]:
        """Return every version of the subject that is in force, the newest first."""
        if not self._exists:
            return []
        rows = self._database.rows(_LAST, subject, bundle, self._clock())
        return [Trusted(row[0], row[2], row[3], json.loads(row[4]), row[1], *row[5:]) for row in rows]

    def text(self, sha256: str) -> bytes | None:
        """Return a text that was shown when something was accepted, by its SHA-256 in hex."""
        if not self._exists:
            return None
        rows = self._database.rows("SELECT content FROM texts WHERE sha256 = ?", sha256)
        return bytes(rows[0][0]) if rows else None

    @property
    def version(self) -> int:
        """A number that changes when any process has changed the ledger."""
        return self._database.version + self._own if self._exists else -1

    @property
    def revision(self) -> int:
        """The `version`, looked at a few times a second: for lists that are asked for often."""
        now = time.monotonic()
        if now >= self._looked[0]:
            self._looked = now + _LOOK_S, self.version
        return self._looked[1]

    def accept(
        self, rows: Iterable[Trusted], by: str, channel: str, texts: Iterable[bytes] = ()
    ) -> list[Trusted]:
        """Store that a person has accepted all of these, or none if that fails. Return them as stored.

        `texts` are what was shown, for later differences. Raises `StateUnavailable`.
        """
        now = self._clock()
        stored = [replace(row, by=by, at=now, channel=channel) for row in rows]
        with self._database.write() as tx:
            for text in texts:
                sha256 = hashlib.sha256(text).hexdigest()
                tx.run("INSERT INTO texts VALUES (?, ?) ON CONFLICT DO NOTHING", sha256, text)
            for row in stored:
                # Accepted again, a version becomes the newest, which `_OLDEST` keeps.
                tx.run(
                    "DELETE FROM trusted WHERE subject = ? AND bundle = ? AND digest = ?",
                    row.subject, row.bundle, row.digest,
                )  # fmt: skip
                tx.add("trusted", {
                    "id": new_id(now), "subject": row.subject, "bundle": row.bundle, "digest": row.digest,
                    "source": row.source, "shown": json.dumps(dict(row.shown)), "trusted_by": by,
                    "trusted_at": now, "channel": channel, "until": row.until,
                })  # fmt: skip
                tx.run(_OLDEST, *(row.subject, row.bundle) * 2, _KEPT)
            tx.notify()
        self._changed()
        return stored

    def revoke(self, subject: str | None = None, bundle: str = "", digest: str | None = None) -> int:
        """End the trust in everything, in one subject, or in one version; return how many rows ended."""
        if not self._exists:
            return 0
        of = {"subject": subject, "bundle": None if subject is None else bundle, "digest": digest}
        where, values = matching(of)
        now = self._clock()
        with self._database.write() as tx:
            ended = tx.run(f"UPDATE trusted SET until = ? WHERE {where} AND {_IN_FORCE}", now, *values, now)
            tx.notify()
        self._changed()
        return ended

    # -- tools that agents made --------------------------------------------------------------------

    def makers(self) -> Mapping[str, str]:
        """Return the maker of each tool that an agent has made, by the tool's name."""
        if not self._exists:
            return {}
        version = self._database.version
        if self._made[0] != version:
            self._made = (version, dict(self._database.rows("SELECT tool, maker FROM made ORDER BY id")))
        return self._made[1]

    def note_maker(self, tool: str, maker: str, manifest: str) -> str:
        """Store that an agent makes a tool, before its manifest is written; return the id for `drop_maker`.

        `manifest` is the SHA-256 of the manifest, in hex.
        """
        now = self._clock()
        # The entry comes first: if the process dies in between, no tool of an agent looks like one that a
        # person made.
        entry = new_id(now)
        with self._database.write() as tx:
            tx.run("INSERT INTO made VALUES (?, ?, ?, ?, ?)", entry, tool, maker, manifest, now)
            tx.notify()
        self._changed()
        return entry

    def drop_maker(self, entry: str) -> None:
        """Undo `note_maker`, because the tool was not made."""
        with self._database.write() as tx:
            tx.run("DELETE FROM made WHERE id = ?", entry)
            tx.notify()
        self._changed()

    # -- files that calls have created -------------------------------------------------------------

    def note_created(self, tool: str, paths: Iterable[str]) -> None:
        """Store that a call of a tool has created files that start other programs of the user."""
        with self._database.write() as tx:
            for path in paths:
                tx.run("DELETE FROM created WHERE path = ?", path)
                tx.run("INSERT INTO created VALUES (?, ?, ?)", path, tool, self._clock())

    def created(self) -> list[Created]:
        """Return these files, without those that a person has seen since."""
        if not self._exists:
            return []
        return [Created(*row) for row in self._database.rows("SELECT * FROM created ORDER BY path")]

    def drop_created(self, paths: Iterable[str]) -> None:
        """Store that a person has seen these files."""
        with self._database.write() as tx:
            for path in paths:
                tx.run("DELETE FROM created WHERE path = ?", path)

    def _changed(self) -> None:
        """Read everything again: `Database.version` does not change by our own writes."""
        self._own += 1
        self._looked = (0.0, -1)
        self._held, self._known, self._every, self._made = (-1, set()), (-1, {}), (-1, ()), (-1, {})

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._changed()
        if self._opened is not None:
            self._opened.close()
