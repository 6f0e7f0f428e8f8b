"""The public conformance suite of MCP, with Toolcrib as the client: all that 2026-07-28 requires."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import CommandServer
from tests.third_party import NODE_22, node_packages

SUITE = "node_modules/@modelcontextprotocol/conformance"
CLIENT = Path(__file__).with_name("mcp_conformance_client.py")
SCENARIOS = [
    "tools_call",
    "request-metadata",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
]

pytestmark = pytest.mark.timeout(240)


def test_these_are_all_the_scenarios_that_are_required() -> None:
    text = (node_packages() / SUITE / "requirements/2026-07-28.yaml").read_text()
    listed = text.partition("\nclient:\n")[2].partition("\nnot_scored:")[0]
    assert re.findall(r"- (\S+)", listed) == SCENARIOS


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that has imported the MCP package, which takes 2 s."""
    forks = CommandServer(tmp_path_factory.mktemp("clients") / "forks", "mcp.client")
    yield forks.program("python")
    forks.close()


IN_CI = frozenset(SCENARIOS[::3])
"""Each costs more than 1 s of CPU, so `make soak` runs the rest."""


@pytest.mark.parametrize(
    "scenario", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.soak) for name in SCENARIOS]
)
def test_a_scenario_passes(scenario: str, client: Path) -> None:
    folder = node_packages()
    suite = [str(folder / NODE_22), str(folder / SUITE / "dist/index.js"), "client"]
    options = ["--spec-version", "2026-07-28", "--scenario", scenario, "--timeout", "90000"]
    command = ["--command", f"{client} {CLIENT}"]
    done = subprocess.run(
        [*suite, *options, *command], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-3_000:]}{done.stderr[-2_000:]}"
