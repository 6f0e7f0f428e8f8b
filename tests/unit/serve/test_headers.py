"""Headers that repeat arguments."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.serve.mcp.http.headers import check_params
from toolcrib.serve.mcp.wire import JsonRpcError


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("5", 5, True),
        ("5.0", 5, True),
        ("5", 5.0, True),
        ("0.1", 0.1, True),
        ("9007199254740992", 2**53, True),
        ("9007199254740993", 2**53, False),
        ("true", True, True),
        ("1", True, False),
        ("nan", 5, False),
        ("five", 5, False),
        ("", 5, False),
    ],
)
def test_a_header_repeats_the_very_value(text: str, value: Any, same: bool) -> None:
    headers, declared = {b"mcp-param-n": text.encode()}, [(("n",), b"mcp-param-n")]
    if same:
        check_params(headers, declared, {"n": value})
        return
    with pytest.raises(JsonRpcError, match="differs"):
        check_params(headers, declared, {"n": value})
