"""Toolbox files with one resource a document: the same as the form with the maps."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.manifest.dialects.test_dialects import DATA, read
from toolcrib.manifest import check_tool, lint_file, read_dialect
from toolcrib.manifest.yaml.source import dump, load
from toolcrib.spec import SqlExec

DOCUMENTS = """\
# One resource a document.
kind: source
name: db
type: sqlite
database: db/shop.db
---
kind: tools
name: one
type: sqlite-sql
source: db
description: One
statement: SELECT ?
parameters:
  - name: a
    type: integer
    description: A
---
---
kind: toolset
name: all
tools:
  - one
"""


def test_one_resource_a_document_is_the_same_as_the_maps() -> None:
    path = DATA / "tools.yaml"
    maps = load(path.read_bytes(), str(path)).data
    parts = [
        {
            "kind": kind,
            "name": name,
            **({"tools": one} if kind == "toolset" else {**one, "type": one["kind"]}),
        }
        for kind in ("source", "tool", "toolset")
        for name, one in maps[f"{kind}s"].items()
    ]
    for part in parts:
        if part["kind"] != "toolset":
            part["kind"] = "source" if part["name"] in maps["sources"] else "tool"
    text = "\n---\n".join(dump(part) for part in parts)
    loaded = read_dialect("tools.yaml", text.encode())
    assert loaded.diagnostics == ()
    expected = read("tools.yaml")
    assert {tool.name: replace(tool, source=None) for tool in loaded.tools} == {
        name: replace(tool, source=None) for name, tool in expected.items()
    }


def test_a_file_of_documents_loads() -> None:
    loaded = read_dialect("tools.yaml", DOCUMENTS.encode())
    assert loaded.diagnostics == ()
    (tool,) = loaded.tools
    assert isinstance(tool.config, SqlExec)
    assert (tool.name, tool.tags, tool.config.database) == ("one", ("all",), "db/shop.db")
    assert check_tool(tool) == []


@pytest.mark.parametrize(
    ("old", "new", "place", "reported"),
    [
        ("source: db", "source: dbb", (10, 9), "the source 'dbb' is not in `sources`"),
        ("type: integer", "type: text", (15, 11), "`type` must be one of string"),
        ("  - one", "  - ones", (22, 5), "the file has no such tool"),
        ("name: one\n", "", (7, 1), "must be a mapping with the texts `kind` and `name`"),
        ("kind: toolset\nname: all", "kind: tool\nname: one", (20, 7), "already a tool named `one`"),
        ("  - one", "  - [one", (22, 9), ""),
        ("SELECT ?", "SELECT ${x}", (12, 12), "a placeholder cannot be used in `statement`"),
        ("kind: toolset", "kind: prompts", (19, 1), "`prompts` has no meaning here"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_one_document_is_reported_at_its_place(
    tmp_path: Path, old: str, new: str, place: tuple[int, int], reported: str
) -> None:
    path = tmp_path / "tools.yaml"
    assert old in DOCUMENTS
    path.write_text(DOCUMENTS.replace(old, new))
    found = lint_file(str(path))
    lines = path.read_text().splitlines()
    assert any(reported in one.message and (one.line, one.column) == place for one in found), found
    assert all(one.source == lines[one.line - 1] for one in found)


def test_very_many_documents_are_refused_in_bounded_time() -> None:
    started = time.process_time()
    loaded = read_dialect("tools.yaml", b"kind: tool\nname: a\n" + b"---\na: 1\n" * 100_000)
    assert time.process_time() - started < 10
    assert loaded.tools == ()
    assert loaded.diagnostics[0].is_error
