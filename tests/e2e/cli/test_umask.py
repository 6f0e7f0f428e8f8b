"""With the umask 002, as many systems set it for users with a group of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.commands import PROGRAM

MANIFEST = """
name: hello
description: Says hello.
kind: command
version: 1
inputs: {schema: {type: object, properties: {}}}
outputs: {format: text}
exec: {command: {entrypoint: echo, args: [hello]}}
"""


def test_what_holds_decisions_and_secrets_is_the_users_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "TOOLCRIB_ROOT": str(tmp_path / "p")}

    def run(*words: str) -> str:
        ended = subprocess.run(
            [PROGRAM, *words],
            cwd=tmp_path,
            env=env,
            umask=0o002,
            capture_output=True,
            check=False,
        )
        assert (ended.returncode, b"warning" in ended.stderr) == (0, False), ended.stderr.decode()
        return ended.stdout.decode()

    run("init", "p")
    tool = tmp_path / "p/.toolcrib/tools/hello/tool.yml"
    tool.parent.mkdir()
    tool.write_text(MANIFEST)
    assert run("run", "hello") == "hello\n"
    run("bundle", "create", "mine")
    audit = tmp_path / "p/.toolcrib/audit"
    made = [*home.rglob("*"), audit, *audit.rglob("*"), tmp_path / "p/.toolcrib/state.db"]
    assert {path.name for path in made} >= {
        ".cache",
        ".local",
        "projects",
        "bundles",
        "audit-key",
        "tools.log",
    }
    open_to_others = [str(path) for path in made if path.exists() and path.stat().st_mode & 0o022]
    assert not open_to_others
    folders = {path.stat().st_mode & 0o777 for path in made if path.is_dir()}
    assert folders == {0o700}
