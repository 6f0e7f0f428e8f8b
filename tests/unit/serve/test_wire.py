"""Reading and writing JSON-RPC."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import orjson
import pytest

from toolcrib.serve.mcp.questions.state import StateSeal
from toolcrib.serve.mcp.wire import JsonRpcError, is_request_id, read_batch, read_message, to_json


def refused(line: bytes) -> JsonRpcError:
    with pytest.raises(JsonRpcError) as caught:
        read_message(line)
    return caught.value


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"9" * 5_000,
        b"hello",
        b'{"a":NaN}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"[" * 200_000,
    ],
)
def test_invalid_json_is_a_parse_error(line: bytes) -> None:
    assert refused(line).code == -32700


def test_a_message_that_is_no_object_is_an_invalid_request() -> None:
    for line in (b"[]", b"3", b"null", b'"x"'):
        assert refused(line).code == -32600


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":7,"a":1,"a":2}',
        b'{"id":7,"p":{"a":1,"\\u0061":2}}',
        b'{"id":7,"p":[{"a" : "x:y","a":1}]}',
        b'{"id":7,"n":18446744073709551616}',
        b'{"id":7,"n":[-9223372036854775809]}',
        b'{"id":7,"n":' + b"9" * 200 + b"}",
    ],
)
def test_ambiguous_json_is_refused_under_its_id(line: bytes) -> None:
    refusal = refused(line)
    assert (refusal.code, refusal.request_id) == (-32600, 7)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"a": "x:y", "b:c": ["::"]},
        {"n": [18446744073709551615, -9223372036854775808, 1e300, 0.5]},
        {"deep": [[[[{"a": {"a": {"a": 1}}}]]]]},
    ],
)
def test_every_other_message_is_read(message: dict[str, Any]) -> None:
    assert read_message(orjson.dumps(message)) == message


@pytest.mark.parametrize("depth", [900, 1_000, 1_020])
def test_deep_nesting_is_read_or_refused_but_never_fatal(depth: int) -> None:
    line = b'{"id":1,"a":' + b"[" * depth + b"]" * depth + b"}"
    with suppress(JsonRpcError):
        assert read_message(line)["id"] == 1


@pytest.mark.parametrize("line", [b'[],"x":1', b'[1]},{"x":2', b'[],"batch":[1]', b"[1", b"[]"])
def test_a_batch_cannot_smuggle_in_members(line: bytes) -> None:
    with pytest.raises(JsonRpcError):
        read_batch(line)


def test_a_batch_is_read() -> None:
    assert read_batch(b' [{"a":1}, 2] ') == [{"a": 1}, 2]


def test_ids_are_strings_and_integers() -> None:
    assert [is_request_id(value) for value in (1, "a", True, 1.5, None)] == [True, True, False, False, False]


def test_odd_values_are_written_somehow() -> None:
    odd = {"big": 1 << 70, "surrogate": "\ud800", "nan": float("nan"), 3: object, "ok": "é"}
    written = orjson.loads(to_json(odd).replace(b"1180591620717411303424", b"0"))
    assert written["ok"] == "é"
    assert written["nan"] is None
    assert written["surrogate"] == "?"
    assert written["3"] == "<class 'object'>"


def test_unwritable_values_are_an_error() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, {(1, 2): 3}):
        with pytest.raises((TypeError, ValueError)):
            to_json(value)


def test_the_state_of_a_request_counts_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    seal, now = StateSeal(b"key"), time.time()
    text = seal.seal({"approval": "a"}, b"call")
    assert seal.open(text, b"call") == {"approval": "a"}
    monkeypatch.setattr(time, "time", lambda: now + 86_402)
    with pytest.raises(JsonRpcError, match="is too old"):
        seal.open(text, b"call")
