"""Host names to addresses, and the kinds of those by the IANA special-purpose registries (RFC 6890)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Semaphore, Thread
from typing import Literal, Protocol

from toolcrib.errors import HostNotAllowed

AddressKind = Literal[
    "public", "loopback", "private", "shared", "link-local", "metadata", "multicast", "unspecified",
    "reserved", "translated",
]  # fmt: skip
"""`shared` is carrier-grade NAT; `translated` is an IPv4 address inside an IPv6 one (mapped, NAT64, 6to4)."""

NAMED_KINDS: frozenset[AddressKind] = frozenset({"public", "loopback", "private", "shared"})
"""The kinds that the name of a host in a permission may resolve to. Any other kind must be named by its
address: the owner of a named host's DNS must not be able to point it at a metadata service."""

_RETRY_S = 0.02
_free_lookups = Semaphore(64)
"""Names that may be looked up at one time."""

_METADATA = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",  # AWS, GCP, Azure, OpenStack, DigitalOcean
        "169.254.170.2",  # AWS ECS task credentials
        "169.254.170.23",  # AWS EKS pod identity
        "168.63.129.16",  # Azure's platform address, a public one
        "100.100.100.200",  # Alibaba Cloud
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS EKS pod identity
        "fd20:ce::254",  # GCP
    )
)

# The first block that contains an address decides. Translated: 6to4 relays, IPv4-compatible and IPv4-mapped
# addresses, SIIT (RFC 2765), NAT64, Teredo, 6to4.
_KINDS: tuple[tuple[AddressKind, str], ...] = (
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("loopback", "127.0.0.0/8 ::1/128"),
    ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("shared", "100.64.0.0/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("translated", "192.88.99.0/24 ::/96 ::ffff:0:0/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48"),
    ("translated", "2001::/32 2002::/16"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("reserved", "192.0.0.0/24 192.0.2.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"),
    ("reserved", "2001::/23 2001:db8::/32 3fff::/20"),
    ("public", "0.0.0.0/0 2000::/3"),
    ("reserved", "::/0"),  # not assigned to anybody
)
_BLOCKS = tuple((ip_network(block), kind) for kind, blocks in _KINDS for block in blocks.split())


def address_kind(address: str | IPv4Address | IPv6Address) -> AddressKind:
    """Return the kind of an address; only `public` may be reached without being named.

    Raises ValueError for text that is not an address. A scope (`fe80::1%eth0`) makes it link-local, and a
    public address that is this machine's own is `loopback`: it leads to the same local services.
    """
    ip = ip_address(address)
    if ip in _METADATA:
        return "metadata"
    if isinstance(ip, IPv6Address) and ip.scope_id is not None:
        return "link-local"
    # The last blocks contain every address, so there always is one.
    kind = next(kind for block, kind in _BLOCKS if ip in block)
    return "loopback" if kind == "public" and _is_own(ip) else kind


def allowed_addresses(host: str, port: int, addresses: Iterable[str], *, named: bool) -> list[str]:
    """Return those of a host's addresses, at least one, that may be connected to.

    `named` is true if a permission names the host outright. Raises HostNotAllowed if there is none.
    """
    kinds = {address: address_kind(address) for address in addresses}
    allowed = NAMED_KINDS if named else {"public"}
    if good := [address for address, kind in kinds.items() if kind in allowed]:
        return good
    address, kind = next(iter(kinds.items()))
    raise HostNotAllowed(
        f"{host} resolves to {address}, a {kind} address",
        hint=f"name {host if kind in NAMED_KINDS else address} itself in permissions.network.allow",
        details={"host": host, "port": port, "address": address, "kind": kind},
    )


def _is_own(ip: IPv4Address | IPv6Address) -> bool:
    """Return True if packets to this address would have it as their source too. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.connect((str(ip), 9))
            return ip_address(sock.getsockname()[0]) == ip
    except OSError as error:
        # Without a route it is another machine's; without a socket it cannot be checked, so it is not public.
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Resolver(Protocol):
    """Turns a host name into addresses; tests and projects can replace it."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses in order of preference. OSError if the name does not resolve."""


class SystemResolver:
    """The machine's own resolver (getaddrinfo), in threads of its own that nobody waits for at the end.

    In the event loop's threads, names whose servers do not answer would delay all else that uses them.
    """

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Resolve like `Resolver.resolve`."""
        found: Future[list[str]] = Future()
        found.set_running_or_notify_cancel()

        def look_up() -> None:
            try:
                answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
                found.set_result([str(sockaddr[0]) for *_, sockaddr in answers])
            except (OSError, UnicodeError) as error:
                found.set_exception(error)
            finally:
                _free_lookups.release()

        # A lookup cannot be ended, so one that was given up still counts.
        while not _free_lookups.acquire(blocking=False):  # noqa: ASYNC110 - other event loops give back too
            await asyncio.sleep(_RETRY_S)
        try:
            Thread(target=look_up, name="toolcrib-names", daemon=True).start()
        except RuntimeError as error:
            _free_lookups.release()
            raise OSError(errno.EAGAIN, str(error)) from None
        return await asyncio.wrap_future(found)
