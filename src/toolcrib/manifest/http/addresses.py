"""The URL of an HTTP tool: parsed, and compared with the hosts that its permission allows.

Lint and the executor use the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.errors import HostNotAllowed, ManifestError
from toolcrib.spec import Network
from toolcrib.template import Namespaces, UrlTemplate, parse_url, problems

if TYPE_CHECKING:
    from toolcrib.egress import HostPolicy


class UrlFault(NamedTuple):
    """One thing wrong with an address."""

    rule: str
    message: str
    hint: str | None = None


def bind_url(url: str, network: Network, names: Namespaces) -> UrlTemplate:
    """Return the parsed URL. Its host may hold placeholders only if the permission lists the hosts."""
    return parse_url(url, names, host_placeholders=network.mode == "hosts")


def bind_policy(url: UrlTemplate, network: Network, allowed_hosts: tuple[str, ...] | None) -> HostPolicy:
    """Return the hosts that the tool may reach. Raises ManifestError if its own URL is not among them."""
    from toolcrib.egress import Destination, HostPolicy

    if network.mode == "none":
        raise ManifestError("the tool calls a URL, but permissions.network is false")
    try:
        host = url.literal_host
        own = Destination.parse(f"{url.scheme}://{host}:{url.port}") if host is not None else None
        policy = HostPolicy.of(
            network, own.host if own else None, own.port if own else url.port, allowed_hosts=allowed_hosts
        )
    except ValueError as error:
        raise ManifestError(str(error)) from None
    if own is not None:
        try:
            HostPolicy(policy.rules).check(own)
        except HostNotAllowed as error:
            raise ManifestError(error.message, hint=error.hint, details=error.details) from None
    return policy


def bind_hosts(network: Network, port: int, allowed_hosts: tuple[str, ...] | None) -> HostPolicy:
    """Return the hosts that a tool without a URL may reach: those that its permission lists, on this port."""
    from toolcrib.egress import HostPolicy

    return HostPolicy.of(network, port=port, allowed_hosts=allowed_hosts)


def url_faults(url: str, network: Network, names: Namespaces) -> Iterator[UrlFault]:
    """Yield the reasons why a request to `url` cannot be sent; bad placeholders are another check."""
    if problems(url, names):
        return
    try:
        parsed = bind_url(url, network, names)
    except ManifestError as error:
        yield UrlFault("url", error.message, error.hint)
        return
    if network.mode == "none":
        return
    try:
        bind_policy(parsed, network, None)
    except ManifestError as error:
        yield UrlFault("network", error.message, error.hint)
