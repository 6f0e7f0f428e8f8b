"""What the proxy would not let through, as data: the caller makes an error or an audit line of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolcrib.egress.destination import Destination
from toolcrib.errors import HostNotAllowed

__all__ = ["Denied", "Refusal", "grant_line"]

_WEB_PORTS = frozenset({80, 443})


@dataclass(frozen=True, slots=True)
class Refusal:
    """One destination that a tool asked for and did not get."""

    host: str
    """Normalised; as it was asked for where it could not be read as a host."""
    port: int
    """0 where it could not be read."""
    reason: str
    """A whole clause that names the host."""
    entry: str | None = None
    """What the allow-list would have to hold for it; None where no permission of the tool could allow it."""

    @classmethod
    def of(cls, error: HostNotAllowed, destination: Destination) -> Refusal:
        """What a policy said about `destination`; `details` may name the `address` that must be granted."""
        entry = None
        if error.hint is not None:
            entry = allow_entry(error.details.get("grant", destination.host), destination.port)
        return cls(destination.host, destination.port, error.message, entry)

    @property
    def grant(self) -> str | None:
        """The manifest line that would allow it."""
        return None if self.entry is None else grant_line((self.entry,))

    @property
    def text(self) -> str:
        """One line for the program that asked: what was refused, and how to grant it."""
        if self.grant is None:
            return self.reason
        return f"{self.reason}; the tool's manifest can grant it with `{self.grant}`"

    def error(self) -> HostNotAllowed:
        """The refusal as the error that ends a call."""
        hint = None if self.grant is None else f"the tool's manifest can grant it with `{self.grant}`"
        return HostNotAllowed(self.reason, hint=hint, details={"host": self.host, "port": self.port})


class Denied(Exception):
    """The connection is refused; the refusal is already recorded."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.reason)


def allow_entry(host: str, port: int) -> str:
    """What names `host` in an allow-list; the port only where the host alone would not cover it."""
    entry = f"[{host}]" if ":" in host else host
    return entry if port in _WEB_PORTS else f"{entry}:{port}"


def grant_line(entries: Iterable[str]) -> str:
    """The manifest line that names these hosts."""
    quoted = (f'"{entry}"' if entry.startswith(("[", "*")) else entry for entry in entries)
    return f"permissions.network: {{allow: [{', '.join(quoted)}]}}"
