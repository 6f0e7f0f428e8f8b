"""The public conformance suite of MCP, with Toolcrib as the client: all that 2026-07-28 requires."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.commands import shared_server
from tests.third_party import NODE_22, node_packages

SUITE = "node_modules/@modelcontextprotocol/conformance"
CLIENT = Path(__file__).with_name("mcp_conformance_client.py")

pytestmark = pytest.mark.timeout(240)


def test_all_required_scenarios_pass() -> None:
    folder = node_packages()
    listed = (folder / SUITE / "requirements/2026-07-28.yaml").read_text()
    required = re.findall(r"- (\S+)", listed.partition("\nclient:\n")[2].partition("\nnot_scored:")[0])
    assert "auth/basic-cimd" in required
    keep = str(Path(__file__).with_name("keep_connections.cjs"))
    suite = [str(folder / NODE_22), "--require", keep, str(folder / SUITE / "dist/index.js"), "client"]
    client = f"{shared_server().program('python')} {CLIENT}"
    command = ["--requirements", "2026-07-28", "--timeout", "90000", "--command", client]
    done = subprocess.run([*suite, *command], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout[-3_000:]}{done.stderr[-2_000:]}"
