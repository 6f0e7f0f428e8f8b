"""The snapshots on disk, and the comparison with them."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "data" / "golden"
VARIABLE = "TOOLCRIB_GOLDEN"
SHOWN = 200


def rendered(document: Any) -> str:
    """Give a snapshot as it stands in its file."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def kept(name: str) -> Any:
    """Give a snapshot that is there."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def writing() -> bool:
    """Say whether snapshots are made anew in this run."""
    return os.environ.get(VARIABLE) == "write"


def golden(name: str, document: Any) -> None:
    """Hold a document to its snapshot, or make that anew where `TOOLCRIB_GOLDEN=write` says so."""
    file = FOLDER / f"{name}.json"
    now = rendered(document)
    if writing():
        FOLDER.mkdir(exist_ok=True)
        file.write_text(now, encoding="utf-8")
        return
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before == now:
        return
    lines = list(
        difflib.unified_diff(before.splitlines(), now.splitlines(), f"golden {name}", "now", lineterm="", n=8)
    )
    more = f"\n… {len(lines) - SHOWN} lines more" if len(lines) > SHOWN else ""
    pytest.fail(
        f"{name}: what a caller sees has changed. If that is meant, run the test with {VARIABLE}=write.\n"
        + "\n".join(lines[:SHOWN])
        + more,
        pytrace=False,
    )
