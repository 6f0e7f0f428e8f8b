"""The acceptance of a project by its user, kept in the user's own folder.

A project may come from somebody else. None of its tools runs before this user has made or accepted it, and
settings that weaken a guard, name a source of secrets or start a process wait until a person trusts them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from toolcrib.errors import StateUnavailable
from toolcrib.state import Vault, read_private, write_private

_FILE = "trust.json"


class TrustRecord(NamedTuple):
    """The acceptance of a project."""

    digest: str
    """SHA-256 of the settings that were trusted with it, in hex."""
    by: str
    at: str
    """UTC, ISO 8601."""
    started: Mapping[str, str] = {}
    """The code that these settings start, by name of the setting and path, each with its digest."""
    policy: Mapping[str, Any] = {}
    """Their `policy`, as it is written in settings."""


class Trust:
    """The acceptance of one project, and the trust in its settings: one digest at a time."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def is_trusted(self, digest: str) -> bool:
        """Return True if exactly these settings, byte for byte, are trusted."""
        trusted = self.current()
        return trusted is not None and secrets.compare_digest(trusted.digest, digest)

    def current(self) -> TrustRecord | None:
        """Return the acceptance; None if this user neither made nor accepted the project, or for a damaged
        file."""
        # `folder` below creates the folder; only to look must not leave one.
        if not os.path.lexists(self._vault.path):
            return None
        stored = read_private(self._vault.folder / _FILE)
        try:
            facts = (stored["config_sha256"], stored["by"], stored["at"])
            found = TrustRecord(*facts, dict(stored.get("started", {})), dict(stored.get("policy", {})))
        except (TypeError, KeyError, ValueError):
            return None
        return found if all(isinstance(part, str) for part in found[:3]) else None

    def accept(
        self,
        digest: str,
        by: str,
        started: Mapping[str, str] | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> TrustRecord:
        """Accept the project, with these settings, and the code that they start, instead of any others.

        `StateUnavailable` if that cannot be stored.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        trusted = TrustRecord(digest, by, at, started or {}, policy or {})
        stored = {"config_sha256": digest, "by": by, "at": at, "started": dict(trusted.started)}
        stored["policy"] = dict(trusted.policy)
        write_private(self._vault.folder / _FILE, stored)
        return trusted

    def revoke(self) -> bool:
        """Take back the acceptance; return True if there was one."""
        if not os.path.lexists(self._vault.path):
            return False
        path = self._vault.folder / _FILE
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StateUnavailable(
                f"{path} cannot be removed: {error.strerror}",
                hint="Remove it by hand.",
                details={"path": str(path)},
            ) from None
        return True
