"""Messages that are stored with the change they announce, and delivered afterwards: at least once, in order.

A message has the number of its topic, which a transaction gets by locking the topic until it ends. So no
message of a topic appears before an earlier one. One reader at a time delivers a topic; if it dies, or is
silent for too long, another continues after the last message known to be delivered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from toolcrib.errors import ConflictError, NotFoundError
from toolcrib.spec.identifier import new_id
from toolcrib.spec.moment import written
from toolcrib.spec.record import json_form, record
from toolcrib.state.database import Database, Transaction
from toolcrib.state.watch import DatabaseWatch

OUTBOX = """
CREATE TABLE topics (
    topic TEXT PRIMARY KEY,
    last INTEGER NOT NULL
);
CREATE TABLE outbox (
    topic TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (topic, number)
);
CREATE TABLE readers (
    topic TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    holder TEXT NOT NULL,
    until REAL NOT NULL
);
"""
# The row of the topic stays locked until the transaction ends, so numbers are committed in their order.
_NUMBER = (
    "INSERT INTO topics VALUES (?, ?) ON CONFLICT (topic) DO UPDATE SET last = topics.last + excluded.last"
    " RETURNING last"
)
_WAITING = (
    "SELECT topics.topic, readers.holder, readers.until FROM topics"
    " LEFT JOIN readers ON readers.topic = topics.topic"
    " WHERE EXISTS (SELECT 1 FROM outbox WHERE outbox.topic = topics.topic) ORDER BY topics.topic"
)
_PAGE = "SELECT number, body FROM outbox WHERE topic = ? ORDER BY number LIMIT ?"
_RENEW = "UPDATE readers SET until = ? WHERE topic = ? AND epoch = ?"
_MESSAGES = 100
"""Messages between two records of what was delivered; this many may be delivered again after a crash."""
_SILENT_S = 60.0
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


def next_number(tx: Transaction, topic: str, count: int = 1) -> int:
    """Return the first of the next numbers of a topic: 1, 2, …. Others wait for theirs until this ends."""
    (last,) = tx.one(_NUMBER, topic, count) or (0,)
    return int(last) - count + 1


class Message(NamedTuple):
    """One message."""

    topic: str
    number: int
    """1, 2, … in its topic, without gaps."""
    body: bytes

    @property
    def id(self) -> str:
        """The same at each delivery; a receiver drops what it has seen."""
        return f"{self.topic}/{self.number}"


class Outbox:
    """The messages of one database, whose migrations include `OUTBOX`. Safe for threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._look, database)

    @staticmethod
    def put(tx: Transaction, topic: str, body: bytes) -> Message:
        """Add a message to a transaction of this database. It is delivered once that is committed."""
        message = Message(topic, next_number(tx, topic), body)
        tx.insert("outbox", message._asdict())
        tx.notify()
        return message

    def waits(self, topic: str) -> bool:
        """Return True if a message of a topic is not delivered yet."""
        return bool(self._database.rows("SELECT 1 FROM outbox WHERE topic = ? LIMIT 1", topic))

    def wake(self) -> None:
        """Look for messages at once, because this process has added one. Callable from any thread."""
        self._watch.notify()

    async def run(self, send: Callable[[Message], Awaitable[None]]) -> None:
        """Deliver messages until cancelled. What could not be delivered is tried again."""
        import asyncio

        while True:
            try:
                await self._watch.wait("", None)
                await self.deliver(send)
            except Exception as error:  # The receiver's errors are unknown; nothing may end the delivery.
                _log.warning("messages wait, because they cannot be delivered: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def deliver(self, send: Callable[[Message], Awaitable[None]]) -> int:
        """Deliver the messages that wait and that no other reader has; return their number.

        If `send` raises, that message is the first one next time. Raises what `send` raises.
        """
        count = 0
        holder = self._database.holder()
        for topic in self._free_topics():
            epoch = self._claim(topic, holder)
            while epoch is not None:
                page = self._page(topic)
                sent = 0
                try:
                    for message in page:
                        await send(message)
                        sent = message.number
                        count += 1
                finally:
                    # After an error too: what was sent before it is not sent again.
                    keeps = self._delivered(topic, epoch, sent, ends=len(page) < _MESSAGES or sent == 0)
                if not keeps or len(page) < _MESSAGES:
                    break
        return count

    def _look(self, keys: Sequence[str]) -> Mapping[str, bool]:
        return dict.fromkeys(keys, True) if self._free_topics() else {}

    def _free_topics(self) -> list[str]:
        """Return the topics with messages that no reader has."""
        with self._database.read() as tx:
            rows = tx.all(_WAITING)
            return [topic for topic, holder, until in rows if holder is None or _is_free(tx, holder, until)]

    def _claim(self, topic: str, holder: str) -> int | None:
        """Become the reader of a topic and return the epoch; None if another is."""
        with self._database.write(f"topic {topic}") as tx:
            row = tx.one("SELECT epoch, holder, until FROM readers WHERE topic = ?", topic)
            if row is not None and not _is_free(tx, *row[1:]):
                return None
            epoch = 1 if row is None else int(row[0]) + 1
            # With a new epoch, a reader that comes back late changes nothing any more.
            tx.run("DELETE FROM readers WHERE topic = ?", topic)
            until = tx.clock()[1] + _SILENT_S
            tx.insert("readers", {"topic": topic, "epoch": epoch, "holder": holder, "until": until})
        return epoch

    def _page(self, topic: str) -> list[Message]:
        with self._database.read() as tx:
            return [Message(topic, number, body) for number, body in tx.all(_PAGE, topic, _MESSAGES)]

    def _delivered(self, topic: str, epoch: int, number: int, *, ends: bool) -> bool:
        """Forget the messages up to this one; False if this is no longer the reader."""
        with self._database.write(f"topic {topic}") as tx:
            until = 0.0 if ends else tx.clock()[1] + _SILENT_S
            if not tx.run(_RENEW, until, topic, epoch):
                return False
            tx.run("DELETE FROM outbox WHERE topic = ? AND number <= ?", topic, number)
        return True


def _is_free(tx: Transaction, holder: str, until: float) -> bool:
    return until <= tx.clock()[1] or not tx.is_held(holder)


TOPIC = "channel.message.send"
"""The topic of the outbox, and of the bus that a bridge delivers to."""
MESSAGES = """
CREATE TABLE channel_messages (
    id TEXT PRIMARY KEY,
    number INTEGER,
    data BLOB NOT NULL,
    state TEXT,
    error TEXT NOT NULL DEFAULT '',
    queued_at REAL NOT NULL,
    settled_at REAL
);
CREATE INDEX channel_messages_time ON channel_messages (queued_at);
CREATE TABLE channel_inbound (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX channel_inbound_chat ON channel_inbound (channel, chat_id, at);
CREATE TABLE channel_replies (
    run_id TEXT PRIMARY KEY
);
"""
_ROW = (
    "SELECT id, data, COALESCE(state, CASE WHEN EXISTS (SELECT 1 FROM outbox"
    f" WHERE topic = '{TOPIC}' AND outbox.number = channel_messages.number) THEN 'queued' ELSE 'published'"
    " END) AS standing, error, queued_at, settled_at FROM channel_messages"
)
_KEPT_S = 30 * 86_400
"""Seconds that the state of a message is kept."""


@record
class ChannelMessage:
    """One message and its state."""

    id: str
    data: bytes
    """`channel`, `text` and, if given, `chatId` and `threadId`."""
    state: str
    """`queued` here, `published` on the bus, `delivered` to the service, `dead` for ever, or `retried`: dead,
    and another message has taken its place."""
    error: str
    """The reason why it is dead, and the message that replaced it."""
    queued_at: float
    settled_at: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; times as RFC 3339."""
        return json_form(self)


class ChannelMessages:
    """The messages of one database, whose migrations include `OUTBOX` and `MESSAGES`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @staticmethod
    def put(
        tx: Transaction, id: str, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> bool:
        """Queue a message; False if one with this id was queued before."""
        row = {"id": id, "data": orjson.dumps(data), "queued_at": tx.now()}
        if not tx.insert("channel_messages", row):
            return False
        body = {
            "topic": TOPIC,
            "timestamp": written(time.time()),
            "metadata": {**(metadata or {}), "messageID": id},
            "data": data,
        }
        number = Outbox.put(tx, TOPIC, orjson.dumps(body)).number
        tx.run("UPDATE channel_messages SET number = ? WHERE id = ?", number, id)
        return True

    def queue(self, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> str:
        """Queue a new message in a transaction of its own, and return its id."""
        id = new_id()
        with self._database.write() as tx:
            self.put(tx, id, data, metadata)
        return id

    def settle(self, ended: Sequence[tuple[str, str, str, bytes]]) -> None:
        """Record the ends of messages: id, state, error and data of each. Unknown ones are added."""
        with self._database.write() as tx:
            for id, state, error, data in ended:
                row = {"id": id, "data": data, "queued_at": tx.now()}
                tx.insert("channel_messages", row)
                change = (
                    "UPDATE channel_messages SET state = ?, error = ?, settled_at = ?"
                    " WHERE id = ? AND COALESCE(state, '') <> 'retried'"
                )
                tx.run(change, state, error, tx.now(), id)
            # Here, because every message passes it.
            tx.run("DELETE FROM channel_messages WHERE queued_at < ?", tx.now() - _KEPT_S)

    def find(self, id: str) -> ChannelMessage:
        """Return one message; NotFoundError."""
        for row in self._database.rows(f"{_ROW} WHERE id = ?", id):
            return ChannelMessage(*row)
        raise NotFoundError(f"there is no message {id}", hint="To see them: toolcrib messages list")

    def page(
        self, state: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[ChannelMessage]:
        """Return messages, the newest first; for the next page, `before` is the id of the last one."""
        start = float("inf") if before is None else self.find(before).queued_at
        query = (
            f"SELECT * FROM ({_ROW}) AS every WHERE (queued_at < ? OR (queued_at = ? AND id < ?))"
            " AND standing = COALESCE(?, standing) ORDER BY queued_at DESC, id DESC LIMIT ?"
        )
        rows = self._database.rows(query, start, start, before or "", state, limit)
        return [ChannelMessage(*row) for row in rows]

    def retry(self, id: str) -> str:
        """Queue a dead letter again, as a new message whose id is returned. NotFoundError, ConflictError.

        The dead letter stays: whoever has its id sees what became of it, and a question is not asked anew.
        """
        found, new = self.find(id), new_id()
        retried = "UPDATE channel_messages SET state = 'retried', error = ? WHERE id = ? AND state = 'dead'"
        with self._database.write() as tx:
            # Of two who ask at once, one takes it.
            if not tx.run(retried, f"{found.error}; sent again as {new}", id):
                raise ConflictError(f"message {id} is not a dead letter, and only these can be sent again")
            self.put(tx, new, orjson.loads(found.data))
        return new
