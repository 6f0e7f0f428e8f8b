"""Messages to people on channels: each is put into the outbox once, and its state is kept beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from toolcrib.errors import ConflictError, NotFoundError
from toolcrib.spec.identifier import new_id
from toolcrib.spec.moment import written
from toolcrib.spec.record import json_form, record
from toolcrib.state.database import Database, Transaction
from toolcrib.state.outgoing.outbox import Outbox

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
