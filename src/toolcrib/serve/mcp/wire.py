"""JSON-RPC 2.0 as MCP uses it: versions, error codes, reading and writing of messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeGuard

import orjson

from toolcrib.errors import InvalidInput, ToolcribError, UnavailableError
from toolcrib.schema import decode_object

SESSION_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions that begin with `initialize`, oldest first."""
LATEST_SESSION_VERSION = SESSION_VERSIONS[-1]
MODERN_VERSIONS = ("2026-07-28",)
"""Protocol versions in which each request carries its version, client and capabilities in `params._meta`."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
UNTRUSTED_KEY = "toolcrib/untrusted"
"""The number of tools that a list lacks because they wait until a person trusts them."""

_MOST_MESSAGES = 1_000
RequestId = int | str
"""MCP takes strings and integers; `null` and fractions are not ids."""


class ErrorCode(IntEnum):
    """Codes of JSON-RPC 2.0 errors."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    HEADER_MISMATCH = -32020
    """Defined by MCP 2026-07-28: a header of HTTP does not agree with the message."""
    CAPABILITY_MISSING = -32021
    """Defined by MCP 2026-07-28; `data.requiredCapabilities` names what the client would have to support."""
    UNSUPPORTED_VERSION = -32022
    """Defined by MCP 2026-07-28; `data` names the supported versions and the requested one."""
    NO_RESOURCE = -32002
    """Sessions only: there is no resource of this URI."""
    URL_NEEDED = -32042
    """Sessions only: the client's user must visit the addresses in `data.elicitations` before the call."""
    BUSY = -32000
    """From the range that MCP leaves to implementations: too many requests wait already."""


@dataclass(eq=False)
class JsonRpcError(Exception):
    """A request that is answered with a JSON-RPC error instead of a result."""

    code: int
    message: str
    data: Any = None
    request_id: RequestId | None = None
    """Set only if the message could not be read completely, but its id could."""


def mounted_error(error: ToolcribError) -> JsonRpcError | None:
    """Return the error that a mounted server answered, with its code and data; None for any other."""
    found = error.details.get("mcpError")
    return JsonRpcError(found["code"], error.message, found["data"]) if found else None


def busy(message: str, hint: str) -> JsonRpcError:
    """Return the error of a request that may succeed later."""
    error = UnavailableError(message, hint=hint, retryable=True)
    return JsonRpcError(ErrorCode.BUSY, message, {"error": error.as_dict()})


def is_request_id(value: Any) -> TypeGuard[RequestId]:
    """Return True if MCP allows this value as the id of a request."""
    # `isinstance` would also accept true and false: in Python they are integers.
    kind = type(value)
    return kind is int or kind is str


def read_message(line: bytes) -> dict[str, Any]:
    """Return one message.

    Raises JsonRpcError if it is not JSON, not an object, or ambiguous (equal keys, huge integers).
    """
    try:
        return decode_object(line)
    except InvalidInput as error:
        violations = "; ".join(f"{path} {message}" for path, message in error.violations)
        reason = f"the message is ambiguous JSON: {violations}" if violations else error.message
    except RecursionError:
        reason = "the message is nested too deeply"
    try:
        # Read once more without the strict rules, to answer with the right code and the message's id.
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        message = f"the message is not JSON in UTF-8: {error}"
        raise JsonRpcError(ErrorCode.PARSE_ERROR, message) from None
    if not isinstance(value, dict):
        raise JsonRpcError(ErrorCode.INVALID_REQUEST, "a message must be a JSON object")
    request_id = value.get("id")
    known = request_id if is_request_id(request_id) else None
    raise JsonRpcError(ErrorCode.INVALID_REQUEST, reason, None, known)


def read_batch(line: bytes) -> list[Any]:
    """Return the messages of a batch, checked as `read_message` checks one."""
    # As a member of an object the array passes the same check; a line such as `[],"x":1` would add a key.
    wrapped = read_message(b'{"batch":' + line + b"}")
    batch = wrapped["batch"]
    if len(wrapped) != 1 or not isinstance(batch, list):
        raise JsonRpcError(ErrorCode.PARSE_ERROR, "the message is not JSON")
    if not 0 < len(batch) <= _MOST_MESSAGES:
        raise JsonRpcError(ErrorCode.INVALID_REQUEST, f"a batch has 1 to {_MOST_MESSAGES:,} messages")
    return batch


def answer(request_id: RequestId, result: Any) -> bytes:
    """Return a successful answer as one line without its end."""
    return to_json({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_answer(request_id: RequestId | None, error: JsonRpcError) -> bytes:
    """Return an error as one line without its end."""
    described: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        described["data"] = error.data
    return to_json({"jsonrpc": "2.0", "id": request_id, "error": described})


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Return a notification as one line without its end."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return to_json(message if params is None else message | {"params": params})


def to_json(message: Any) -> bytes:
    """Return JSON in UTF-8. Lone surrogates are replaced, unknown objects become their text.

    Raises ValueError or TypeError for cycles, and for keys that are not JSON keys.
    """
    try:
        return orjson.dumps(message)
    except TypeError:
        pass
    # orjson refuses lone surrogates and integers beyond 64 bit; the standard library writes them.
    text = json.dumps(message, ensure_ascii=False, default=str)
    plain = json.loads(text, parse_constant=lambda _: None)  # NaN and infinities are null, as in orjson
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
