"""Counts the files of a folder and their lines."""

from __future__ import annotations

from pathlib import Path

SKIPPED = {".env", ".git", ".glee", ".toolcrib", ".venv", "node_modules", "__pycache__"}


def run(path: str) -> dict[str, int]:
    """Files below `path` and the lines of those that are text."""
    files = lines = 0
    for file in Path(path).rglob("*"):
        if SKIPPED.isdisjoint(file.parts) and file.is_file():
            files += 1
            data = file.read_bytes()
            if b"\0" not in data:
                lines += len(data.splitlines())
    return {"files": files, "loc": lines}
