"""The public conformance suite of MCP, with Toolcrib as the client: all that 2026-07-28 requires."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import LAZY, CommandServer
from tests.third_party import NODE_22, node_packages

SUITE = "node_modules/@modelcontextprotocol/conformance"
CLIENT = Path(__file__).with_name("mcp_conformance_client.py")

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that has imported the MCP package, which takes 2 s."""
    forks = CommandServer(tmp_path_factory.mktemp("clients") / "forks", "mcp.client", *LAZY)
    yield forks.program("python")
    forks.close()


def test_all_required_scenarios_pass(client: Path) -> None:
    folder = node_packages()
    listed = (folder / SUITE / "requirements/2026-07-28.yaml").read_text()
    required = re.findall(r"- (\S+)", listed.partition("\nclient:\n")[2].partition("\nnot_scored:")[0])
    assert "auth/basic-cimd" in required
    suite = [str(folder / NODE_22), str(folder / SUITE / "dist/index.js"), "client"]
    command = ["--requirements", "2026-07-28", "--timeout", "90000", "--command", f"{client} {CLIENT}"]
    done = subprocess.run([*suite, *command], capture_output=True, text=True, timeout=180, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout[-3_000:]}{done.stderr[-2_000:]}"
