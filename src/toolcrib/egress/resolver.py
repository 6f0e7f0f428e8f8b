"""How host names become addresses: a seam, so that a test or a project can bring its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Resolver", "SystemResolver"]


class Resolver(Protocol):
    """Turns a host name into addresses."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses in order of preference. OSError when the name does not resolve."""


class SystemResolver:
    """The machine's own resolver (getaddrinfo, in a worker thread)."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """As `Resolver.resolve`."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return [str(sockaddr[0]) for *_, sockaddr in found]
