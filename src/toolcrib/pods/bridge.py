"""The bridge: it puts the messages of a pod into the outbox, and the outbox onto the bus.

A message is in the outbox before its file is removed, and leaves it once the bus has stored it. So nothing is
lost, whatever ends in between; and nothing comes twice, because file, outbox and bus know it by one id.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from toolcrib.errors import InvalidInput
from toolcrib.pods.bus import SEND, STATE, Bus
from toolcrib.pods.channels.serving import Settled
from toolcrib.pods.channels.table import CHANNELS
from toolcrib.pods.ipc import Server
from toolcrib.pods.protocol import MESSAGES, OutboundMessage
from toolcrib.pods.spool import Spool
from toolcrib.spec.identifier import derived_id
from toolcrib.state import ChannelMessages, Database, Message, Outbox

_STATES = 100
"""States of messages that are recorded together."""
_LOOK_S = 0.1
_FORGOTTEN_S = 7 * 86_400.0
"""Seconds after which the bus forgets a bridge that is gone."""
_log = logging.getLogger("toolcrib.pods")


class Bridge:
    """The messages of one database, and of the pod whose environment this is.

    `channels` are those that messages may be for.
    """

    def __init__(
        self,
        database: Database,
        environment: Mapping[str, str],
        channels: Collection[str] = tuple(CHANNELS),
        spool: Spool | None = None,
    ) -> None:
        self._database, self._environment, self._channels = database, environment, channels
        self._spool = spool
        self._messages, self._outbox = ChannelMessages(database), Outbox(database)
        self._source = environment.get("SOURCE_CHANNEL"), environment.get("SOURCE_CHAT_ID", "")
        run, instance = environment.get("AGENT_RUN_ID"), environment.get("INSTANCE_NAME")
        self._metadata = {"agentRunID": run, "instanceName": instance} if run else {}
        self.name = run or socket.gethostname()
        """The same after a restart, and another one for each pod."""

    async def run(self, *others: Callable[[Bus], Awaitable[None]]) -> None:
        """Pass messages on until cancelled: those of the outbox, and of a folder of files if there is one.

        `others` run beside it, on the same connection.
        """
        async with asyncio.TaskGroup() as group:
            if self._spool is not None:
                # One at a time, so in the order of their files. Without the bus they wait in the outbox.
                group.create_task(Server(self._spool, MESSAGES, self._take, concurrency=1).run())
            bus = await Bus.connect(self._environment)
            try:
                async with asyncio.TaskGroup() as connected:
                    connected.create_task(self._outbox.run(partial(self._publish, bus)))
                    connected.create_task(self._record_states(bus))
                    for other in others:
                        connected.create_task(_of(other(bus)))
            finally:
                await bus.aclose()

    async def drained(self) -> None:
        """Return once nothing waits here any more. The pod takes what still waits at its end with it."""
        while await asyncio.to_thread(self._waits):  # noqa: ASYNC110 - files and rows are others' work
            await asyncio.sleep(_LOOK_S)

    def _waits(self) -> bool:
        files = [] if self._spool is None else self._spool.stamps()
        return any(map(MESSAGES.id_of, files)) or self._outbox.waits(SEND)

    async def _take(self, id: str, message: OutboundMessage) -> None:
        if message.channel not in self._channels:
            raise InvalidInput(
                f"there is no channel {message.channel!r} here", hint=f"One of: {', '.join(self._channels)}"
            )
        if not message.chat_id and message.channel == self._source[0]:
            message.chat_id = self._source[1]

        def put() -> None:
            with self._database.write() as tx:
                data: dict[str, Any] = msgspec.to_builtins(message)
                # After a crash the file may still be there.
                if not ChannelMessages.put(tx, derived_id(self.name, id), data, self._metadata):
                    _log.info("the message in send-%s.json was queued before", id)

        await asyncio.to_thread(put)
        self._outbox.wake()

    async def _publish(self, bus: Bus, message: Message) -> None:
        await bus.publish(SEND, orjson.loads(message.body)["metadata"]["messageID"], message.body)

    async def _record_states(self, bus: Bus) -> None:
        name = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        await bus.consume(
            f"states-{name}", STATE, Settled, self._settle, batch=_STATES, forgotten_after_s=_FORGOTTEN_S
        )

    async def _settle(self, settled: Sequence[tuple[str, Settled]]) -> None:
        ended = [(one.id, one.state, one.error, msgspec.json.encode(one.message)) for _, one in settled]
        await asyncio.to_thread(self._messages.settle, ended)


async def _of(work: Awaitable[None]) -> None:
    await work
