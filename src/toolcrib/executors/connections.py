"""Connections to Postgres servers for the tools of one project, kept open between calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from toolcrib.egress import Egress, EgressRequest, EgressResponse, HostPolicy

if TYPE_CHECKING:
    from psycopg import AsyncConnection


_IDLE = 8
"""Idle connections to one server that are kept."""
_CONNECT_S = 10

_Idle = dict[str, list["AsyncConnection[Any]"]]


class Connections:
    """Idle connections by address, for each event loop. With `keep` false, each is closed after its use."""

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Idle] = WeakKeyDictionary()

    @asynccontextmanager
    async def connection(self, conninfo: str) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection, which is in no transaction. A broken one is closed afterwards."""
        idle = self._loops.setdefault(asyncio.get_running_loop(), {}).setdefault(conninfo, [])
        connection = None
        while idle and connection is None:
            connection = await _living(idle.pop())
        connection = connection or await self._connect(conninfo)
        try:
            yield connection
        except BaseException:
            await connection.close()
            raise
        if self._keep and not connection.closed and len(idle) < _IDLE:
            idle.append(connection)
        else:
            await connection.close()

    async def _connect(self, conninfo: str) -> AsyncConnection[Any]:
        from psycopg import AsyncConnection

        return await AsyncConnection.connect(
            conninfo, autocommit=True, connect_timeout=_CONNECT_S, application_name="toolcrib"
        )

    async def aclose(self) -> None:
        """Close all idle connections."""
        here = asyncio.get_running_loop()
        for loop, by_address in list(self._loops.items()):
            for connection in [one for idle in by_address.values() for one in idle]:
                if loop is here:
                    await connection.close()
                else:
                    # Another loop's connection cannot be awaited here; closing the socket ends it for the
                    # server too.
                    connection.pgconn.finish()
            by_address.clear()


async def _living(connection: AsyncConnection[Any]) -> AsyncConnection[Any] | None:
    """Return an idle connection if the server still answers on it."""
    import psycopg

    try:
        await connection.execute("")
    except psycopg.Error:
        await connection.close()
        return None
    return connection


class OneRequestEgress(Egress):
    """A client that closes its connections after each request."""

    async def request(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        """Send one request like `Egress.request`."""
        async with Egress() as egress:
            return await egress.request(request, policy)
