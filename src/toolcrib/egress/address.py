"""Which addresses a name may stand for, after the IANA special-purpose address registries (RFC 6890)."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal

__all__ = ["NAMED_KINDS", "AddressKind", "address_kind"]

AddressKind = Literal[
    "public",
    "loopback",
    "private",
    "shared",
    "link-local",
    "metadata",
    "multicast",
    "unspecified",
    "reserved",
    "translated",
]
"""`shared` is carrier-grade NAT; `translated` is an IPv4 address inside an IPv6 one (mapped, NAT64, 6to4)."""

NAMED_KINDS: frozenset[AddressKind] = frozenset({"public", "loopback", "private", "shared"})
"""What a host name that a permission names may resolve to. Any other kind must be named by its address:
whoever runs a named host's DNS must not be able to point it at a metadata service."""

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

_BLOCKS_V4: tuple[tuple[IPv4Network, AddressKind], ...] = (
    (IPv4Network("0.0.0.0/8"), "unspecified"),
    (IPv4Network("10.0.0.0/8"), "private"),
    (IPv4Network("100.64.0.0/10"), "shared"),
    (IPv4Network("127.0.0.0/8"), "loopback"),
    (IPv4Network("169.254.0.0/16"), "link-local"),
    (IPv4Network("172.16.0.0/12"), "private"),
    (IPv4Network("192.0.0.0/24"), "reserved"),
    (IPv4Network("192.0.2.0/24"), "reserved"),
    (IPv4Network("192.88.99.0/24"), "translated"),
    (IPv4Network("192.168.0.0/16"), "private"),
    (IPv4Network("198.18.0.0/15"), "reserved"),
    (IPv4Network("198.51.100.0/24"), "reserved"),
    (IPv4Network("203.0.113.0/24"), "reserved"),
    (IPv4Network("224.0.0.0/4"), "multicast"),
    (IPv4Network("240.0.0.0/4"), "reserved"),
)

_BLOCKS_V6: tuple[tuple[IPv6Network, AddressKind], ...] = (
    (IPv6Network("::/128"), "unspecified"),
    (IPv6Network("::1/128"), "loopback"),
    (IPv6Network("::/96"), "translated"),  # IPv4-compatible, deprecated
    (IPv6Network("::ffff:0:0/96"), "translated"),  # IPv4-mapped
    (IPv6Network("::ffff:0:0:0/96"), "translated"),  # SIIT, RFC 2765
    (IPv6Network("64:ff9b::/96"), "translated"),  # NAT64
    (IPv6Network("64:ff9b:1::/48"), "translated"),  # NAT64, local use
    (IPv6Network("2001::/32"), "translated"),  # Teredo
    (IPv6Network("2001::/23"), "reserved"),
    (IPv6Network("2001:db8::/32"), "reserved"),
    (IPv6Network("2002::/16"), "translated"),  # 6to4
    (IPv6Network("3fff::/20"), "reserved"),
    (IPv6Network("fc00::/7"), "private"),
    (IPv6Network("fe80::/10"), "link-local"),
    (IPv6Network("fec0::/10"), "private"),  # site-local, deprecated
    (IPv6Network("ff00::/8"), "multicast"),
    (IPv6Network("2000::/3"), "public"),
)


def address_kind(address: str | IPv4Address | IPv6Address) -> AddressKind:
    """What kind of address this is; only `public` may be reached without being named.

    Raises ValueError for text that is not an address. A scope (`fe80::1%eth0`) makes it link-local, and a
    public address that is this machine's own is `loopback`: its services are no less local by that name.
    """
    ip = ip_address(address)
    kind = _registered(ip)
    return "loopback" if kind == "public" and _is_own(ip) else kind


def _is_own(ip: IPv4Address | IPv6Address) -> bool:
    """Whether what goes there would come from there as well. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.connect((str(ip), 9))
            return ip_address(sock.getsockname()[0]) == ip
    except OSError as error:
        # There is no way to it; but what could not be looked at is not held to be public.
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _registered(ip: IPv4Address | IPv6Address) -> AddressKind:
    if ip in _METADATA:
        return "metadata"
    if isinstance(ip, IPv4Address):
        return next((kind for block, kind in _BLOCKS_V4 if ip in block), "public")
    if ip.scope_id is not None:
        return "link-local"
    # Addresses outside 2000::/3 and the blocks above are not assigned to anybody.
    return next((kind for block, kind in _BLOCKS_V6 if ip in block), "reserved")
