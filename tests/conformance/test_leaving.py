"""A client of the official SDK before version 2 leaves a server while a call runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.third_party import python_servers

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_a_client_leaves_without_an_error_while_a_call_runs(tmp_path: Path) -> None:
    client = [str(python_servers() / "bin/python"), str(HERE / "sdk_leaves.py"), str(tmp_path / "mark")]
    # The client hands few variables on to its server.
    code = f"import sys; sys.path[:0] = {[str(ROOT / 'src'), str(ROOT)]!r}; sys.argv = ['server', '0']; "
    code += (
        "from runpy import run_module; run_module('tests.e2e.mcp.mcp_stdio_server', None, '__main__', True)"
    )
    done = subprocess.run(
        [*client, sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, "PAGE": "500"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
    assert (tmp_path / "mark").read_text() == "cancelled"
