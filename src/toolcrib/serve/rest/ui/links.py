"""The socket on which a running server hands out login links to its own user: `toolcrib ui` asks there.

It is in the user's cache folder, which no other user and no tool can enter. Who copies the data folder finds
files alone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from toolcrib.state import Vault, cache_folder
from toolcrib.state.private import make_private

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

    path = _path(vault)
    listening = socket.socket(socket.AF_UNIX)
    try:
        make_private(path.parent)
        with _short(path) as address:
            path.unlink(missing_ok=True)
            listening.bind(address)
    except OSError:  # A home that nobody can write to: then each `toolcrib ui` serves by itself.
        listening.close()
        yield
        return
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
    path = _path(vault)
    gone = suppress(FileNotFoundError, ConnectionError)
    with gone, _short(path) as address, socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(address)
        return asking.makefile().read() or None
    return None


def _path(vault: Vault) -> Path:
    return (cache_folder(vault.path) or vault.path) / _NAME


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give an address for the path that fits: that of a socket has 107 bytes at most (unix(7))."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
