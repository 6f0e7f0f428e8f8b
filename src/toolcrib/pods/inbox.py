"""Messages of people on channels: each begins a run of an agent, and its answer goes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from toolcrib.errors import ConflictError, ToolcribError
from toolcrib.pods.bus import RECEIVED, Bus
from toolcrib.pods.channels.channel import Inbound
from toolcrib.project import Project
from toolcrib.spec.identifier import derived_id
from toolcrib.state import DatabaseWatch, Transaction
from toolcrib.state.outgoing.outbox import ChannelMessages

_DUE = (
    "SELECT runs.id, runs.answer, runs.error, channel_inbound.channel, channel_inbound.chat_id,"
    " channel_inbound.thread_id FROM channel_inbound JOIN runs ON runs.id = channel_inbound.run_id"
    " WHERE runs.ended_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM channel_replies WHERE channel_replies.run_id = runs.id)"
    " ORDER BY runs.ended_at LIMIT 100"
)
_CONVERSATION = (
    "SELECT runs.session_id FROM channel_inbound JOIN runs ON runs.id = channel_inbound.run_id"
    " WHERE channel = ? AND chat_id = ? AND thread_id = ? ORDER BY at DESC LIMIT 1"
)


class Inbox:
    """Answers messages on channels by an agent of a project. A chat, or a thread in it, is one session."""

    def __init__(self, project: Project, agent: str) -> None:
        self._project, self._agent = project, agent
        self._database = project.calls.stored.database
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._look, self._database)
        project.agents.get(agent)  # An unknown one must not wait for the first message.

    async def run(self, bus: Bus) -> None:
        """Begin runs and send answers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(bus.consume("runs", f"{RECEIVED}.>", Inbound, self._begin))
            group.create_task(self._answer())

    async def _begin(self, messages: Sequence[tuple[str, Inbound]]) -> None:
        for key, one in messages:
            if one.text:
                await asyncio.to_thread(self.begin, key, one)

    def begin(self, key: str, message: Inbound) -> None:
        """Store the run of a message; the second time nothing, by the key of the message."""
        id = derived_id(key)
        chat = message.channel, message.chat_id, message.thread_id

        def note(tx: Transaction, run: str) -> None:
            row = dict(zip(("channel", "chat_id", "thread_id"), chat, strict=True))
            if not tx.insert("channel_inbound", {"id": id, "run_id": run, **row, "at": tx.now()}):
                raise ConflictError(f"message {id} has begun a run before")

        sessions = self._database.rows(_CONVERSATION, *chat)
        variables = {"SOURCE_CHANNEL": message.channel, "SOURCE_CHAT_ID": message.chat_id}
        caller = f"channel:{message.channel}:{message.sender}"
        try:
            self._project.runs.start(
                sessions[0][0] if sessions else None,
                self._agent,
                message.text,
                variables,
                caller=caller,
                note=note,
            )
        except ConflictError:
            return
        except ToolcribError as error:
            if error.retryable:
                raise
            self._send(f"reply {id}", message.channel, message.chat_id, message.thread_id, error.message)

    async def _answer(self) -> None:
        while True:
            await self._watch.wait("", None)
            await asyncio.to_thread(self._send_answers)

    def _look(self, keys: Sequence[str]) -> Mapping[str, bool]:
        return dict.fromkeys(keys, True) if self._database.rows(_DUE) else {}

    def _send_answers(self) -> None:
        for run, answer, error, channel, chat, thread in self._database.rows(_DUE):
            text = answer or (json.loads(error)["message"] if error else "The run was cancelled.")
            self._send(f"reply {run}", channel, chat, thread, text, run)

    def _send(
        self, key: str, channel: str, chat: str, thread: str, text: str, run: str | None = None
    ) -> None:
        data = {"channel": channel, "chatId": chat, "text": text} | ({"threadId": thread} if thread else {})
        with self._database.write() as tx:
            ChannelMessages.put(tx, derived_id(key), data, {"agentRunID": run} if run else {})
            if run is not None:
                tx.insert("channel_replies", {"run_id": run})
