"""The results of an iteration as one message for the model, made from the rows of its calls."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from toolcrib.errors import Cancelled, ToolcribError, ToolFailed
from toolcrib.spec import Result
from toolcrib.spec.views import cut_text, error_text, text_view
from toolcrib.state import Transaction

_ROWS = (
    "SELECT run_uses.use_id, run_uses.name, run_uses.answer, calls.state, calls.result, calls.error,"
    " child.agent, child.state, child.answer, child.error FROM run_uses"
    " LEFT JOIN calls ON calls.id = run_uses.call_id LEFT JOIN runs AS child ON child.id = run_uses.child_id"
    " WHERE run_uses.run_id = ? AND run_uses.iteration = ? ORDER BY run_uses.position"
)


class UseEnd(NamedTuple):
    """The end of a call or run that another run began."""

    use_id: str
    value: Any
    """The value of the call, or the answer of the run; None if there is none."""
    error: ToolcribError | None
    """The reason why there is none: it failed, it was refused, or it was cancelled."""


def use_ends(tx: Transaction, run_id: str, iteration: int) -> list[UseEnd]:
    """Return the ends of all calls and runs of a complete iteration."""
    return [_end(row) for row in tx.all(_ROWS, run_id, iteration)]


def _end(row: tuple[Any, ...]) -> UseEnd:
    use_id, _, answer, call_state, result, error, agent, child_state, child_answer, child_error = row
    if answer is not None:
        # A workflow stores an error here; an agent stores the text for its model (`_result`).
        return UseEnd(use_id, None, ToolcribError.from_dict(json.loads(answer)))
    if call_state == "done":
        return UseEnd(use_id, Result.from_dict(json.loads(result)).value, None)
    if child_state == "done":
        return UseEnd(use_id, child_answer, None)
    if child_state is not None:
        return UseEnd(use_id, None, _of_child(agent, child_state, child_error))
    if error is not None:
        return UseEnd(use_id, None, ToolcribError.from_dict(json.loads(error)))
    return UseEnd(use_id, None, Cancelled("the call was cancelled"))


def results_message(tx: Transaction, run_id: str, iteration: int) -> bytes:
    """Return the results of all calls of an iteration, in the form of pydantic-ai.

    Each is tied to its call by the model's own id, so no output can pass for the result of another tool.
    """
    parts = [
        {
            "part_kind": "tool-return",
            "tool_name": name,
            "tool_call_id": use_id,
            "content": text,
            "outcome": "failed" if failed else "success",
        }
        for use_id, name, text, failed in (_result(row) for row in tx.all(_ROWS, run_id, iteration))
    ]
    return json.dumps({"kind": "request", "parts": parts}).encode()


def _result(row: tuple[Any, ...]) -> tuple[str, str, str, bool]:
    use_id, name, answer, call_state, result, *_ = row
    if answer is not None:
        return use_id, name, answer, True
    if call_state == "done":
        return use_id, name, text_view(Result.from_dict(json.loads(result))), False
    end = _end(row)
    if end.error is None:
        return use_id, name, cut_text(end.value or ""), False
    return use_id, name, cut_text(error_text(end.error)), True


def _of_child(agent: str, state: str, error: str | None) -> ToolcribError:
    named = agent.replace(":", " ") if agent.startswith("workflow:") else f"agent {agent}"
    if state == "cancelled" or error is None:
        return Cancelled(f"the run of {named} was cancelled")
    return ToolFailed(f"{named} failed: {json.loads(error)['message']}")
