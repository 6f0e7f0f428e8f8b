"""The hosts that a tool may reach: an allow-list, and for each entry if it names its host outright."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from toolcrib.egress.address import address_kind
from toolcrib.egress.destination import Destination, normal_host, split_authority
from toolcrib.errors import HostNotAllowed
from toolcrib.spec import Network
from toolcrib.spec.record import record

_WEB_PORTS = frozenset({80, 443})


@record
class HostRule:
    """One entry of an allow-list."""

    host: str
    """Normalised; for a wildcard the part after `*.`."""
    ports: frozenset[int]
    wildcard: bool = False
    named: bool = True
    """The host is named outright: it may be called over plain http and have a private address."""

    @classmethod
    def parse(cls, text: str, own_port: int | None = None) -> HostRule:
        """Parse `host`, `*.host`, `host:port` or `[address]:port`; ValueError for anything else.

        Without a port the entry covers 80, 443 and `own_port`, the port of the tool's own URL.
        """
        entry = text.strip().lower()
        wildcard = entry.startswith("*.")
        entry = entry[2:] if wildcard else entry
        bare_ipv6 = entry.count(":") > 1 and not entry.startswith("[")
        host, port = (normal_host(entry), None) if bare_ipv6 else split_authority(entry)
        ports = frozenset({port}) if port else _WEB_PORTS | ({own_port} if own_port else set())
        return cls(host, ports, wildcard, named=not wildcard)

    def matches(self, destination: Destination) -> bool:
        """Return True if the destination is covered. `*.host` covers names below `host`, not `host`."""
        if destination.port not in self.ports:
            return False
        if self.wildcard:
            return destination.host.endswith(f".{self.host}")
        return destination.host == self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{next(iter(self.ports))}" if len(self.ports) == 1 else ""
        return f"{'*.' if self.wildcard else ''}{host}{port}"


@record
class HostPolicy:
    """The hosts that one tool may reach."""

    rules: tuple[HostRule, ...] = ()
    ceiling: tuple[HostRule, ...] | None = None
    """The project's own list, if it has one: a destination must match it too."""
    any_public: bool = False
    """Any host may be reached, on any port and also without encryption, but only at a public address."""
    on_check: Callable[[str, int, bool], None] | None = field(default=None, compare=False)
    """Called with host and port of each destination that is checked, and True if it may be reached."""
    remedy: str = field(default="name it in permissions.network.allow", compare=False)
    """The way to allow a host that is not, for hints."""

    @classmethod
    def of(
        cls,
        network: Network,
        host: str | None = None,
        port: int | None = None,
        *,
        allowed_hosts: Iterable[str] | None = None,
    ) -> HostPolicy:
        """Return the policy of a tool with this permission whose own URL has `host` and `port`.

        `true` and `host` mean the URL's own host, at public addresses only; a list means the list, and its
        entries without `*` name their host outright. Raises ValueError for an entry that is not a host.
        """
        rules: tuple[HostRule, ...] = ()
        if network.mode == "hosts":
            rules = tuple(HostRule.parse(entry, port) for entry in network.allow)
        elif network.mode in ("any", "host") and host is not None:
            # A tool whose own URL is http may be led to https, never the other way.
            ports = frozenset({port or 443, 443})
            rules = (HostRule(normal_host(host), ports, named=False),)
        return cls(rules, _ceiling(allowed_hosts, port))

    @property
    def allows_any_name(self) -> bool:
        """True if a connection may lead to a host whose name cannot be seen."""
        return self.any_public and self.ceiling is None

    def check(self, destination: Destination) -> bool:
        """Return True if the host is named outright. Raises HostNotAllowed if it may not be reached."""
        is_allowed = False
        try:
            named = self._check(destination)
            is_allowed = True
            return named
        finally:
            if self.on_check is not None:
                self.on_check(destination.host, destination.port, is_allowed)

    def _check(self, destination: Destination) -> bool:
        matching = [rule for rule in self.rules if rule.matches(destination)]
        if not matching and not self.any_public:
            raise self._error(destination, "is not a host this tool may reach", self.remedy)
        if self.ceiling is not None and not any(rule.matches(destination) for rule in self.ceiling):
            raise self._error(destination, "is not among the hosts the project allows", None)
        # Somebody wrote exactly this host, so its private address or plain http is meant.
        if any(rule.named for rule in matching):
            return True
        address = destination.address
        if address is not None and (kind := address_kind(address)) != "public":
            raise self._error(destination, f"is a {kind} address", self.remedy, kind=kind)
        if destination.scheme == "http" and not self.any_public:
            hint = f"use https, or {self.remedy}"
            raise self._error(destination, "would be called without encryption (plain http)", hint)
        return False

    def _error(
        self, destination: Destination, reason: str, hint: str | None, **details: Any
    ) -> HostNotAllowed:
        details = {"host": destination.host, "port": destination.port, **details}
        details["allowed"] = [str(rule) for rule in self.rules]
        return HostNotAllowed(f"{destination.authority} {reason}", hint=hint, details=details)


def program_policy(network: Network, *, allowed_hosts: Iterable[str] | None = None) -> HostPolicy:
    """Return the policy for a confined program: nothing, the listed hosts, or any public host (`true`).

    `allowed_hosts` is the project's own list, which must match too. Raises ValueError for an entry that is
    no host, and for `network: host`, which shares the machine's network and has no proxy.
    """
    if network.mode == "host":
        raise ValueError("a tool with `network: host` has no proxy")
    if network.mode == "any":
        return HostPolicy(ceiling=_ceiling(allowed_hosts), any_public=True)
    return HostPolicy.of(network, allowed_hosts=allowed_hosts)


def _ceiling(hosts: Iterable[str] | None, port: int | None = None) -> tuple[HostRule, ...] | None:
    return None if hosts is None else tuple(HostRule.parse(entry, port) for entry in hosts)
