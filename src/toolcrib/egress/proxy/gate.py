"""The decision the proxy makes for every connection: check the destination, resolve it once, dial that."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolcrib.egress.address import NAMED_KINDS, address_kind
from toolcrib.egress.destination import Destination
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy.refusal import Denied, Refusal
from toolcrib.egress.proxy.wire import Wire
from toolcrib.egress.resolver import Resolver
from toolcrib.errors import HostNotAllowed

__all__ = ["Gate", "ProxyLimits", "Unreachable"]

_log = logging.getLogger(__name__)
_MAX_REFUSALS = 100
_FIRST_ADDRESS_S = 3.0
_ANY_NAME = "hidden.invalid"  # RFC 2606: nobody's name


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """How long a connection may take and how many there may be; times in seconds."""

    header_s: float = 10.0
    """For a request's head, a SOCKS handshake, and the first message inside a tunnel once it has begun."""
    dial_s: float = 10.0
    """For the name and the connection together."""
    idle_s: float = 60.0
    """Without a byte in either direction; also how long a server may think before it answers."""
    connections: int = 64
    """At once; further ones wait in the listener's backlog until one ends."""


class Unreachable(Exception):
    """An allowed destination that cannot be connected to."""

    def __init__(self, text: str, *, socks_reply: int, timed_out: bool = False) -> None:
        self.text = text
        self.socks_reply = socks_reply
        self.timed_out = timed_out
        super().__init__(text)


class Gate:
    """What one proxy lets through, and where it says what it did not."""

    def __init__(
        self,
        policy: HostPolicy,
        resolver: Resolver,
        on_refusal: Callable[[Refusal], None],
        limits: ProxyLimits,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._on_refusal = on_refusal
        self.limits = limits
        self._refused: set[Refusal] = set()

    def check(self, destination: Destination) -> bool:
        """Whether the policy names the destination outright; Denied if it may not be reached."""
        try:
            return self._policy.check(destination)
        except HostNotAllowed as error:
            raise self.denied(Refusal.of(error, destination)) from None

    def lets_any_name_through(self, port: int) -> bool:
        """Whether a connection may lead to a host whose name cannot be seen."""
        return self._policy.covers(Destination("https", _ANY_NAME, port))

    def denied(self, refusal: Refusal) -> Denied:
        """Record the refusal, each one once and at most a hundred; returns what is to be raised."""
        if refusal not in self._refused and len(self._refused) < _MAX_REFUSALS:
            self._refused.add(refusal)
            try:
                self._on_refusal(refusal)
            except Exception:
                _log.exception("the record of a refused connection failed")
        return Denied(refusal)

    async def connect(self, destination: Destination) -> Wire:
        """A connection to a checked address of a checked destination. Raises Denied and Unreachable."""
        named = self.check(destination)
        try:
            async with asyncio.timeout(self.limits.dial_s):
                if destination.address is not None:
                    addresses: Sequence[str] = (destination.host,)
                else:
                    addresses = self._checked(destination, await self._resolve(destination), named=named)
                return Wire(await _dial(addresses, destination.port))
        except TimeoutError:
            text = f"no connection to {destination.authority} within {self.limits.dial_s:g} s"
            raise Unreachable(text, socks_reply=4, timed_out=True) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            reply = 5 if isinstance(error, ConnectionRefusedError) else 4
            text = f"no connection to {destination.authority}: {reason}"
            raise Unreachable(text, socks_reply=reply) from None

    async def _resolve(self, destination: Destination) -> Sequence[str]:
        try:
            addresses = await self._resolver.resolve(destination.host, destination.port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise Unreachable(f"{destination.host} does not resolve", socks_reply=4)
        return addresses

    def _checked(self, destination: Destination, addresses: Sequence[str], *, named: bool) -> list[str]:
        """The addresses that may be connected to; Denied when there is none."""
        kinds = [(address, address_kind(address)) for address in addresses]
        allowed = NAMED_KINDS if named else {"public"}
        good = [address for address, kind in kinds if kind in allowed]
        if good:
            return good
        address, kind = kinds[0]
        error = HostNotAllowed(
            f"{destination.host} resolves to {address}, a {kind} address",
            hint="name it",
            details={"grant": address if named or kind not in NAMED_KINDS else destination.host},
        )
        raise self.denied(Refusal.of(error, destination))


async def _dial(addresses: Sequence[str], port: int) -> socket.socket:
    """The first address that answers; the OSError of the last one if none does."""
    *others, last = addresses
    for address in others:
        try:
            async with asyncio.timeout(_FIRST_ADDRESS_S):
                return await _connected(address, port)
        except OSError:  # TimeoutError too; asyncio tells this block's own from the outer one's
            pass
    return await _connected(last, port)


async def _connected(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock
