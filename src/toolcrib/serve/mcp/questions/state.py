"""The state of a call that continues in a later request, sealed so that a client cannot change it.

It is signed and not encrypted, and holds for one caller, one tool and one set of arguments. Every server with
the same key accepts it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import orjson

from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError

_LASTS_S = 24 * 3600
_LONGEST = 256 << 10
_SIZE = hashlib.sha256().digest_size


class StateSeal:
    """Seals and opens states. They hold for a day by the clock, which all machines share."""

    def __init__(self, key: bytes) -> None:
        # A key for this purpose alone: another use of the same secret never makes a valid seal.
        self._key = hmac.digest(key, b"toolcrib mcp request state", "sha256")

    def seal(self, state: dict[str, Any], about: bytes) -> str:
        """Return the text of a state for the call that `about` describes."""
        data = orjson.dumps([int(time.time()) + _LASTS_S, state])
        return base64.urlsafe_b64encode(self._mac(data, about) + data).decode()

    def open(self, text: str, about: bytes) -> dict[str, Any]:
        """Return the state in a text. Raises JsonRpcError if it was changed, is old or of another call."""
        try:
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        mac, data = raw[:_SIZE], raw[_SIZE:]
        # Before anything in it is parsed, and in constant time: the text comes from the client.
        if len(raw) > _LONGEST or not hmac.compare_digest(mac, self._mac(data, about)):
            raise _refused("requestState was changed, or is of another call")
        ends, state = orjson.loads(data)
        if ends < time.time():
            raise _refused("requestState is too old")
        return state  # type: ignore[no-any-return] # what `seal` was given

    def _mac(self, data: bytes, about: bytes) -> bytes:
        # Without the length, bytes could move from one part to the other under the same seal.
        return hmac.digest(self._key, len(about).to_bytes(8, "big") + about + data, "sha256")


def _refused(reason: str) -> JsonRpcError:
    return JsonRpcError(ErrorCode.INVALID_PARAMS, f"{reason}: make the call again without it")
