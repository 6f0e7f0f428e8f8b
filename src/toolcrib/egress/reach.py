"""Which hosts a confined program may reach through the proxy, by its tool's network permission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolcrib.egress.address import address_kind
from toolcrib.egress.destination import Destination
from toolcrib.egress.policy import HostPolicy, HostRule
from toolcrib.errors import HostNotAllowed
from toolcrib.spec import Network

__all__ = ["PublicHosts", "program_policy"]

_HINT = "name it in permissions.network.allow"


@dataclass(frozen=True, slots=True)
class PublicHosts(HostPolicy):
    """Any host at a public address, on any port: what `network: true` gives a program."""

    def _named(self, destination: Destination) -> bool:
        """No host is named outright, so only public addresses are connected to."""
        where = {"host": destination.host, "port": destination.port}
        if self.ceiling is not None and not any(rule.matches(destination) for rule in self.ceiling):
            raise HostNotAllowed(
                f"{destination.authority} is not among the hosts the project allows", details=where
            )
        address = destination.address
        if address is not None and (kind := address_kind(address)) != "public":
            message = f"{destination.authority} is a {kind} address"
            raise HostNotAllowed(message, hint=_HINT, details={**where, "kind": kind})
        return False


def program_policy(network: Network, *, allowed_hosts: Iterable[str] | None = None) -> HostPolicy:
    """The policy for a confined program with this permission: nothing, the listed hosts, any public host.

    `allowed_hosts` is the project's own list, which must match too. Raises ValueError for an entry that is
    no host, and for `network: host`, which shares the machine's network and has no proxy.
    """
    if network.mode == "host":
        raise ValueError("a tool with `network: host` is not confined to a proxy")
    if network.mode != "any":
        return HostPolicy.of(network, allowed_hosts=allowed_hosts)
    ceiling = None if allowed_hosts is None else tuple(HostRule.parse(entry) for entry in allowed_hosts)
    return PublicHosts(ceiling=ceiling)
