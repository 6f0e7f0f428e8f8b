"""The public conformance suite of MCP through a project that mounts a server: nothing gets lost on the way.

The mounted server is the fixture of the suite; the gateway mounts it over HTTP, and reviews, records and
limits its tools like any other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import LIMIT_S, REPOSITORY
from toolcrib.guard import Tokens, Trust
from toolcrib.project import load_config
from toolcrib.state import Vault

REQUIRED = """
server-stateless completion-complete tools-list tools-call-simple-text tools-call-image tools-call-audio
tools-call-embedded-resource tools-call-mixed-content tools-call-error tools-call-with-progress
server-sse-multiple-streams resources-list resources-read-text resources-read-binary
resources-templates-read sep-2164-resource-not-found prompts-list prompts-get-simple prompts-get-with-args
prompts-get-embedded-resource prompts-get-with-image dns-rebinding-protection caching
input-required-result-basic-elicitation input-required-result-basic-sampling
input-required-result-basic-list-roots input-required-result-request-state
input-required-result-multiple-input-requests input-required-result-multi-round
input-required-result-missing-input-response input-required-result-non-tool-request
input-required-result-result-type input-required-result-unsupported-methods
input-required-result-tampered-state input-required-result-capability-check
input-required-result-ignore-extra-params input-required-result-validate-input
""".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def gateway(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a project that mounts the fixture server."""
    folder = tmp_path_factory.mktemp("gateway")
    root, data = folder / "project", folder / "data"
    home = root / ".toolcrib"
    home.mkdir(parents=True)
    server = {"url": address, "prefix": False}
    settings = {"mcp_servers": {"fixture": server}, "mcp": {"max_listed": 1000}}
    (home / "config.yml").write_text(json.dumps(settings))
    vault = Vault(root, data)
    Trust(vault).accept(load_config(home / "config.yml", root).digest, "ann")
    tokens = Tokens(vault)
    token = tokens.create("suite", ("invoke",), owner="olga")
    tokens.close()
    command = [sys.executable, "-m", "tests.conformance.gateway", "--root", str(root), "--data", str(data)]
    environment = {**os.environ, "CONFORMANCE_TOKEN": token}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as server_process:
        assert server_process.stdout is not None
        try:
            yield server_process.stdout.readline().strip()
        finally:
            server_process.terminate()


def test_these_are_all_the_scenarios_that_are_required(suite: list[str]) -> None:
    text = Path(suite[1]).parents[1].joinpath("requirements/2026-07-28.yaml").read_text()
    listed = text.partition("\nserver:\n")[2].partition("\nclient:")[0]
    assert re.findall(r"- (\S+)", listed) == REQUIRED


IN_CI = frozenset(REQUIRED[::4])
"""Each costs a start of Node, and all of them pass directly (`test_suite.py`); `make soak` runs the rest."""


@pytest.mark.parametrize(
    "scenario", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.soak) for name in REQUIRED]
)
def test_scenario(scenario: str, suite: list[str], gateway: str, tmp_path: Path) -> None:
    words = ["server", "--url", gateway, "--spec-version", "2026-07-28", "--scenario", scenario]
    ran = subprocess.run(
        [*suite, *words], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
