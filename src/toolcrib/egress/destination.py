"""Where a request goes: one strict reading of a URL, used for the check and for the connection alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

__all__ = ["Destination", "normal_host"]

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(#.*)?", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMERIC = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)")
_BAD = re.compile(r"[\x00-\x20\x7f\\]")
_PRINTABLE = "%!$&'()*+,;=:@/?~[]^`{|}\"<>"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of an http or https URL, normalised."""

    scheme: str
    host: str
    """Lower case, IDNA-encoded, no trailing dot; an IPv6 address without brackets."""
    port: int
    target: str = "/"
    """Path and query as sent."""

    @classmethod
    def parse(cls, url: str) -> Destination:
        """Read `url`; ValueError says what is wrong with it (scheme, userinfo, fragment, host, port)."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError("only http:// and https:// URLs can be called")
        if _BAD.search(url):
            raise ValueError("a URL cannot hold spaces, control characters or backslashes")
        if match.group(4):
            raise ValueError("a URL cannot have a fragment (`#…`)")
        scheme = match.group(1).lower()
        host, port = _authority(match.group(2), _PORTS[scheme])
        target = match.group(3)
        if not target.isascii():
            target = quote(target, safe=_PRINTABLE)
        return cls(scheme, host, port, target if target.startswith("/") else f"/{target}")

    def join(self, location: str) -> Destination:
        """Where a redirect to `location` leads; ValueError as `parse`. A fragment in it is not sent."""
        location = location.strip().partition("#")[0].replace(" ", "%20")
        return Destination.parse(urljoin(self.url, location))

    @property
    def authority(self) -> str:
        """Host, and the port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what secrets are bound to (RFC 6454)."""
        return (self.scheme, self.host, self.port)

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The host, when it is an address and not a name."""
        if ":" in self.host:
            return IPv6Address(self.host)
        # No name that `normal_host` lets through ends in a digit label.
        return IPv4Address(self.host) if _NUMERIC.fullmatch(self.host) else None


def normal_host(host: str) -> str:
    """A host name or address in the one form that is compared and connected to; else ValueError.

    Other spellings of an IPv4 address (`127.1`, `0x7f.1`, `2130706433`) are refused, as are zone names.
    """
    if ":" in host:
        if "%" in host:
            raise ValueError(f"`{host}` has a zone; such an address cannot be called")
        return IPv6Address(host).compressed
    host = host.removesuffix(".").lower()
    if not host.isascii():
        import idna

        host = idna.encode(host, uts46=True).decode("ascii")
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise ValueError(f"`{host}` is not a host name")
    if _NUMERIC.fullmatch(host):
        return str(IPv4Address(host))
    return host


@lru_cache(maxsize=256)
def _authority(authority: str, default_port: int) -> tuple[str, int]:
    if "@" in authority:
        raise ValueError("a URL cannot hold a user name or password (`user@`)")
    if authority.startswith("["):
        inner, closed, rest = authority[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")) or ":" not in inner:
            raise ValueError(f"`{authority}` is not a host")
        host, port = inner, rest[1:] if rest else None
    else:
        host, colon, digits = authority.partition(":")
        port = digits if colon else None
    if port is None:
        return normal_host(host), default_port
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"`{port}` is not a port (1 to 65535)")
    return normal_host(host), int(port)
