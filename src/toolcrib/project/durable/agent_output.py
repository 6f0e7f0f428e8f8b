"""The output of command-line agents: JSON lines, of which three programs have a form each."""

from __future__ import annotations

import json
import re
from typing import Any

_is_session = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z").match


class AgentOutput:
    """What a command-line agent has printed so far: its session, its answer or its error.

    It reads the events of `claude -p --output-format stream-json`, of `codex exec --json` and of `gemini
    --output-format stream-json`. Other lines are passed over.
    """

    def __init__(self) -> None:
        self.session: str | None = None
        """The program's own id of the session, to go on with it."""
        self.answer: str | None = None
        self.error: str | None = None
        self._parts: list[str] = []
        self._rest = ""

    def feed(self, text: str) -> None:
        """Take the next part of the output."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._read(line)

    def end(self) -> None:
        """Take what stands after the last line break, and settle the answer."""
        self._read(self._rest)
        if self.answer is None and self._parts:
            self.answer = "".join(self._parts)

    def _read(self, line: str) -> None:
        try:
            event = json.loads(line) if line.startswith("{") else None
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        session = event.get("session_id") or event.get("thread_id")
        if isinstance(session, str) and _is_session(session):
            self.session = session
        kind = event.get("type")
        if kind == "result":
            self._result(event)
        elif kind == "message" and event.get("role") == "assistant":  # gemini: the answer in parts
            self._parts.append(str(event.get("content") or ""))
        elif kind == "item.completed":  # codex: its last message is the answer
            item = event.get("item")
            if isinstance(item, dict) and item.get("type") == "agent_message":
                self.answer = str(item.get("text") or "")
        elif kind == "turn.failed":
            self.error = _message(event)

    def _result(self, event: dict[str, Any]) -> None:
        if event.get("is_error") or event.get("status") == "error":
            self.error = _message(event)
        elif isinstance(event.get("result"), str):  # claude
            self.answer = event["result"]


def _message(event: dict[str, Any]) -> str:
    error = event.get("error") or event.get("result") or event.get("subtype") or "it does not say why"
    return str(error.get("message", error) if isinstance(error, dict) else error)
