"""A destination that the proxy refused, as data: for the program's answer, the call's error and the audit."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.egress.address import NAMED_KINDS
from toolcrib.egress.destination import Destination
from toolcrib.errors import HostNotAllowed
from toolcrib.spec.record import record

_WEB_PORTS = frozenset({80, 443})


@record
class HostRefusal:
    """One destination that a tool asked for and was refused."""

    host: str
    """Normalised; as it was asked for if it is not a host."""
    port: int
    """0 if it could not be read."""
    reason: str
    """A whole clause that names the host."""
    entry: str | None = None
    """The entry of the allow-list that would allow it; None if no permission of the tool could."""

    @classmethod
    def of(cls, error: HostNotAllowed, destination: Destination) -> HostRefusal:
        """Return the refusal of `destination` by a policy or because of an address of its name."""
        entry = None
        if error.hint is not None:
            by_name = error.details.get("kind") in NAMED_KINDS
            host = destination.host if by_name else error.details.get("address", destination.host)
            host = f"[{host}]" if ":" in host else host
            entry = host if destination.port in _WEB_PORTS else f"{host}:{destination.port}"
        return cls(destination.host, destination.port, error.message, entry)

    @property
    def grant(self) -> str | None:
        """The manifest line that would allow it."""
        return None if self.entry is None else grant_line((self.entry,))

    @property
    def text(self) -> str:
        """One line for the program that asked: the refused host, and how to allow it."""
        if self.grant is None:
            return self.reason
        return f"{self.reason}; to allow it, write in the tool's manifest: `{self.grant}`"


class Denied(Exception):
    """The connection is refused; the refusal is already recorded."""

    def __init__(self, refusal: HostRefusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.reason)


def grant_line(entries: Iterable[str]) -> str:
    """Return the manifest line that allows these hosts."""
    quoted = (f'"{entry}"' if entry.startswith(("[", "*")) else entry for entry in entries)
    return f"permissions.network: {{allow: [{', '.join(quoted)}]}}"
