"""The public conformance suite of MCP through a project that mounts a server: nothing gets lost on the way.

The mounted server is the fixture of the suite; the gateway mounts it over HTTP, and reviews, records and
limits its tools like any other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import REPOSITORY, passed_of_required
from toolcrib.guard import Tokens, Trust
from toolcrib.project import load_config
from toolcrib.state import Vault


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


def test_the_frozen_requirements(suite: list[str], gateway: str) -> None:
    assert passed_of_required(suite, gateway, "2026-07-28") == (37, 37)
