"""Stored messages in the form that pydantic-ai sends, and what its answers mean for us."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.errors import ModelFailed, ToolcribError
from toolcrib.runs.sessions import StoredMessage, Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

SUMMARISE = (
    "The conversation is about to be cut. Summarise it for yourself, so that you can continue without it:"
    " what was asked, what you have done and found out, all facts, names, numbers and ids that may still"
    " matter, what is left to do. Answer with the summary alone."
)
"""The last prompt of a conversation that is to be summarised."""
_SUMMARY = "Summary of the conversation so far, in place of its messages:\n\n"


class WantedCall(NamedTuple):
    """A call that a model asks for."""

    use_id: str
    name: str
    arguments: str
    """JSON, as the model wrote it; it may be malformed."""

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The arguments; None for anything but a JSON object."""
        try:
            found = json.loads(self.arguments)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def model_messages(stored: Sequence[StoredMessage]) -> list[ModelMessage]:
    """Return a conversation. What a user and tools say between two answers is one message."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

    found: list[ModelMessage] = []
    for message in stored:
        if message.kind in ("response", "results"):
            (made,) = ModelMessagesTypeAdapter.validate_json(b"[" + message.content + b"]")
        else:
            text = message.content.decode()
            lead = _SUMMARY if message.kind == "summary" else ""
            made = ModelRequest([UserPromptPart(lead + text)])
        # Some providers refuse two messages of one side in a row.
        before = found[-1] if found else None
        if isinstance(made, ModelRequest) and isinstance(before, ModelRequest):
            before.parts = [*before.parts, *made.parts]
        else:
            found.append(made)
    return found


def dump(response: ModelResponse) -> bytes:
    """Return a model's answer as it is stored."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    # The adapter writes lists only; without the brackets this is the one message.
    return ModelMessagesTypeAdapter.dump_json([response])[1:-1]


def wanted_calls(response: ModelResponse) -> list[WantedCall]:
    """Return the calls that a model asks for, in its order."""
    from pydantic_ai.messages import ToolCallPart

    return [
        WantedCall(part.tool_call_id, part.tool_name, part.args_as_json_str())
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]


def text_of(response: ModelResponse) -> str:
    """Return the text of an answer."""
    from pydantic_ai.messages import TextPart

    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def added_text(event: object) -> str:
    """Return the text that an event of a streamed answer adds to it."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def usage_of(response: ModelResponse, *, free: bool = False) -> Usage:
    """Return the tokens of an answer and their price, which is None if nobody knows it."""
    usage = response.usage
    cost: float | None = 0.0
    if not free:
        try:
            cost = float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):
            cost = None
    return Usage(usage.input_tokens, usage.output_tokens, cost)


def model_error(error: BaseException) -> ToolcribError:
    """Return the error for a failed model step; `retryable` if the same step may succeed later.

    `details.retryAfterS` is the time that the provider asks for.
    """
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

    # The libraries wrap what our transport raises, some of them twice.
    own = _own_error(error)
    if own is not None:
        return ModelFailed(own.message, hint=own.hint, retryable=own.retryable, details={"code": own.code})
    details: dict[str, Any] = {}
    retryable = False
    if isinstance(error, ModelHTTPError):
        details["status"] = error.status_code
        retryable = error.status_code in (408, 409, 425, 429) or error.status_code >= 500
    elif isinstance(error, ModelAPIError):
        retryable = True
    else:
        retryable = type(error).__module__.startswith(("httpx2", "httpcore", "anyio"))
    asked = getattr(error, "retry_after", None)
    if asked is not None:
        details["retryAfterS"] = float(asked)
    message = " ".join(str(error).split())[:1_000] or type(error).__name__
    return ModelFailed(message, retryable=retryable, details=details)


def _own_error(error: BaseException | None) -> ToolcribError | None:
    """Return the error of our own client that a library has wrapped."""
    seen = 0
    # Limited, because exceptions can name each other as context in a circle.
    while error is not None and seen < 10:
        if isinstance(error, ToolcribError):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None
