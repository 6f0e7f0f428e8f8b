"""The code that settings start: which files count, whoever names them."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from toolcrib.project import load_config

CODE = {
    "sh -o errexit s.sh": {"s.sh"},
    "python3 -W ignore s.py --db-path data/x.db": {"s.py"},
    "env sh s.sh": {"s.sh"},
    "timeout 5 python3 s.py": {"s.py"},
    "python3 -m scripts.x": {"scripts/x.py"},
    "sh -c 'sh s.sh'": {"s.sh"},
    "awk -f p.awk data/x.db": {"p.awk"},
    "make -f build.mk": {"build.mk"},
    "./run data/x.db": {"run"},
    "sh lib/s.sh": {"lib/s.sh", "lib/part.txt"},
    "pass show": set(),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    for name in (
        "s.sh", "s.py", "scripts/x.py", "p.awk", "build.mk", "run", "data/x.db", "lib/s.sh", "lib/part.txt",
        "lib/__pycache__/x.pyc", ".toolcrib/x",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    return root


def digest(root: Path) -> str:
    return load_config(root / ".toolcrib/config.yml", root).digest


@pytest.mark.parametrize("line", CODE)
@pytest.mark.parametrize("where", ["server", "shared", "helper"])
def test_the_digest_of_the_settings_changes_with_each_file_of_the_code(
    root: Path, line: str, where: str
) -> None:
    command, *args = argv = shlex.split(line)
    entry = {"command": command, "args": args}
    settings = {
        "server": {"mcp_servers": {"x": entry}},
        "shared": {},
        "helper": {"secrets": {"sources": [{"command": {"argv": argv}}]}},
    }
    (root / ".toolcrib/config.yml").write_text(json.dumps(settings[where]))
    if where == "shared":
        (root / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": entry}}))
    before = digest(root)
    changing = set()
    for file in (
        one for one in root.rglob("*") if one.is_file() and one.name not in ("config.yml", ".mcp.json")
    ):
        file.write_text("changed\n")
        if digest(root) != before:
            changing.add(str(file.relative_to(root)))
        file.write_text("x\n")
    # A server may write the data that it names; a helper only reads.
    assert changing == CODE[line] | ({"data/x.db"} if where == "helper" and "data/x.db" in line else set())
    assert digest(root) == before


def test_a_pipe_or_a_link_in_place_of_a_missing_script_changes_the_digest(root: Path) -> None:
    (root / ".toolcrib/config.yml").write_text(
        json.dumps({"mcp_servers": {"x": {"command": "sh", "args": ["missing"]}}})
    )
    before = digest(root)
    place = root / "missing"
    os.mkfifo(place)
    assert digest(root) != before
    place.unlink()
    place.symlink_to("/dev/stdin")
    assert digest(root) != before
    place.unlink()
    assert digest(root) == before


def test_the_digest_is_the_same_in_every_folder_and_for_every_program_outside(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".toolcrib/config.yml").write_text("secrets: {sources: [{command: {argv: [env, ./run]}}]}")
    (root / "run").chmod(0o755)
    other = tmp_path_factory.mktemp("other").resolve() / "clone"
    root.rename(other)
    there = digest(other)
    other.rename(root)
    assert there == digest(root)


def test_a_program_that_path_finds_in_the_project_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "run").chmod(0o755)
    (root / ".toolcrib/config.yml").write_text("secrets: {sources: [{command: {argv: [run]}}]}")
    monkeypatch.setenv("PATH", f"{root}:/usr/bin")
    before = digest(root)
    (root / "run").write_text("changed\n")
    assert digest(root) != before
