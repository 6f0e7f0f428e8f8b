"""Grants of a local MCP server's own program: what it needs, and nothing that a project could have named."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.launch.line import Launch, MachineView
from toolcrib.executors.mcp.launch.needs import launch_of
from toolcrib.executors.mcp.process.refusals import summary


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with things that no server needs, and a project in it."""
    home = Path(os.path.realpath(tmp_path)) / "ann"
    for path in (
        ".ssh/id_rsa",
        ".ssh/config",
        ".ssh/x.py",
        "papers/x.js",
        "papers/tax.txt",
        "app/package.json",
    ):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("text")
    for path in ("app/build/index.js", "package.json", "run.js", "project/data.txt"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("text")
    return home


def reads(home: Path, *argv: str) -> set[str]:
    """Return what a command line is granted below the home folder, from there."""
    machine = MachineView(str(home / "project"), {"HOME": str(home), "PATH": "/usr/bin:/bin"})
    found = launch_of(Launch(argv), machine)[1]
    return {os.path.relpath(path, home) for path in found if path.startswith(f"{home}")}


def test_a_script_outside_brings_its_package_and_nothing_around_it(home: Path) -> None:
    assert reads(home, "node", f"{home}/app/build/index.js") == {"app"}
    assert reads(home, "node", f"{home}/papers/x.js") == {"papers/x.js"}
    assert reads(home, "node", f"{home}/run.js") == {"run.js"}
    assert reads(home, "node", f"{home}/.ssh/config") == set()
    assert reads(home, "python3", f"{home}/.ssh/x.py") == {".ssh/x.py"}
    assert reads(home, "python3", "server.py", f"{home}/papers/tax.txt") == set()


def test_a_project_cannot_make_a_landmark_that_leads_out(home: Path) -> None:
    env = home / "project/.venv"
    (env / "bin").mkdir(parents=True)
    (env / "pyvenv.cfg").write_text(f"home = {home}/.ssh\n")
    (env / "bin/python").symlink_to(home / ".ssh/id_rsa")
    shutil.copy(os.path.realpath(sys.executable), env / "bin/server")
    assert reads(home, ".venv/bin/server") == {"project/.venv"}
    (env / "bin/script").write_text(f"#!{home}/.ssh/id_rsa\n")
    (env / "bin/script").chmod(0o755)
    assert not any("papers" in path for path in reads(home, ".venv/bin/script"))
    (home / "project/node_modules").symlink_to(home)
    assert reads(home, "node", "node_modules/papers/x.js") == {"project/node_modules/papers/x.js"}
    (home / "pyvenv.cfg").touch()
    (home / "bin").mkdir()
    shutil.copy(sys.executable, home / "bin/tool")
    assert "." not in reads(home, f"{home}/bin/tool")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("uvx", "--index", "https://example.com", "x"), "--index"),
        (("uvx", "--python", "../..", "x"), "../.."),
        (("uvx", "./local"), "only packages by name"),
        (("uvx", "--with", "git+https://example.com/x", "x"), "only packages by name"),
        (("uvx", "absent"), "absent has not been downloaded for this server"),
        (("npx", "-c", "id"), "-c"),
        (("npx", "https://example.com/x.tgz"), "only packages by name"),
        (("npx", "../x"), "only packages by name"),
        (("npx", "-y", "absent@2"), "absent has not been downloaded for this server"),
        (("npx", "-p=absent@2", "x"), "absent has not been downloaded for this server"),
        (("uv", "run", "x"), "uv sync"),
        (("uv", "run", "--with", "x", "y"), "--with"),
    ],
)
def test_a_line_that_does_not_start_as_it_is(home: Path, argv: tuple[str, ...], words: str) -> None:
    folder = home / "launchers"
    folder.mkdir()
    for name in ("uvx", "uv", "npx"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    machine = MachineView(str(home / "project"), {"HOME": str(home), "PATH": f"{folder}:/usr/bin:/bin"})
    with pytest.raises(ToolUnavailable) as caught:
        launch_of(Launch(argv), machine)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_the_line_of_an_error_that_says_most() -> None:
    node = (
        "x:1\n  throw err;\n  ^\n\nError: Cannot find module '/x'\n    at y (z:1)\n{\n}\n\nNode.js v20.20.2\n"
    )
    assert summary(node) == "Error: Cannot find module '/x'"
    assert summary("starting\nno licence found\n") == "no licence found"
    assert summary("") == ""
