"""The headers of a request of 2026-07-28: they repeat parts of its message for proxies.

The rules are those of MCP 2026-07-28, "Streamable HTTP": a proxy may route by the headers and the server acts
on the message, so a request in which they differ is refused.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any

from toolcrib.serve.mcp.lists import PARAM_PREFIX, ParamHeader
from toolcrib.serve.mcp.request import meta_of
from toolcrib.serve.mcp.wire import VERSION_KEY, ErrorCode, JsonRpcError

_SINGLE = frozenset(
    b"accept authorization content-type host last-event-id mcp-method mcp-name mcp-protocol-version"
    b" mcp-session-id origin".split()
)
"""Headers on which two readers could disagree if they came twice."""
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NAMED |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
"""Method to the parameter that the header Mcp-Name repeats."""
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


def single_headers(pairs: Collection[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name. Raises JsonRpcError if one that decides something comes twice."""
    headers = dict(pairs)
    if len(headers) < len(pairs):
        for name, times in Counter(name for name, _ in pairs).items():
            if times > 1 and (name in _SINGLE or name.startswith(PARAM_PREFIX)):
                raise _mismatch(f"the header {name.decode('latin-1')} comes more than once")
    return headers


def check_message(headers: Mapping[bytes, bytes], message: Mapping[str, Any]) -> None:
    """Check protocol version, method and name. Raises JsonRpcError."""
    method, params = message.get("method"), message.get("params")
    params = params if isinstance(params, dict) else {}
    version = _text(headers, b"mcp-protocol-version")
    if version is None:
        raise _mismatch("the header MCP-Protocol-Version is missing")
    declared = meta_of(params).get(VERSION_KEY)
    if declared is not None and declared != version:
        raise _mismatch("the header MCP-Protocol-Version differs from params._meta")
    if _text(headers, b"mcp-method") != method:
        raise _mismatch("the header Mcp-Method is missing or differs from the message's method")
    field = _NAMED.get(method) if isinstance(method, str) else None
    if field is not None and isinstance(value := params.get(field), str):
        name = _text(headers, b"mcp-name")
        if name is None or _decoded(name, "Mcp-Name") != value:
            raise _mismatch(f"the header Mcp-Name is missing or differs from params.{field}")


def check_params(
    headers: Mapping[bytes, bytes], declared: Iterable[ParamHeader], arguments: Mapping[str, Any]
) -> None:
    """Check the headers `Mcp-Param-*` that the input schema of a tool declares. Raises JsonRpcError."""
    for path, header in declared:
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        given = _text(headers, header)
        name = header.decode()
        if (given is None) != (value is None):
            raise _mismatch(
                f"the header {name} and the argument {'.'.join(path)} must both be there, or none"
            )
        if given is not None and not _is_same(_decoded(given, name), value):
            raise _mismatch(f"the header {name} differs from the argument {'.'.join(path)}")


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.strip(b" \t").decode("latin-1")


def _decoded(text: str, header: str) -> str:
    """Return the value of a header; one that is not plain ASCII comes as `=?base64?…?=`."""
    found = _ENCODED.fullmatch(text) if text.startswith("=?") else None
    if found is None:
        return text
    try:
        # Strict: a lenient decoder skips wrong characters, and a proxy might read another value.
        return base64.b64decode(found[1], validate=True).decode()
    except ValueError:
        raise _mismatch(f"the header {header} is not Base64 of UTF-8") from None


def _is_same(text: str, value: Any) -> bool:
    # First, because in Python a bool is an int as well.
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            # 5 and 5.0 are the same number in JSON. As floats, so would be 2**53 and 2**53 + 1.
            return (Decimal(text) if isinstance(value, int) else float(text)) == value
        except (ValueError, ArithmeticError):
            return False
    return bool(text == value)


def _mismatch(reason: str) -> JsonRpcError:
    return JsonRpcError(ErrorCode.HEADER_MISMATCH, reason)
