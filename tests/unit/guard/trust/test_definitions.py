"""Reviewed definitions of an MCP server's tools, and what differs from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolcrib.guard import ReviewedDefinitions, differences
from toolcrib.state import Vault

FIND: dict[str, Any] = {"name": "find", "description": "Find.", "inputSchema": {"type": "object"}}


def test_asking_makes_nothing_on_disk(tmp_path: Path) -> None:
    pins = ReviewedDefinitions(Vault(tmp_path, tmp_path / "data"), "srv", "one")
    assert (pins.seen(), pins.reviewed()) == ({}, {})
    assert not (tmp_path / "data").exists()


def test_seen_and_reviewed_are_apart_and_only_of_that_server(tmp_path: Path) -> None:
    vault = Vault(tmp_path, tmp_path / "data")
    pins = ReviewedDefinitions(vault, "srv", "one")
    pins.see({"find": FIND})
    assert pins.seen() == {"find": FIND}
    assert pins.reviewed() == {}
    pins.accept({"find": FIND})
    pins.see({})
    assert ReviewedDefinitions(vault, "srv", "one").reviewed() == {"find": FIND}
    assert ReviewedDefinitions(vault, "srv", "two").reviewed() == {}
    assert ReviewedDefinitions(vault, "other", "one").reviewed() == {}


def test_a_damaged_file_or_a_link_reviews_nothing(tmp_path: Path) -> None:
    vault = Vault(tmp_path, tmp_path / "data")
    pins = ReviewedDefinitions(vault, "srv", "one")
    pins.accept({"find": FIND})
    file = vault.path / "mcp" / "srv.reviewed.json"
    text = file.read_text()
    for damaged in (text[:-5], "[]", '{"server": "one", "tools": []}', "[" * 100_000, ""):
        file.write_text(damaged)
        assert pins.reviewed() == {}
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(text)
    file.unlink()
    file.symlink_to(elsewhere)
    assert pins.reviewed() == {}


def test_differences_are_told_one_by_one_and_short() -> None:
    new = {
        **FIND,
        "description": "x" * 1_000,
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
    told = differences(FIND, new)
    assert told[0] == 'annotations: nothing → {"readOnlyHint": true}'
    assert told[1].startswith('description: "Find." → "xxx')
    assert told[1].endswith("x…")
    assert told[2] == 'inputSchema: /properties nothing → {"a": {"type": "string"}}'
    assert all(len(line) < 400 for line in told)
    assert differences(FIND, dict(FIND)) == []
    hidden = differences(FIND, {**FIND, "description": "Find\u200b."})
    assert hidden == ['description: "Find." → "Find\\u200b."']
