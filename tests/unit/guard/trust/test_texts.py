"""The texts that a person reads before trusting a tool."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.guard import Ledger, ToolDigest, Trusted, TrustedTexts, shown
from toolcrib.manifest import SourceFiles
from toolcrib.spec import FileExec, Source, Tool
from toolcrib.state import Vault


def tool(raw: bytes) -> Tool:
    source = Source("native", "/p/tools/t/tool.yml", raw, hashlib.sha256(raw).hexdigest())
    return Tool("t", "D.", "file", {"type": "object"}, FileExec("read", "x"), source=source)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(Vault(tmp_path / "project", tmp_path / "data"))
    yield ledger
    ledger.close()


@pytest.fixture
def texts(tmp_path: Path, ledger: Ledger) -> TrustedTexts:
    root = tmp_path / "project"
    return TrustedTexts(Vault(root, tmp_path / "data"), ledger, SourceFiles((str(root),)))


def sha256(one: Tool) -> str:
    assert one.source is not None
    return one.source.sha256


def test_a_new_manifest_is_shown_as_a_file(texts: TrustedTexts) -> None:
    assert texts.manifest(tool(b"a\nb\n"), None) == ["tool.yml:", "    1 | a", "    2 | b"]


def test_a_changed_manifest_is_shown_as_a_diff_with_every_character(
    texts: TrustedTexts, ledger: Ledger
) -> None:
    old = tool(b"a\nb\n")
    digest = ToolDigest("0" * 64, {"manifest": sha256(old)})
    ledger.accept([Trusted("tool:t", "0" * 64)], "ann", "terminal", texts.of(old, digest))
    new = tool("a\nb\u202e\x1b[0m\u2028\n".encode() + b"\xff\n")
    lines = texts.manifest(new, sha256(old))
    assert lines[:2] == ["--- trusted/tool.yml", "+++ now/tool.yml"]
    assert lines[3:] == [" a", "-b", "+b\\u202e\\x1b[0m\\u2028", "+\\xff"]


def test_without_the_earlier_text_the_manifest_is_shown_whole(texts: TrustedTexts) -> None:
    assert texts.manifest(tool(b"a\n"), "0" * 64) == ["tool.yml:", "    1 | a"]


def test_every_character_that_steers_is_shown_as_its_escape() -> None:
    assert shown("a\tb\nc é 天") == "a\tb\nc é 天"
    assert shown("\u2764\ufe0f 1\ufe0f\u20e3") == "\u2764\ufe0f 1\ufe0f\u20e3"
    hidden = "\ufe00\ufe0f\U000e0100\u3164\u115f\u2800\u034f"  # An interpreter reads what nobody sees.
    assert shown(f"a{hidden}") == "a\\ufe00\\ufe0f\\U000e0100\\u3164\\u115f\\u2800\\u034f"
    assert shown("\x00\x1b\x7f\x9b\u200b\U000e0041\ud800") == "\\x00\\x1b\\x7f\\x9b\\u200b\\U000e0041\\ud800"
