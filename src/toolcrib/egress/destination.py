"""The destination of a request: one strict parser of URLs, for the check and the connection alike."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

from toolcrib.spec.record import record

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(#.*)?", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMERIC = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)")
_BAD = re.compile(r"[\x00-\x20\x7f\\]")
_PRINTABLE = "%!$&'()*+,;=:@/?~[]^`{|}\"<>"
_PORTS = {"http": 80, "https": 443}


@record
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
        """Parse `url`; ValueError names the bad part (scheme, user, fragment, host, port)."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError("only http:// and https:// URLs can be called")
        if _BAD.search(url):
            raise ValueError("a URL cannot contain spaces, control characters or backslashes")
        if match.group(4):
            raise ValueError("a URL cannot have a fragment (`#…`)")
        scheme = match.group(1).lower()
        host, port = split_authority(match.group(2))
        target = match.group(3)
        if not target.isascii():
            target = quote(target, safe=_PRINTABLE)
        return cls(scheme, host, port or _PORTS[scheme], target if target.startswith("/") else f"/{target}")

    def join(self, location: str) -> Destination:
        """Return the destination of a redirect to `location`, without a fragment. ValueError as `parse`."""
        location = location.strip().partition("#")[0].replace(" ", "%20")
        return Destination.parse(urljoin(self.url, location))

    @property
    def authority(self) -> str:
        """Host, and the port if it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port (RFC 6454). Secrets are bound to it."""
        return (self.scheme, self.host, self.port)

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The host if it is an address, None for a name."""
        if ":" in self.host:
            return IPv6Address(self.host)
        # No name that `normal_host` lets through ends in a digit label.
        return IPv4Address(self.host) if _NUMERIC.fullmatch(self.host) else None


def normal_host(host: str) -> str:
    """Return a host name or address in the one form that is compared and connected to; else ValueError.

    Other spellings of an IPv4 address (`127.1`, `0x7f.1`, `2130706433`) are refused, as are zone names.
    """
    if ":" in host:
        if "%" in host:
            raise ValueError(f"`{host}` has a zone; such an address cannot be called")
        return IPv6Address(host).compressed
    host = host.removesuffix(".").lower()
    if not host.isascii():
        import idna

        # As browsers do (UTS 46); what is compared with the permission is what is looked up.
        host = idna.encode(host, uts46=True).decode("ascii")
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise ValueError(f"`{host}` is not a host name" if host else "there is no host name in it")
    if _NUMERIC.fullmatch(host):
        return str(IPv4Address(host))
    return host


@lru_cache(maxsize=256)
def split_authority(authority: str) -> tuple[str, int | None]:
    """Return normalised host and port of `host`, `host:port` or `[address]:port`; else ValueError."""
    if "@" in authority:
        raise ValueError("a host cannot have a user name or password before it (`user@`)")
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")) or ":" not in host:
            raise ValueError(f"`{authority}` is not a host")
    else:
        host, colon, rest = authority.partition(":")
        rest = colon + rest
    port = rest[1:]
    if rest and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"`{port}` is not a port (1 to 65535)")
    return normal_host(host), int(port) if rest else None
