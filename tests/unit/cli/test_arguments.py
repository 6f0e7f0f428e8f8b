"""Arguments on the command line."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from toolcrib.cli.arguments import complete_tool, parse_arguments, parse_target
from toolcrib.errors import InvalidInput, UsageError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("scan", (None, "scan", None)),
        ("project/scan", ("project", "scan", None)),
        ("scan@2", (None, "scan", "2")),
        ("p/scan@2.1-rc@x", ("p", "scan", "2.1-rc@x")),
        ("名前", (None, "名前", None)),
    ],
)
def test_targets(text: str, parts: tuple[Any, ...]) -> None:
    assert parse_target(text) == parts


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "@1", "a@", "a/b/c", "a//b"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError, match="NAME"):
        parse_target(text)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (["a=1", "b=x=y", "c="], {"a": "1", "b": "x=y", "c": ""}),
        (["a:=1", "b:=[1, {}]", 'c:="x"', "d:=null"], {"a": 1, "b": [1, {}], "c": "x", "d": None}),
        (["a:b=c"], {"a:b": "c"}),
        (["a=:=5"], {"a": ":=5"}),
        (["url=http://x/?a=b&c:=d"], {"url": "http://x/?a=b&c:=d"}),
        (["a b=multi\nline"], {"a b": "multi\nline"}),
        (["ключ=значение"], {"ключ": "значение"}),
        (["a=-rf", "b=$(id)"], {"a": "-rf", "b": "$(id)"}),
    ],
)
def test_pairs(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words) == arguments


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ('a:={"b": [0, {"c": 1, "c": 2}]}', ("$.a.b[1].c", "is given twice (line 1, column 20)")),
        ('a:={"b": 1,\n "\\u0062": 2}', ("$.a.b", "is given twice (line 2, column 2)")),
        (f"a:=[0, {2**64}]", ("$.a[1]", f"the integer {2**64} does not fit in 64 bits (line 1, column 5)")),
        (
            f"a:={-(2**63) - 1}",
            ("$.a", f"the integer {-(2**63) - 1} does not fit in 64 bits (line 1, column 1)"),
        ),
    ],
)
def test_ambiguous_json_is_refused_with_its_place(word: str, found: tuple[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_arguments([word])
    assert [tuple(one) for one in caught.value.violations] == [found]
    assert found[1] in caught.value.message


def test_a_number_without_a_type_that_holds_it_is_named() -> None:
    with pytest.raises(InvalidInput, match="does not fit in 64 bits"):
        parse_arguments([f"a={2**64}"], {"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.mark.parametrize(
    "words", [["a"], ["=x"], [":=1"], ["a:=x"], ["a:="], ["a=1", "a=2"], ["a=\udcff"], ["@/no/file"]]
)
def test_what_is_no_argument(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(words)
    assert caught.value.exit_code == 2


def test_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "b": 2}')
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"b": 3, "c": 4}')))
    words = [f"@{tmp_path}/a.json", "-", "c=hand"]
    assert parse_arguments(words) == {"a": 1, "b": 3, "c": "hand"}
    with pytest.raises(UsageError, match="once"):
        parse_arguments(["-", "-"])


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1, "a": 2}', "\xff"])
def test_a_file_that_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput):
        parse_arguments([f"@{tmp_path}/a.json"])


def test_names_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = click.Context(click.Command("run"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLCRIB_ROOT", raising=False)
    parameter = click.Argument(["tool"])
    assert complete_tool(context, parameter, "") == []
    for name in ("scan", "stats", "web"):
        (tmp_path / ".toolcrib/tools" / name).mkdir(parents=True)
    (tmp_path / ".toolcrib/tools/sketch.md").write_text("")
    assert complete_tool(context, parameter, "s") == ["scan", "stats"]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "petId": {"type": "integer"},
        "max_size": {"type": "number"},
        "dry": {"type": "boolean"},
        "tags": {"type": "array"},
        "meta": {"$ref": "#/$defs/meta"},
        "code": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "level": {"enum": [1, 2]},
        "maybe": {"type": ["integer", "null"]},
        "any": {},
    },
    "$defs": {"meta": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["petId=7", "max_size=1.5"], {"petId": 7, "max_size": 1.5}),
        (["petId=01234"], {"petId": "01234"}),
        (["petId=x"], {"petId": "x"}),
        (["petId=1.5"], {"petId": "1.5"}),
        (["petId=true"], {"petId": "true"}),
        (["code=01234", "either=7", "any=7"], {"code": "01234", "either": "7", "any": "7"}),
        (["dry=true", "tags=[1]", 'meta={"a": 1}'], {"dry": True, "tags": [1], "meta": {"a": 1}}),
        (["level=2", "maybe=null"], {"level": 2, "maybe": None}),
        (['code:=["exact"]', "petId:=8"], {"code": ["exact"], "petId": 8}),
        (["--petId", "7", "--code=a=b"], {"petId": 7, "code": "a=b"}),
        (["--max-size", "-2", "--code", "--x"], {"max_size": -2, "code": "--x"}),
        (["--dry", "code=x"], {"dry": True, "code": "x"}),
        (["--dry", "false", "--petId=1"], {"dry": False, "petId": 1}),
        (["--no-dry"], {"dry": False}),
        (["--tags:=[2]"], {"tags": [2]}),
        (["--code", "a b\nc"], {"code": "a b\nc"}),
    ],
)
def test_values_have_the_types_of_the_schema(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--petID", "7"], "Did you mean --petId"),
        (["--nothing"], "no option --nothing"),
        (["--code"], "needs a value"),
        (["--petId", "1", "petId=2"], "given twice"),
        (["--no-petid"], "no option"),
    ],
)
def test_options_that_the_tool_does_not_have(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_arguments(words, SCHEMA)
