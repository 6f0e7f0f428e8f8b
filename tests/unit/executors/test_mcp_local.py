"""The files of a local MCP server, which no tool may write."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from toolcrib.executors.mcp.process.local import files_of
from toolcrib.manifest.dialects.mcp_servers import ServerSpec
from toolcrib.spec import Permissions


def test_its_environment_and_files_by_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PART", "named")
    root = Path(os.path.realpath(tmp_path))
    for path in ("env/pyvenv.cfg", "impl/s.py", "sub/data", "named.py", "usual.py"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).touch()
    (root / "env/bin").mkdir()
    (root / "env/bin/python").symlink_to(sys.executable)
    (root / "way").symlink_to("impl")
    spec = ServerSpec(
        "x", "stdio", "env/bin/python",
        ("../way/s.py", "data", "${PART}.py", "${OTHER:-usual}.py", "--token=${SECRET}", "x" * 300, "gone"),
        cwd="sub", permissions=Permissions(env=("PART",)),
    )  # fmt: skip

    found = files_of(spec, root)

    inside = {os.path.relpath(path, root) for path in found if path.startswith(f"{root}/")}
    assert inside == {
        "env", "env/bin/python", "way", "impl/s.py", "named.py", "usual.py"
    }  # fmt: skip
    assert os.path.realpath(sys.executable) in found
    assert files_of(ServerSpec("x", "http", url="https://x.org"), root) == []
