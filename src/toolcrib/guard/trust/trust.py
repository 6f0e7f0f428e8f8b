"""The trust of a person in a project's settings.

A project may be a cloned folder. Its settings may narrow at once what tools can do. Settings that weaken a
guard, name a source of secrets or start a process wait until a person trusts them.
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from typing import NamedTuple

from toolcrib.errors import StateUnavailable
from toolcrib.state import Vault, read_private, write_private

__all__ = ["Trust", "TrustRecord"]

_FILE = "trust.json"


class TrustRecord(NamedTuple):
    """The settings that were trusted last."""

    digest: str
    """SHA-256 of the file, in hex."""
    by: str
    at: str
    """UTC, ISO 8601."""


class Trust:
    """The trust in one project's settings, kept in the user's own folder: one digest at a time."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def is_trusted(self, digest: str) -> bool:
        """Return True if exactly these settings, byte for byte, are trusted."""
        trusted = self.current()
        return trusted is not None and secrets.compare_digest(trusted.digest, digest)

    def current(self) -> TrustRecord | None:
        """Return what is trusted now; None for a damaged file."""
        if not os.path.lexists(self._vault.path):
            return None
        stored = read_private(self._vault.folder / _FILE)
        try:
            found = TrustRecord(stored["config_sha256"], stored["by"], stored["at"])
        except (TypeError, KeyError):
            return None
        return found if all(isinstance(part, str) for part in found) else None

    def accept(self, digest: str, by: str) -> TrustRecord:
        """Trust these settings instead of any others. `StateUnavailable` if that cannot be stored."""
        trusted = TrustRecord(digest, by, datetime.now(UTC).isoformat(timespec="seconds"))
        write_private(self._vault.folder / _FILE, {"config_sha256": digest, "by": by, "at": trusted.at})
        return trusted

    def revoke(self) -> bool:
        """Trust nothing any more; return True if something was trusted."""
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
