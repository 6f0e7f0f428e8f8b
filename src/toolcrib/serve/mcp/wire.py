"""JSON-RPC 2.0 as MCP uses it: versions, error codes, how a message is read and how an answer is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeGuard

import orjson

from toolcrib.errors import InvalidInput
from toolcrib.schema import decode_object

__all__ = [
    "BUSY",
    "CAPABILITIES_KEY",
    "CLIENT_KEY",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LATEST_SESSION_VERSION",
    "METHOD_NOT_FOUND",
    "MODERN_VERSIONS",
    "PARSE_ERROR",
    "SERVER_KEY",
    "SESSION_VERSIONS",
    "UNSUPPORTED_VERSION",
    "VERSION_KEY",
    "Refusal",
    "RequestId",
    "answer",
    "is_request_id",
    "read_batch",
    "read_message",
    "refuse",
    "to_json",
]

SESSION_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions that begin with `initialize`, oldest first."""
LATEST_SESSION_VERSION = SESSION_VERSIONS[-1]
MODERN_VERSIONS = ("2026-07-28",)
"""Protocol versions in which each request carries its version, client and capabilities in `params._meta`."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022
"""Defined by MCP 2026-07-28; `data` names what is supported and what was asked for."""
BUSY = -32000
"""From the band MCP leaves to implementations: too many requests wait already."""

RequestId = int | str
"""MCP takes strings and integers; `null` and fractions are not ids."""


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is answered with a JSON-RPC error instead of a result."""

    code: int
    message: str
    data: Any = None
    request_id: RequestId | None = None
    """Only needed where the request could not be read far enough to have been given its id."""


def is_request_id(value: Any) -> TypeGuard[RequestId]:
    """Whether MCP takes this as the id of a request."""
    kind = type(value)
    return kind is int or kind is str


def read_message(line: bytes) -> dict[str, Any]:
    """One message; Refusal where it is not JSON, not an object, or ambiguous (equal keys, huge integers)."""
    try:
        return decode_object(line)
    except InvalidInput as error:
        reason = error.message
        told = "; ".join(f"{path} {message}" for path, message in error.violations)
    except RecursionError:
        reason, told = "the message is nested too deeply", ""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Refusal(PARSE_ERROR, f"the message is not JSON in UTF-8: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(INVALID_REQUEST, "a message must be a JSON object")
    request_id = value.get("id")
    message = f"the message is ambiguous JSON: {told}" if told else reason
    raise Refusal(INVALID_REQUEST, message, None, request_id if is_request_id(request_id) else None)


def read_batch(line: bytes) -> list[Any]:
    """The messages of a batch, which only protocol 2025-03-26 knows; checked like `read_message`."""
    # As a member of an object the array passes the same check; a line such as `[],"x":1` would add a key.
    wrapped = read_message(b'{"batch":' + line + b"}")
    batch = wrapped["batch"]
    if len(wrapped) != 1 or not isinstance(batch, list):
        raise Refusal(PARSE_ERROR, "the message is not JSON")
    if not batch:
        raise Refusal(INVALID_REQUEST, "a batch must not be empty")
    return batch


def answer(request_id: RequestId | None, result: Any) -> bytes:
    """A success, as one line without its end."""
    return to_json({"jsonrpc": "2.0", "id": request_id, "result": result})


def refuse(request_id: RequestId | None, refusal: Refusal) -> bytes:
    """An error, as one line without its end."""
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return to_json({"jsonrpc": "2.0", "id": request_id, "error": error})


def to_json(message: Any) -> bytes:
    """JSON in UTF-8, whatever a tool put in: lone surrogates are replaced, unknown objects become their text.

    Raises ValueError or TypeError where even that fails (cycles, keys that are no JSON keys).
    """
    try:
        return orjson.dumps(message)
    except TypeError:
        pass
    text = json.dumps(message, ensure_ascii=False, default=str)
    plain = json.loads(text, parse_constant=lambda _: None)  # NaN and infinities are null, as in orjson
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
