"""What the proxy would not let through, as data: the caller makes an error or an audit line of it."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.egress.destination import Destination
from toolcrib.errors import HostNotAllowed

__all__ = ["Denied", "Refusal"]

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
    grant: str | None = None
    """The manifest line that would allow it; None where no permission of the tool could."""

    @classmethod
    def of(cls, error: HostNotAllowed, destination: Destination) -> Refusal:
        """What a policy said about `destination`; `details` may name the `address` that must be granted."""
        grant = None
        if error.hint is not None:
            grant = grant_line(error.details.get("grant", destination.host), destination.port)
        return cls(destination.host, destination.port, error.message, grant)

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


def grant_line(host: str, port: int) -> str:
    """The manifest line that names `host`; the port only where the host alone would not cover it."""
    entry = f"[{host}]" if ":" in host else host
    if port not in _WEB_PORTS:
        entry = f"{entry}:{port}"
    if ":" in host:
        entry = f'"{entry}"'
    return f"permissions.network: {{allow: [{entry}]}}"
