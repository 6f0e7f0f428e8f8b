"""A run with everything that happened in it, for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from toolcrib.runs.sessions import Run, RunStore, StoredMessage

_CALLS = (
    "SELECT calls.id, calls.state, calls.attempts, calls.ended_at,"
    " (SELECT MIN(began_at) FROM call_attempts WHERE call_attempts.call_id = calls.id) FROM calls"
    " JOIN run_uses ON run_uses.call_id = calls.id WHERE run_uses.run_id = ?"
)


def timeline(store: RunStore, run: Run) -> dict[str, Any]:
    """Return a run as JSON with `iterations`: model, usage, times, `text` of the answer, `calls`."""
    texts = {
        message.iteration: _text(message)
        # Also what a retry has replaced: those iterations are shown, marked by `live`.
        for message in store.messages(run.id, every=True)
        if message.kind == "response" and message.iteration
    }
    calls = {row[0]: row for row in store.database.rows(_CALLS, run.id)}
    children = {child.id: child for child in store.tree(run.id)}
    uses: dict[int, list[dict[str, Any]]] = {}
    for use in store.uses(run.id):
        shown: dict[str, Any] = {"name": use.name, "arguments": _arguments(use.arguments)}
        if use.call_id in calls:
            _, state, attempts, ended_at, began_at = calls[use.call_id]
            shown |= {"call": use.call_id, "state": state, "attempts": attempts}
            shown |= {"began_at": began_at, "ended_at": ended_at}
        elif use.child_id in children:
            child = children[use.child_id]
            shown |= {"run": child.id, "agent": child.agent, "state": child.state}
            shown |= {"began_at": child.created_at, "ended_at": child.ended_at}
        else:
            shown |= {"state": "refused", "answer": use.answer}
        uses.setdefault(use.iteration, []).append(shown)
    iterations = [
        {
            **asdict(one),
            "live": bool(one.live),
            "text": texts.get(one.number, ""),
            "calls": uses.get(one.number, []),
        }
        for one in store.iterations(run.id)
    ]
    return {**run.document, "iterations": iterations}


def _text(message: StoredMessage) -> str:
    parts = json.loads(message.content)["parts"]
    return "".join(part["content"] for part in parts if part.get("part_kind") == "text")


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
