"""One request of an MCP client: its sender, its protocol, and the client's name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolcrib.errors import InvalidInput
from toolcrib.serve.mcp.wire import (
    CAPABILITIES_KEY,
    MODERN_VERSIONS,
    VERSION_KEY,
    ErrorCode,
    JsonRpcError,
    RequestId,
)
from toolcrib.spec import Caller
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.serve.auth import Client


class Reply(Protocol):
    """Takes the answer of one request, or None for a message that gets none."""

    def __call__(self, data: bytes | None, error: int | None = None, /) -> None:
        """Send the answer; `error` is the code if it is an error."""


@record
class Sender:
    """The sender of a message, as its transport knows it."""

    caller: str | None = None
    """`Call.caller`; None: `mcp:` and the name that the client gives itself."""
    identity: Caller | None = None
    """The caller with a token; None for this machine's own user."""
    verify: Callable[[], object] | None = None
    """Raises InvalidToken once that token is no longer valid."""


LOCAL_USER = Sender()


@dataclass(eq=False, slots=True)
class Channel:
    """The way on which a message came, and on which everything about it goes back."""

    sender: Sender | Client
    send: Callable[[bytes], None]
    """Sends a message that is not the answer: a notification, a question."""
    congested: Callable[[], bool]
    """Returns True if the client reads too slowly: progress is left out then."""
    check: Callable[[Any, Mapping[str, Any]], None] | None = None
    """Checks headers against the listed tool of a call and its arguments. Raises JsonRpcError."""
    shared: bool = True
    """True if several requests use it, so that their ids differ; False for the channel of one request."""
    wanted: str = ""
    """The host or API, of `?for=`, whose rules the lists keep."""


@dataclass(eq=False, slots=True)
class McpRequest:
    """One request whose form has been checked."""

    params: dict[str, Any]
    meta: dict[str, Any]
    """`params._meta`; empty if there is none."""
    id: RequestId
    modern: bool
    """True if it uses protocol 2026-07-28, which has an envelope in each request."""
    reply: Reply
    channel: Channel
    size: int
    """Bytes of its message."""
    key: object
    """Distinguishes the request from all others that are open."""


def meta_of(params: dict[str, Any]) -> dict[str, Any]:
    """Return `_meta` of the parameters of a request; empty if there is none."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def options_of(meta: dict[str, Any]) -> tuple[Literal["block", "pending"], str | None, bool]:
    """Return `wait`, `idempotency_key` and `dry_run` of a call. Raises JsonRpcError."""
    wait, key = meta.get("toolcrib/wait", "pending"), meta.get("toolcrib/idempotency_key")
    dry_run = meta.get("toolcrib/dry_run", False)
    wrong = ""
    if wait not in ("block", "pending"):
        wrong = 'wait must be "pending" or "block"'
    elif key is not None and (why := _bad_key(key)):
        wrong = f"idempotency_key: {why}"
    elif not isinstance(dry_run, bool):
        wrong = "dry_run must be true or false"
    if wrong:
        raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"_meta toolcrib/{wrong}")
    return wait, key, dry_run


def _bad_key(key: Any) -> str:
    if not isinstance(key, str):
        return "it must be a string"
    from toolcrib.guard.idempotency import require_key

    try:
        require_key(key)
    except InvalidInput as error:
        return error.message
    return ""


def check_envelope(meta: dict[str, Any]) -> None:
    """Check the envelope of 2026-07-28 in `params._meta`. Raises JsonRpcError."""
    version = meta.get(VERSION_KEY)
    if not isinstance(version, str):
        raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"params._meta must have {VERSION_KEY}, a string")
    if not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"params._meta must have {CAPABILITIES_KEY}, an object")
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise JsonRpcError(ErrorCode.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def caller_name(client_info: Any) -> str:
    """Return `Call.caller` for the client that describes itself so: `mcp:NAME`, or `mcp` without a name."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    return _caller_name(name) if isinstance(name, str) else "mcp"


@lru_cache(maxsize=32)
def _caller_name(name: str) -> str:
    # Only characters that cannot disturb a log or a rule.
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name[:256]).strip("-")[:64]
    return f"mcp:{plain}" if plain else "mcp"
