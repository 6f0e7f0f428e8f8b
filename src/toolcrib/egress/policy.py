"""Which hosts a tool may reach: an allow-list, and for each entry whether it names the host outright."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from toolcrib.egress.address import address_kind
from toolcrib.egress.destination import Destination, normal_host
from toolcrib.errors import HostNotAllowed
from toolcrib.spec import Network

__all__ = ["HostPolicy", "HostRule"]

_WEB_PORTS = frozenset({80, 443})
_HINT = "name it in permissions.network.allow"


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of an allow-list."""

    host: str
    """Normalised; for a wildcard what follows `*.`."""
    ports: frozenset[int]
    wildcard: bool = False
    named: bool = True
    """The host is named outright: it may be called over plain http and have a private address."""

    @classmethod
    def parse(cls, text: str, own_port: int | None = None) -> HostRule:
        """Read `host`, `*.host`, `host:port`, `[address]:port`; ValueError for anything else.

        Without a port the entry covers 80, 443 and `own_port`, the port of the tool's own URL.
        """
        host, port = text.strip().lower(), ""
        if host.startswith("["):
            host, closed, rest = host[1:].partition("]")
            if not closed or (rest and not rest.startswith(":")):
                raise ValueError(f"`{text}` is not a host")
            port = rest[1:]
        elif host.count(":") == 1:
            host, _, port = host.partition(":")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"`{port}` is not a port (1 to 65535)")
        wildcard = host.startswith("*.")
        ports = frozenset({int(port)}) if port else _WEB_PORTS | ({own_port} if own_port else set())
        return cls(normal_host(host[2:] if wildcard else host), ports, wildcard, named=not wildcard)

    def matches(self, destination: Destination) -> bool:
        """Whether the destination is covered. `*.host` covers names below `host`, not `host` itself."""
        if destination.port not in self.ports:
            return False
        if self.wildcard:
            return destination.host.endswith(f".{self.host}")
        return destination.host == self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{next(iter(self.ports))}" if len(self.ports) == 1 else ""
        return ("*." if self.wildcard else "") + host + port


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The hosts one tool may reach. What matches no rule is refused; an empty policy refuses everything."""

    rules: tuple[HostRule, ...] = ()
    ceiling: tuple[HostRule, ...] | None = None
    """A further list that must match too, such as the project's; it names nothing outright."""
    tell: Callable[[str, int, bool], None] | None = field(default=None, compare=False)
    """Told host and port of each destination that is checked, and whether it may be reached."""

    @classmethod
    def of(
        cls,
        network: Network,
        host: str | None = None,
        port: int | None = None,
        *,
        allowed_hosts: Iterable[str] | None = None,
    ) -> HostPolicy:
        """The policy of a tool with this permission whose own URL has `host` and `port`.

        `true` and `host` mean the URL's own host, at public addresses only; a list means the list, and its
        entries without `*` name their host outright. Raises ValueError for an entry that is no host.
        """
        rules: tuple[HostRule, ...] = ()
        if network.mode == "hosts":
            rules = tuple(HostRule.parse(entry, port) for entry in network.allow)
        elif network.mode in ("any", "host") and host is not None:
            ports = frozenset({port or 443, 443})
            rules = (HostRule(normal_host(host), ports, named=False),)
        ceiling = None
        if allowed_hosts is not None:
            ceiling = tuple(HostRule.parse(entry, port) for entry in allowed_hosts)
        return cls(rules, ceiling)

    def check(self, destination: Destination) -> bool:
        """Raise HostNotAllowed unless it may be reached; returns whether the host is named outright."""
        if self.tell is None:
            return self._named(destination)
        may = False
        try:
            named = self._named(destination)
            may = True
        finally:
            self.tell(destination.host, destination.port, may)
        return named

    def covers(self, destination: Destination) -> bool:
        """Whether it might be reached, where nobody has asked for it: `tell` is not told."""
        try:
            self._named(destination)
        except HostNotAllowed:
            return False
        return True

    def _named(self, destination: Destination) -> bool:
        matching = [rule for rule in self.rules if rule.matches(destination)]
        if not matching:
            raise self._refusal(destination, "is not a host this tool may reach", _HINT)
        if self.ceiling is not None and not any(rule.matches(destination) for rule in self.ceiling):
            raise self._refusal(destination, "is not among the hosts the project allows", None)
        named = any(rule.named for rule in matching)
        if named:
            return True
        address = destination.address
        if address is not None and (kind := address_kind(address)) != "public":
            raise self._refusal(destination, f"is a {kind} address", _HINT, kind=kind)
        if destination.scheme == "http":
            hint = f"use https, or {_HINT}"
            raise self._refusal(destination, "would be called without encryption (plain http)", hint)
        return False

    def _refusal(
        self, destination: Destination, reason: str, hint: str | None, **details: Any
    ) -> HostNotAllowed:
        where = {"host": destination.host, "port": destination.port}
        allowed = [str(rule) for rule in self.rules]
        return HostNotAllowed(
            f"{destination.authority} {reason}", hint=hint, details={**where, **details, "allowed": allowed}
        )
