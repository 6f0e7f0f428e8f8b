"""The way to a destination: check it, resolve its name once, check the addresses, dial a checked one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence

from toolcrib.egress.address import NAMED_KINDS, Resolver, SystemResolver, allowed_addresses
from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy.stream import SocketStream
from toolcrib.errors import HostNotAllowed, InvalidInput, ToolFailed
from toolcrib.spec.record import record

_WEB_PORTS = frozenset({80, 443})


@record
class HostRefusal:
    """One destination that a tool asked for and was refused."""

    host: str
    """Normalised; as it was asked for if it is not a host."""
    port: int
    """0 if it could not be read."""
    reason: str
    """A whole clause that names the host."""
    entry: str | None = None
    """The entry of the allow-list that would allow it; None if no permission of the tool could."""

    @classmethod
    def of(cls, error: HostNotAllowed, destination: Destination) -> HostRefusal:
        """Return the refusal of `destination` by a policy or because of an address of its name."""
        entry = None
        if error.hint is not None:
            by_name = error.details.get("kind") in NAMED_KINDS
            host = destination.host if by_name else error.details.get("address", destination.host)
            host = f"[{host}]" if ":" in host else host
            entry = host if destination.port in _WEB_PORTS else f"{host}:{destination.port}"
        return cls(destination.host, destination.port, error.message, entry)

    @property
    def grant(self) -> str | None:
        """The manifest line that would allow it."""
        return None if self.entry is None else grant_line((self.entry,))

    @property
    def text(self) -> str:
        """One line for the program that asked: the refused host, and how to allow it."""
        if self.grant is None:
            return self.reason
        return f"{self.reason}; to allow it, write in the tool's manifest: `{self.grant}`"


class Denied(Exception):
    """The connection is refused; the refusal is already recorded."""

    def __init__(self, refusal: HostRefusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.reason)


def grant_line(entries: Iterable[str]) -> str:
    """Return the manifest line that allows these hosts."""
    quoted = (f'"{entry}"' if entry.startswith(("[", "*")) else entry for entry in entries)
    return f"permissions.network: {{allow: [{', '.join(quoted)}]}}"


_log = logging.getLogger(__name__)
_MAX_REFUSALS = 100
_FIRST_ADDRESS_S = 3.0
_LOOKUPS = 8
"""Names that one program has looked up at one time: the lookups of all share their threads."""


@record
class ProxyLimits:
    """Time limits of a connection, in seconds, and the number of connections."""

    header_s: float = 10.0
    """Seconds for a request's head, a SOCKS handshake, or the first message in a tunnel once it has begun."""
    dial_s: float = 10.0
    """Seconds for the name and the connection together."""
    idle_s: float = 60.0
    """Without a byte in either direction; also the time a server has to begin its answer."""
    connections: int = 64
    """At once; further ones wait in the listener's backlog until one ends."""


class Unreachable(Exception):
    """An allowed destination that cannot be connected to."""

    def __init__(self, text: str, *, socks_reply: int = 4, timed_out: bool = False) -> None:
        self.text = text
        self.socks_reply = socks_reply
        self.timed_out = timed_out
        super().__init__(text)


class Dialer:
    """Connects to the destinations that one proxy's policy allows, and records those it refuses."""

    def __init__(
        self,
        policy: HostPolicy,
        resolver: Resolver,
        on_refusal: Callable[[HostRefusal], None],
        limits: ProxyLimits,
    ) -> None:
        self.policy = policy
        self.limits = limits
        self._resolver = resolver
        self._on_refusal = on_refusal
        self._refused: set[HostRefusal] = set()
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    def check(self, destination: Destination) -> bool:
        """Return True if the policy names the host outright. Raises Denied if it may not be reached."""
        try:
            return self.policy.check(destination)
        except HostNotAllowed as error:
            raise self.denied(HostRefusal.of(error, destination)) from None

    def denied(self, refusal: HostRefusal) -> Denied:
        """Record the refusal and return the exception to raise. Records each one once, a hundred at most."""
        if refusal not in self._refused and len(self._refused) < _MAX_REFUSALS:
            self._refused.add(refusal)
            try:
                self._on_refusal(refusal)
            except Exception:
                _log.exception("a refused connection could not be recorded")
        return Denied(refusal)

    async def connect(self, destination: Destination) -> SocketStream:
        """Connect to a checked address of a checked destination. Raises Denied and Unreachable."""
        named = self.check(destination)
        where = destination.authority
        try:
            async with asyncio.timeout(self.limits.dial_s):
                # Resolved once: a name that is asked for twice could give another address after the check
                # (DNS rebinding).
                addresses = await self._addresses(destination, named=named)
                return SocketStream(await _dial(addresses, destination.port))
        except HostNotAllowed as error:
            raise self.denied(HostRefusal.of(error, destination)) from None
        except TimeoutError:
            text = f"no connection to {where} within {self.limits.dial_s:g} s"
            raise Unreachable(text, timed_out=True) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            reply = 5 if isinstance(error, ConnectionRefusedError) else 4
            raise Unreachable(f"no connection to {where}: {reason}", socks_reply=reply) from None

    async def _addresses(self, destination: Destination, *, named: bool) -> Sequence[str]:
        if destination.address is not None:
            return (destination.host,)
        try:
            async with self._lookups:
                addresses = await self._resolver.resolve(destination.host, destination.port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise Unreachable(f"{destination.host} does not resolve")
        return allowed_addresses(destination.host, destination.port, addresses, named=named)


async def _dial(addresses: Sequence[str], port: int) -> socket.socket:
    """Connect to the first address that answers; raises the OSError of the last one if none does."""
    *others, last = addresses
    # One after the other, as most names have one or two; the last may use all the time that is left.
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


async def connect(host: str, port: int, policy: HostPolicy, *, timeout_s: float) -> socket.socket:
    """Return a socket that is connected to a checked address of a host, for a protocol of the caller's own.

    Raises HostNotAllowed, InvalidInput for what is not a host, ToolFailed if nobody answers there.
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
