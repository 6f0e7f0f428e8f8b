"""A guarded connection for protocols other than HTTP: the host is checked as for a request."""

from __future__ import annotations

import socket

from toolcrib.egress.address import SystemResolver
from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy.dialer import Dialer, ProxyLimits, Unreachable
from toolcrib.egress.proxy.refusal import Denied
from toolcrib.errors import HostNotAllowed, InvalidInput, ToolFailed


async def connect(host: str, port: int, policy: HostPolicy, *, timeout_s: float) -> socket.socket:
    """Return a socket that is connected to a checked address of the host.

    Raises HostNotAllowed, InvalidInput for what is no host, ToolFailed if nobody answers there.
    """
    try:
        destination = Destination("https", normal_host(host), port)
    except ValueError as error:
        raise InvalidInput(f"cannot connect to {host!r}: {error}") from None
    limits = ProxyLimits(dial_s=timeout_s)
    dialer = Dialer(policy, SystemResolver(), lambda _: None, limits)
    try:
        return (await dialer.connect(destination)).detach()
    except Denied as error:
        refusal = error.refusal
        raise HostNotAllowed(refusal.text, details={"host": host, "port": port}) from None
    except Unreachable as error:
        raise ToolFailed(error.text, details={"host": host, "port": port}, retryable=True) from None
