"""Folders that a server may write because its command line names them, and those that it never may."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from toolcrib.executors.mcp.process.local import grants_of, with_data
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, read_server

FILES = (
    "data/x.db", "docs/a.md", "deep/er/k", "src/s.py", "lib/k", "env/pyvenv.cfg", "env/bin/serve",
    ".hidden/x.db", ".git/x.db", ".toolcrib/scratch/k", "node_modules/k", "settings/key.json", "tools/x.yml",
)  # fmt: skip
LINES = {
    "serve --db-path data/x.db": ["data"],
    "serve --db-path=data/x.db": ["data"],
    "serve --db-path data/later.SQLITE": ["data"],
    "serve docs data/x.db": ["docs", "data"],
    "serve docs/../data": ["data"],
    "serve ROOT/docs": ["docs"],
    "serve deep/er": ["deep/er"],
    "python3 src/s.py docs": ["docs"],
    "python3 -I -m module docs": ["docs"],
    "npx -y not-downloaded docs": ["docs"],
    "uvx not-downloaded --db-path data/x.db": ["data"],
    "serve x.db": [],
    "serve .": [],
    "serve docs/a.md settings/key.json": [],
    "serve gone/x.db": [],
    "serve ../outside / /etc OUTSIDE/x.db": [],
    "serve link linked/x.db": [],
    "serve .hidden .hidden/x.db .git .git/x.db .toolcrib .toolcrib/scratch node_modules": [],
    "serve tools": [],
    "serve https://example.com/x.db": [],
    "env/bin/serve env env/bin": [],
    "python3 src/s.py src": [],
    "python3 -X docs": [],
    "ruby -I lib gone.rb": [],
    "sh -c 'serve docs' docs": [],
}


REASONS = {
    "serve data/x.db": None,
    "serve --verbose later gone.txt https://example.com/x.db": None,
    "serve x.db": "x.db: the root stays read-only",
    "serve .": ".: the root stays read-only",
    "serve ~/x.db": "~/x.db: a server's home folder is empty, and is deleted",
    "serve OUTSIDE/x.db": "/x.db: it is outside of the project",
    "serve OUTSIDE": "outside: it is outside of the project",
    "serve gone/x.db": "gone/x.db: its folder does not exist; create it: mkdir -p ROOT/gone",
    "serve .hidden/x.db": ".hidden/x.db: it is in a hidden folder",
    "serve link/x.db": "link/x.db: it is reached by a link",
    "serve tools": "tools: its folder has code or settings",
    "python3 src/s.py src": "src: its folder has code or settings",
}
"""Command line to the reason why a place that it names stays read-only."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "p"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root.parent / "outside").mkdir()
    (root / "link").symlink_to("../outside")
    (root / "linked").symlink_to("docs")
    return root


def spec_of(root: Path, line: str, **more: object) -> ServerSpec:
    line = line.replace("ROOT", str(root)).replace("OUTSIDE", str(root.parent / "outside"))
    command, *args = shlex.split(line)
    spec = read_server("x", {"command": command, "args": args, **more})
    return with_data(spec, str(root), [f"{root}/tools"])


def data(root: Path, line: str, **more: object) -> list[str]:
    spec = spec_of(root, line, **more)
    assert spec.permissions.write == spec.data
    return list(spec.data)


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_names_the_folders_that_the_server_writes(root: Path, line: str) -> None:
    assert data(root, line) == LINES[line]


@pytest.mark.parametrize("line", REASONS)
def test_a_place_that_stays_read_only_is_named_with_the_reason(root: Path, line: str) -> None:
    found, expected = spec_of(root, line).unwritable, REASONS[line]
    assert len(found) == (expected is not None)
    assert expected is None or expected.replace("ROOT", str(root)) in found[0]


def test_a_variable_names_only_data_files(root: Path) -> None:
    env = {"FILE": f"{root}/data/memory.jsonl", "PYTHONPATH": "lib", "KEY": "settings/key.json"}
    assert data(root, "serve", env=env) == ["data"]


def test_paths_start_at_the_working_folder(root: Path) -> None:
    assert data(root, "serve er ../docs", cwd="deep") == ["deep/er", "docs"]


def test_a_server_that_states_its_files_gets_no_more(root: Path) -> None:
    assert data(root, "serve docs", permissions={"fs": {"read": ["."]}}) == []
    assert data(root, "serve docs", permissions={"network": True}) == ["docs"]


def test_the_person_who_trusts_it_sees_the_reason(root: Path) -> None:
    spec = with_data(read_server("x", {"command": "serve", "args": ["docs"]}), str(root), [])
    assert "write docs (named on its command line or in its env)" in grants_of(spec, str(root))


def test_the_person_who_trusts_it_is_warned_of_a_repository(root: Path) -> None:
    spec = read_server("x", {"command": "serve", "permissions": {"fs": {"write": [".git", "docs"]}}})
    shown = grants_of(spec, str(root))
    assert "write .git (which can make git, where you run it, run a program)" in shown
    assert "write docs" in shown
