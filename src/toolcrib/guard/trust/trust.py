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

__all__ = ["Trust", "Trusted"]

_FILE = "trust.json"


class Trusted(NamedTuple):
    """The settings that were trusted last."""

    digest: str
    """SHA-256 of the file, in hex."""
    by: str
    at: str
    """When, UTC, ISO 8601."""


class Trust:
    """What a person has trusted of one project, kept in the user's own folder. One digest at a time."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def is_trusted(self, digest: str) -> bool:
        """Whether these very settings are trusted; one byte more or less makes them others."""
        trusted = self.current()
        return trusted is not None and secrets.compare_digest(trusted.digest, digest)

    def current(self) -> Trusted | None:
        """What is trusted now. A file that is damaged trusts nothing."""
        if not os.path.lexists(self._vault.path):
            return None
        said = read_private(self._vault.folder / _FILE)
        try:
            found = Trusted(said["config_sha256"], said["by"], said["at"])
        except (TypeError, KeyError):
            return None
        return found if all(isinstance(part, str) for part in found) else None

    def accept(self, digest: str, by: str) -> Trusted:
        """Trust these settings, and no others any more. `StateUnavailable` where that cannot be kept."""
        trusted = Trusted(digest, by, datetime.now(UTC).isoformat(timespec="seconds"))
        said = {"config_sha256": trusted.digest, "by": trusted.by, "at": trusted.at}
        write_private(self._vault.folder / _FILE, said)
        return trusted

    def revoke(self) -> bool:
        """Trust nothing any more; whether something was trusted."""
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
