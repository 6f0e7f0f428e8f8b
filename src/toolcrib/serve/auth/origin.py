"""The checks of Host and Origin: no web page of another site reaches a server on this machine.

A page can make a browser send requests here, even under its own host name if it changes the name's address
(DNS rebinding). The browser then sends the page's names in these two headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from toolcrib.errors import DeniedError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TrustedHosts:
    """The names by which a server may be addressed."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower() for name in (*LOOPBACK, *names)}

    def check(self, host: str | None, origin: str | None) -> None:
        """Refuse a request of another host or origin. Raises DeniedError.

        `host` and `origin` are the values of these headers. Programs send no Origin; a browser sends it with
        each request that changes something, and it must be the origin that the page itself came from.
        """
        if host is None or _name(host) not in self._names:
            raise DeniedError(
                f"this server does not answer for the host {host!r}",
                hint="Use the address it printed, or start it with --allow-host and the name.",
            )
        # With the port: another server on this machine is another site. `null`, the origin of a page in a
        # sandboxed frame, has no host, so it is refused too.
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise DeniedError(f"requests from pages of {origin!r} are refused")


def _name(host: str) -> str:
    """Return the host's name in a Host header, without its port; "" if it has no such form."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
