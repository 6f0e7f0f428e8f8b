"""Trusted definitions of an MCP server's tools, and what differs from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolcrib.guard import Ledger
from toolcrib.guard.trust.definitions import ServerTrust, differences
from toolcrib.state import Vault

FIND: dict[str, Any] = {"name": "find", "description": "Find.", "inputSchema": {"type": "object"}}


def server(vault: Vault, name: str = "srv", identity: str = "one") -> ServerTrust:
    return ServerTrust(vault, Ledger(vault), name, identity)


def test_asking_makes_nothing_on_disk(tmp_path: Path) -> None:
    known = server(Vault(tmp_path, tmp_path / "data"))
    assert (known.seen(), known.trusted()) == ({}, {})
    assert not (tmp_path / "data").exists()


def test_seen_and_trusted_are_apart_and_only_of_that_server(tmp_path: Path) -> None:
    vault = Vault(tmp_path, tmp_path / "data")
    known = server(vault)
    known.see({"find": FIND})
    assert known.seen() == {"find": FIND}
    assert known.trusted() == {}
    Ledger(vault).accept([known.row({"find": FIND}, None)], "ann", "terminal")
    known.see({})
    assert server(vault).trusted() == {"find": FIND}
    assert server(vault, identity="two").trusted() == {}
    assert server(vault, "other").trusted() == {}


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
