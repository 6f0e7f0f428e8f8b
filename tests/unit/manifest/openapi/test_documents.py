"""Reading documents, and writing what they become: files beside each other, bad YAML, slimming, manifests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.manifest.openapi.documents import a_document, body, hold, http, imported, one, tool_of
from toolcrib.errors import ConflictError, ManifestError, NotFoundError
from toolcrib.manifest import load_tools
from toolcrib.manifest.openapi import (
    import_document,
    new_manifest,
    open_document,
    read_document,
    write_manifests,
)
from toolcrib.manifest.openapi.slim import Slimmer, size_of
from toolcrib.schema import SchemaCheck
from toolcrib.spec import Tool

YAML = """\
openapi: 3.0.3
info: {title: Shop, version: 1.0}
servers: [{url: 'https://api.example.com'}]
x-common: &common
  200: {description: fine}
paths:
  /x:
    get:
      responses:
        <<: *common
        404: {description: gone}
        404: {description: twice}
      parameters:
        - {name: on, in: query, schema: {type: integer, maximum: 99999999999999999999999}}
"""


BOMB = list(zip("abcdefghij", "bcdefghijk", strict=True))


def read(text: str | bytes) -> Any:
    return read_document(text.encode() if isinstance(text, str) else text, "/doc.yaml")


def test_numbers_beyond_64_bits_do_not_need_the_slow_parser() -> None:
    """The parser for odd YAML takes at most 4 MiB."""
    text = "openapi: 3.0.0\ninfo: {title: a, x-most: 18446744073709551616}\nx-a:\n  - 36893488147419103232\n"
    text += f"x-b: v18446744073709551616\nx-d: -9223372036854775809\nx-c: {'c' * 4 * 2**20}\npaths: {{}}\n"
    text += "x-e: [-9223372036854775808, 18446744073709551615]\n"
    data = read(text).root.object
    assert data["info"]["x-most"] == 2.0**64
    assert data["x-a"] == [2.0**65]
    assert data["x-b"] == "v18446744073709551616"
    assert data["x-d"] == -9223372036854775809.0
    assert repr(data["x-e"]) == "[-9223372036854775808, 18446744073709551615]"


def test_numbers_beyond_64_bits_are_fractions_to_the_slow_parser_too() -> None:
    schema = {"type": "integer", "enum": [2**64, -(2**63) - 1], "default": 2**64}
    text = json.dumps(one(body(schema))).replace('"title":', '"title": "twice", "title":')
    text = text.replace('"paths"', f'"x-most": 1{"0" * 400}, "paths"')
    document = read_document(text.encode(), "/doc.json")
    assert document.root.object["x-most"] is None
    (tool,) = import_document(document).tools
    assert tool.input_schema["properties"]["body"]["enum"] == [float(2**64), float(-(2**63))]
    assert Slimmer(1_000_000).slim(tool) == (tool, [])
    assert new_manifest(tool).text


@pytest.mark.parametrize("text", [".nan", "-.inf", "[.Inf, .NAN]", "{a: .inf}"])
def test_numbers_that_json_lacks_become_null(text: str) -> None:
    data = read(f"openapi: 3.0.0\nx-a: {text}\nx-b: at.info\npaths: {{}}\n").root.object
    assert "null" in json.dumps(data, allow_nan=False)
    assert data["x-b"] == "at.info"


def test_yaml_as_people_write_it() -> None:
    (tool,) = import_document(read(YAML)).tools
    hold(tool)
    assert tool.version == "1.0"
    assert list(tool.input_schema["properties"]) == ["on"]
    assert read("﻿" + YAML).version == "3.0"
    assert read(YAML.encode("utf-16")).version == "3.0"


def test_a_set_has_the_same_order_each_time() -> None:
    # A key that is there twice is for the tolerant parser, whose sets have an order by chance.
    names = sorted("abcdefghijklm")
    text = f"openapi: 3.0.0\na: 1\na: 2\nb: !!set {{{', '.join(reversed(names))}}}\n"
    assert read(text).root.value["b"] == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not an OpenAPI document"),
        ("[]", "is not an OpenAPI document"),
        ("{", "cannot be read"),
        ("a: [", "cannot be read"),
        (b"\xff\xfe\x00", "is not UTF-16"),
        (b"\xc3\x28", "is not UTF-8"),
        ("{}", "no `openapi` or `swagger` version"),
        ("swagger: 1.2", "version 1.2"),
        ("openapi: 4.0.0", "version '4.0.0'"),
        ("&a [*a]", "cannot be read"),
        (
            "a: &a [x, x]\n" + "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in BOMB),
            "cannot be read",
        ),
    ],
)
def test_what_is_no_document_says_so(text: str | bytes, why: str) -> None:
    with pytest.raises(ManifestError, match=why):
        read(text)


@pytest.mark.parametrize(
    ("expected", "version"),
    [("2.0", "2.0"), (2.0, "2.0"), ("3.0.4", "3.0"), (3.1, "3.1"), ("3.2.0", "3.2"), ("3.9.9", "3.2")],
)
def test_versions(expected: Any, version: str) -> None:
    assert read(json.dumps({"openapi": expected})).version == version


@pytest.mark.parametrize("paths", [None, [], "x", {"/a": None}, {"/a": []}, {"x-a": {"get": {}}}])
def test_odd_paths_are_no_reason_to_stop(paths: Any) -> None:
    found = imported(a_document(paths=paths))
    assert not found.tools
    assert all(made.reason for made in found.operations)


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return folder / next(iter(files))


def test_references_to_files_beside_it(tmp_path: Path) -> None:
    root = a_document(paths={"/x": {"$ref": "paths/x.json"}, "/y": {"$ref": "paths/x.json"}})
    item = {
        "parameters": [{"$ref": "../parts.json#/parameters/0"}],
        "post": body({"$ref": "../parts.json#/thing"}),
    }
    parts = {
        "parameters": [{"name": "q", "in": "query", "schema": {"$ref": "#/word"}}],
        "thing": {"type": "array", "items": {"$ref": "#/thing"}},
        "word": {"type": "string", "enum": ["a"]},
    }
    path = write(tmp_path / "api", {"api.json": root, "paths/x.json": item, "parts.json": parts})
    found = import_document(open_document(path))
    assert [tool.name for tool in found.tools] == ["post_x", "post_y"]
    for tool in found.tools:
        hold(tool)
        assert set(tool.input_schema["$defs"]) == {"word", "thing"}


def test_an_operation_may_be_a_reference(tmp_path: Path) -> None:
    paths = {
        "/x": {"get": {"$ref": "ops/list.yml"}, "post": {"$ref": "ops/gone.yml"}},
        "/y": {
            "get": {"$ref": ".env.json"},
            "post": {"$ref": "ops/notes.txt"},
            "put": {"$ref": ".git/x.json"},
        },
    }
    listing = {
        "operationId": "list_x",
        "parameters": [{"name": "q", "in": "query", "schema": {"type": "string"}}],
    }
    secret = {"operationId": "s3cr3t"}
    files = {
        "api.json": a_document(paths=paths),
        "ops/list.yml": listing,
        ".env.json": secret,
        "ops/notes.txt": secret,
        ".git/x.json": secret,
    }
    counted: list[int] = []
    found = import_document(open_document(write(tmp_path / "api", files)), progress=counted.append)
    assert [tool.name for tool in found.tools] == ["list_x"]
    assert list(found.tools[0].input_schema["properties"]) == ["q"]
    reasons = {f"{one.method} {one.path}": one.reason for one in found.skipped}
    assert "not there" in reasons["POST /x"]
    for place in ("GET /y", "POST /y", "PUT /y"):
        assert "is hidden, or no YAML or JSON file" in reasons[place]
    assert "s3cr3t" not in str(found.as_json())
    assert counted == [1, 2, 3, 4, 5]


def test_a_document_may_be_in_very_many_files(tmp_path: Path) -> None:
    paths = {f"/{number}": {"get": {"$ref": f"ops/{number}.json"}} for number in range(1_100)}
    files = {f"ops/{number}.json": {"operationId": f"get_{number}"} for number in range(1_100)}
    found = import_document(
        open_document(write(tmp_path / "api", {"api.json": a_document(paths=paths), **files}))
    )
    assert (len(found.tools), found.skipped) == (1_100, [])


def test_references_never_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"type": "integer"}')
    folder = tmp_path / "api"
    folder.mkdir()
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    os.mkfifo(folder / "pipe.json")
    refs = [
        "../secret.json",
        "link.json",
        str(tmp_path / "secret.json"),
        "http://127.0.0.1:1/x",
        "pipe.json",
        "a\0b",
        "no",
    ]
    schema = {"type": "object", "properties": {f"p{at}": {"$ref": ref} for at, ref in enumerate(refs)}}
    path = write(folder, {"api.json": one(body(schema))})
    found = import_document(open_document(path))
    assert len(found.losses) == len(refs)
    assert all(rule == {} for rule in found.tools[0].input_schema["properties"].values())
    with pytest.raises(NotFoundError):
        open_document(folder / "nothing.json")
    with pytest.raises(ManifestError, match="is not a file"):
        open_document(folder / "pipe.json")


def test_references_in_a_circle_end() -> None:
    components = {
        "parameters": {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}
    }
    found = imported(one({"parameters": [{"$ref": "#/components/parameters/a"}]}, components=components))
    assert "circle" in found.operations[0].reason


# Slimming


def large() -> Tool:
    schemas = {
        f"S{at}": {
            "type": "object",
            "required": ["v"],
            "description": "d" * 300,
            "properties": {
                "v": {"type": "integer", "example": 5, "description": "the value " * 20},
                "next": {"$ref": f"#/components/schemas/S{at + 1}"},
                "either": {"oneOf": [{"$ref": f"#/components/schemas/S{at + 1}"}, {"type": "integer"}]},
                "never": {"not": {"$ref": f"#/components/schemas/S{at + 1}"}},
            },
        }
        for at in range(30)
    }
    schemas["S30"] = {"type": "string"}
    answers = {
        "200": {
            "description": "",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}},
        }
    }
    wanted = body({"type": "array", "items": {"$ref": "#/components/schemas/S0"}})
    return tool_of(one({**wanted, "responses": answers}, components={"schemas": schemas}))


@pytest.mark.parametrize("limit", [20_000, 12_000, 6_000, 2_000, 700, 200])
def test_a_slim_schema_is_smaller_and_lets_in_all_that_the_whole_one_does(limit: int) -> None:
    whole = large()
    slim, lost = Slimmer(limit).slim(whole)
    hold(slim)
    assert lost[0].startswith("input schema: ")
    assert size_of(slim.input_schema) <= limit
    value: Any = {"v": 1}
    for _ in range(12):
        value = {"v": 1, "next": value, "either": value, "never": "x"}
        assert SchemaCheck(whole.input_schema).is_valid({"body": [value]})
        assert SchemaCheck(slim.input_schema).is_valid({"body": [value]})
    assert not SchemaCheck(slim.input_schema).is_valid({"body": 1})
    assert http(slim) == http(whole)


def test_what_is_small_enough_stays_as_it_is() -> None:
    whole = large()
    exact = max(size_of(schema) for schema in (whole.input_schema, whole.output.schema))
    assert Slimmer(exact).slim(whole) == (whole, [])
    slim, lost = Slimmer(exact - 1).slim(whole)
    assert lost
    assert slim != whole


# Manifests


def test_what_is_written_is_read_back_as_the_same_tool(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["no", "017", None, 1.0, "\u2028", "${x}", "<<"]}},
    }
    operation = {
        **body({**schema, "required": ["a"]}, "multipart/form-data"),
        "parameters": [
            {"name": "c", "in": "cookie", "schema": {"type": "array"}},
            {"name": "m", "in": "path", "style": "matrix", "required": True, "schema": {"type": "string"}},
        ],
        "security": [{"k": [], "b": []}],
    }
    schemes = {
        "k": {"type": "apiKey", "in": "cookie", "name": "s"},
        "b": {"type": "http", "scheme": "basic"},
    }
    document = one(operation, path="/x/{m}/${y}", components={"securitySchemes": schemes})
    tool = tool_of(document)
    ready = new_manifest(tool, "doc.json\nevil: true")
    (written,) = write_manifests([ready], tmp_path / "tools")
    loaded = load_tools(tmp_path / "tools")
    assert loaded.diagnostics == ()
    (back,) = loaded.tools
    assert written == tmp_path / "tools" / tool.name / "tool.yml"
    for name in (
        "name",
        "description",
        "input_schema",
        "config",
        "permissions",
        "annotations",
        "auth",
        "version",
    ):
        assert getattr(back, name) == getattr(tool, name), name


def test_a_manifest_too_large_for_the_format_is_slimmed_and_reported() -> None:
    schema = {"type": "object", "properties": {f"p{at}": {"description": "x" * 5_000} for at in range(290)}}
    ready = new_manifest(tool_of(one(body(schema))))
    assert len(ready.text) < 1 << 20
    assert "left out" in ready.notes[0]


def test_taken_names_change_nothing_unless_replaced(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    drafts = [
        new_manifest(tool)
        for tool in imported(a_document(paths={"/a": {"get": {}}, "/b": {"get": {}}})).tools
    ]
    (tools / "get_b").mkdir(parents=True)
    (tools / "get_b" / "notes.txt").write_text("mine")
    (tools / "get_b" / "tool.yml").write_text("old")
    with pytest.raises(ConflictError, match="get_b"):
        write_manifests(drafts, tools)
    assert [path.name for path in tools.iterdir()] == ["get_b"]
    counted: list[int] = []
    write_manifests(drafts, tools, counted.append, replace=True)
    assert counted == [*range(1, len(drafts) + 1)]
    assert sorted(path.name for path in tools.iterdir()) == ["get_a", "get_b"]
    assert (tools / "get_b" / "notes.txt").read_text() == "mine"
    assert [tool.name for tool in load_tools(tools).tools] == ["get_a", "get_b"]
