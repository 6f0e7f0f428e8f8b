"""Host names to addresses; tests and projects can replace it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol


class Resolver(Protocol):
    """Turns a host name into addresses."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses in order of preference. OSError if the name does not resolve."""


class SystemResolver:
    """The machine's own resolver (getaddrinfo, in a worker thread)."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Resolve like `Resolver.resolve`."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return [str(sockaddr[0]) for *_, sockaddr in found]
