"""The bridge: it puts the messages of a pod into the outbox, and the outbox onto the bus.

A message is in the outbox before its file is removed, and leaves it once the bus has stored it. So nothing is
lost, whatever ends in between; and nothing comes twice, because file, outbox and bus know it by one id.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from toolcrib.errors import StateUnavailable
from toolcrib.pods.bus import SEND, STATE, Bus
from toolcrib.pods.channels.serving import Settled
from toolcrib.pods.channels.table import CHANNELS
from toolcrib.pods.ipc import GRACE_S, REJECTED
from toolcrib.pods.protocol import MESSAGES, OutboundMessage, message_id, pod_of
from toolcrib.pods.spool import Refused, Spool
from toolcrib.state import Database, Message, Outbox
from toolcrib.state.outgoing.outbox import ChannelMessages

_FILES = 100
"""Messages that are put into the outbox together."""
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
        self._run, instance = environment.get("AGENT_RUN_ID", ""), environment.get("INSTANCE_NAME")
        self._metadata = {"agentRunID": self._run, "instanceName": instance} if self._run else {}
        self.complete: Callable[[dict[str, Any]], dict[str, Any]] = lambda data: data
        """Adds to the data of a message what the database must not have."""

    async def run(self, *others: Callable[[Bus], Awaitable[None]]) -> None:
        """Pass messages on until cancelled: those of the outbox, and of a folder of files if there is one.

        `others` run beside it, on the same connection.
        """
        async with asyncio.TaskGroup() as group:
            if self._spool is not None:
                group.create_task(self._take(self._spool))  # Without the bus they wait in the outbox.
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

    async def _take(self, spool: Spool) -> None:
        """Put messages into the outbox as their files come, many in one transaction."""
        news = asyncio.Event()
        # The folder is looked at every second: a file may have been half, or the database away.
        async with spool.watched(lambda *_: news.set(), news.set):
            while True:
                await news.wait()
                news.clear()
                try:
                    while await asyncio.to_thread(self._take_some, spool):
                        self._outbox.wake()
                except StateUnavailable as error:
                    _log.warning("messages wait in their files: %s", error.message)

    def _take_some(self, spool: Spool) -> bool:
        """Take messages, the oldest first; return True if there may be more."""
        named = ((name, MESSAGES.id_of(name)) for name in spool.stamps())
        taken: dict[str, tuple[str, OutboundMessage]] = {}
        for name, id in named:
            if (
                id is not None
                and len(taken) < _FILES
                and (message := self._read(spool, name, id)) is not None
            ):
                taken[name] = id, message
        with self._database.write() as tx:
            for id, message in taken.values():
                data: dict[str, Any] = msgspec.to_builtins(message)
                # Known already, if the last bridge died before it removed the file.
                ChannelMessages.put(tx, message_id(self._run, id), data, self._metadata)
        for name in taken:
            spool.remove(name)
        return len(taken) == _FILES

    def _read(self, spool: Spool, name: str, id: str) -> OutboundMessage | None:
        """Return the message in a file; None if it is not whole yet, or is none and was moved away."""
        try:
            if (found := spool.read(name, MESSAGES.max_bytes)) is None:
                return None
            data, stamp = found
            try:
                message = MESSAGES.read(id, data)
            except msgspec.DecodeError as error:
                if stamp.age_s < GRACE_S:
                    return None
                raise Refused(f"it is not a message: {error}") from None
            if message.channel not in self._channels:
                known = ", ".join(self._channels)
                raise Refused(f"there is no channel {message.channel!r} here, only: {known}")
        except Refused as refused:
            _log.warning("%s is moved to %s: %s", name, REJECTED, refused.message)
            spool.move(name, REJECTED)
            return None
        if not message.chat_id and message.channel == self._source[0]:
            message.chat_id = self._source[1]
        return message

    async def _publish(self, bus: Bus, message: Message) -> None:
        body = orjson.loads(message.body)
        body["data"] = await asyncio.to_thread(self.complete, body["data"])
        await bus.publish(SEND, body["metadata"]["messageID"], orjson.dumps(body))

    async def _record_states(self, bus: Bus) -> None:
        name = hashlib.sha256(pod_of(self._run).encode()).hexdigest()[:16]
        await bus.consume(
            f"states-{name}", STATE, Settled, self._settle, batch=_STATES, forgotten_after_s=_FORGOTTEN_S
        )

    async def _settle(self, settled: Sequence[tuple[str, Settled]]) -> None:
        ended = [(one.id, one.state, one.error, msgspec.json.encode(one.message)) for _, one in settled]
        await asyncio.to_thread(self._messages.settle, ended)


async def _of(work: Awaitable[None]) -> None:
    await work
