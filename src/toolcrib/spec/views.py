"""Results as text, for a model or a person at a terminal. Pure."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.errors import ApprovalRequired, ToolcribError
from toolcrib.spec.calls.call import Result
from toolcrib.spec.calls.content import blocks_text
from toolcrib.spec.tools.tool import HINT_ASKED

TEXT_LIMIT = 50_000
"""Bytes of UTF-8 that `text_view` shows by default."""

_LEADS = {
    "cancelled": "Cancelled",
    "invalid_input": "Invalid input",
    "tool_cancelled": "Cancelled",
    "tool_not_found": "Invalid input",
}
"""First words of an error's text, by code; every other code is a failed call."""
one_lead: str | None = None
"""The first word of every error's text in this process, for agents that know only one."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def text_view(result: Result, limit: int | None = None, *, reader: bool = True) -> str:
    """Return the text of a result: its value, or `Tool call failed: …`, `Invalid input: …`, `Cancelled: …`.

    Text longer than `limit` bytes of UTF-8 (by default the tool's own limit, or 50,000) is cut there, and the
    last line says how much is missing and how to read on: by `artifact_read`, if the caller has it (`reader`)
    and the whole was kept. Warnings are not part of it: each interface shows them in its own place.
    """
    if result.status == "ok":
        text = blocks_text(result.blocks) if result.blocks else value_text(result.value)
    else:
        text = error_text(result.error or pending_error(result))
    limit = limit or result.text_limit or TEXT_LIMIT
    # A character has at most four bytes, so most texts are not encoded to be measured.
    return text if len(text) * 4 <= limit else cut_text(text, limit, artifact_of(result) if reader else None)


def value_text(value: Any) -> str:
    """Return a value as text: a string as it is, anything else as compact JSON."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return] # narrowed by `kind`, which is cheaper than isinstance
    if kind is int:
        return str(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def error_text(error: ToolcribError) -> str:
    """Return an error as text: its kind and message, one line a violation, then the hint."""
    lines = [f"{one_lead or _LEADS.get(error.code, 'Tool call failed')}: {error.message}"]
    lines += [f"- {path}: {message}" for path, message in error.violations if message not in error.message]
    if error.hint and error.hint not in error.message:
        lines.append(error.hint)
    return "\n".join(lines)


def pending_error(result: Result) -> ToolcribError:
    """Return a call that waits for a person as an error."""
    details = dict(result.details or {})
    if result.call_id:
        details["callId"] = result.call_id
    why = f": {details['reason']}" if details.get("reason") else ""
    message = f"the call waits for a person's approval{why}"
    return ApprovalRequired(message, hint=details.pop("hint", HINT_ASKED), details=details)


def artifact_of(result: Result) -> str | None:
    """Return the id of the artifact that holds the whole output of a call; None if there is none."""
    found = (result.details or {}).get("artifact")
    return found["id"] if isinstance(found, dict) and "id" in found else None


def cut_text(text: str, limit: int = TEXT_LIMIT, artifact: str | None = None) -> str:
    """Return the text cut to `limit` bytes of UTF-8, between characters, with a note on the rest.

    `artifact` is the id of the artifact that holds the whole text.
    """
    # Lone surrogates, as in file names that are not UTF-8, have no bytes of their own.
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    # `ignore` drops the part of a character that the cut leaves at the end.
    head = data[:limit].decode("utf-8", "ignore")
    shown = len(head.encode())
    more = "call again for less at a time: with an offset, range or filter, if the tool takes one"
    if artifact is not None:
        more = f"call artifact_read with id={artifact} and offset={shown}"
    return (
        f"{head}\n[cut: the first {shown:,} of {len(data):,} bytes; {len(data) - shown:,} are missing. "
        f"To read on, {more}.]"
    )
