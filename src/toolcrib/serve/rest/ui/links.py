"""The socket on which a running server hands out login links to its own user: `toolcrib ui` asks there.

It is in the user's folder of the project, which no other user and no tool can enter.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from toolcrib.state import Vault

_NAME = "server.sock"
_ANSWER_S = 5.0


@asynccontextmanager
async def hand_out_links(vault: Vault, link: Callable[[], str]) -> AsyncIterator[None]:
    """Answer each connection with a new link, in this block. The server that started last answers."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(link().encode())
        with suppress(OSError):
            await writer.drain()
        writer.close()

    path = vault.folder / _NAME
    listening = socket.socket(socket.AF_UNIX)
    with _short(path) as address:
        path.unlink(missing_ok=True)
        listening.bind(address)
    mine = path.stat().st_ino
    server = await asyncio.start_unix_server(answer, sock=listening)
    try:
        yield
    finally:
        server.close()
        with suppress(FileNotFoundError):
            if path.stat().st_ino == mine:
                path.unlink()


def running_link(vault: Vault) -> str | None:
    """Return a new login link of the running server of a project; None if none runs."""
    path = vault.path / _NAME
    gone = suppress(FileNotFoundError, ConnectionError)
    with gone, _short(path) as address, socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(address)
        return asking.makefile().read() or None
    return None


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give an address for the path that fits: that of a socket has 107 bytes at most (unix(7))."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
