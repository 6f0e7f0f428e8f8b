from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcrib.guard import AuditEntry, parse
from toolcrib.guard.audit.line import GENESIS, MAX_VALUE, encode_fields

# Everything a JSON document of an agent can hold, lone surrogates and integers beyond 64 bit included.
anything = st.characters(codec=None)
texts = st.text(anything, max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
keys = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda k: k not in {"cut", "prev", "seq"})


def line_of(fields: dict[str, Any]) -> str:
    return f"[2025-01-09T15:00:10] TOOL_EXECUTED{encode_fields(fields)} seq=7 prev={GENESIS}"


def read_back(**fields: Any) -> dict[str, Any]:
    return parse(line_of(fields)).fields


def test_the_form_of_a_line_is_the_documented_one() -> None:
    fields = {"name": "weather", "params": {"location": "NYC"}, "status": "success"}
    line = (
        '[2025-01-09T15:00:10] TOOL_EXECUTED name=weather params={"location":"NYC"} status=success'
        f" seq=7 prev={GENESIS}"
    )
    assert line_of(fields) == line
    assert parse(line) == AuditEntry(
        datetime(2025, 1, 9, 15, 0, 10, tzinfo=UTC), "TOOL_EXECUTED", 7, GENESIS, fields
    )


@given(st.dictionaries(keys, json_values, max_size=5))
@example({"a": "true", "b": True, "c": "null", "d": None, "e": "1", "f": 1, "g": "1e5", "h": 1e5, "i": -0.0})
@example({"a": "x status=success", "b": ' seq=1 prev="', "c": "", "d": '"', "e": "é", "f": "\U000e0041"})
@example({"a": "\ud800", "b": {"\udfff": 2**70}, "c": "\x7f", "d": ["\u2028", "\x85"], "e": "\\u0041"})
def test_any_value_is_read_back_as_it_was(fields: dict[str, Any]) -> None:
    line = line_of(fields)
    assert parse(line).fields == fields
    assert {k: type(v) for k, v in parse(line).fields.items()} == {k: type(v) for k, v in fields.items()}
    assert parse(line.encode() + b"\n") == parse(line)


@given(st.dictionaries(keys, json_values, max_size=5))
def test_no_value_breaks_a_line_or_moves_the_cursor(fields: dict[str, Any]) -> None:
    line = line_of(fields)
    assert len(line.splitlines()) == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", line)


@given(st.text(st.sampled_from('abc =:"{}[]\\,\n\x0b]se1'), max_size=40))
def test_a_hostile_text_stays_inside_its_own_field(text: str) -> None:
    assert read_back(name=text, status="failed") == {"name": text, "status": "failed"}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("weather", "weather"),
        ("mcp:claude-code/2.0", "mcp:claude-code/2.0"),
        ("0190f7a2-1111-7abc-8def-0123456789ab", "0190f7a2-1111-7abc-8def-0123456789ab"),
        ("1.2.3", "1.2.3"),
        ("2", '"2"'),
        ("-0.5e3", '"-0.5e3"'),
        ("false", '"false"'),
        ("", '""'),
        ("two words", '"two words"'),
        ("zeile\nzwei", '"zeile\\nzwei"'),
        ("\x1b[31m\u202e", '"\\u001b[31m\\u202e"'),
        ("Ä", '"Ä"'),
        (2, "2"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        ([], "[]"),
    ],
)
def test_a_plain_word_stands_as_it_is_and_all_else_is_json(value: Any, written: str) -> None:
    assert encode_fields({"x": value}) == f" x={written}"


class Colour(StrEnum):
    RED = "red"


class Talkative:
    def __repr__(self) -> str:
        return "password=hunter2"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Talkative(), "<Talkative>"),
        ({"deep": [Talkative()]}, {"deep": ["<Talkative>"]}),
        ({Talkative(): "\ud800"}, {"<Talkative>": "\ud800"}),
        ((1, "\ud800"), [1, "\ud800"]),
        (b"bytes", "<bytes>"),
        (Path("/x"), "<PosixPath>"),
        ({3}, [3]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (MappingProxyType({"a": 2**64}), {"a": 2**64}),
        (Colour.RED, "red"),
        (float("nan"), None),
        ([float("inf"), "\ud800"], [None, "\ud800"]),
        ({1: "a", None: "b"}, {"1": "a", "<NoneType>": "b"}),
    ],
)
def test_what_is_not_json_is_recorded_as_its_type(value: Any, read: Any) -> None:
    assert read_back(x=value) == {"x": read}


def test_a_value_too_long_gives_way_to_its_digest() -> None:
    fields = read_back(name="write_file", params={"content": "x" * MAX_VALUE}, status="success")
    assert fields["cut"] == ["params"]
    assert fields["params"]["bytes"] == MAX_VALUE + len('{"content":""}')
    assert fields["params"]["head"].startswith('{"content":"xxx')
    assert len(fields["params"]["sha256"]) == 64
    assert fields["status"] == "success"
    assert len(line_of({"a": "y" * 10**6})) < 2_000


@pytest.mark.parametrize("value", [10**5000, [10**5000]], ids=["plain", "inside"])
def test_a_value_that_cannot_be_written_is_named(value: Any) -> None:
    assert read_back(x=value) == {"x": {"type": type(value).__name__}, "cut": ["x"]}


def test_a_value_nested_too_deeply_is_named() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert read_back(x=value)["cut"] == ["x"]


@pytest.mark.parametrize("key", ["seq", "prev", "cut", "Name", "a b", "a=b", "", "ä", "x\n"])
def test_a_badly_named_field_is_the_programmers_error(key: str) -> None:
    with pytest.raises(ValueError, match="lower_case"):
        encode_fields({key: 1})


TAIL = f" seq=1 prev={GENESIS}"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[2025-01-09T15:00:00] TOOL_CREATED name=weather creator=claude",
        f"[2025-01-09T15:00:00] TOOL_CREATED permissions={{network:true}}{TAIL}",
        f"[2025-13-09T15:00:00] TOOL_CREATED{TAIL}",
        f"[2025-01-09T15:00:00] tool_created{TAIL}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a name=b{TAIL}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a  b=c{TAIL}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=two words{TAIL}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name={TAIL}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=(a){TAIL}",
        f'[2025-01-09T15:00:00] TOOL_CREATED name="unfinished{TAIL}',
        f'[2025-01-09T15:00:00] TOOL_CREATED name="a"b{TAIL}',
        f"[2025-01-09T15:00:00] TOOL_CREATED name={'[' * 100_000}{TAIL}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a{TAIL} ",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a{TAIL}\n\n",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a seq=01 prev={GENESIS}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a seq=1 prev={GENESIS[1:]}",
        f"[2025-01-09T15:00:00] TOOL_CREATED name=a seq=1 seq=2 prev={GENESIS}x",
    ],
    ids=lambda line: ascii(line[22:50]),
)
def test_what_is_no_whole_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(line)


def test_invalid_utf8_is_no_line() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        parse(b"[2025-01-09T15:00:00] TOOL_CREATED name=\xff" + TAIL.encode())
