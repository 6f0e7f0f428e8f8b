"""The public conformance suite of MCP through a project that mounts a server: nothing gets lost on the way.

The mounted server is `typescript_sdk/everythingServer.ts`, with which the official TypeScript SDK is tested,
as it is in modelcontextprotocol/typescript-sdk at 3924de99 (test/conformance/src). The gateway mounts it over
HTTP, and reviews, records and limits its tools like any other.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import HERE, passed_of_required, serving
from toolcrib.guard import Trust
from toolcrib.project import load_config
from toolcrib.state import Vault


@pytest.fixture(scope="module")
def sdk_server(suite: list[str]) -> Iterator[str]:
    """The address of the SDK's example server."""
    node, program = suite
    script = Path(program).parents[4] / "everythingServer.mts"
    shutil.copy(HERE / "typescript_sdk" / "everythingServer.ts", script)
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [node, str(script)], env={**os.environ, "PORT": str(port)}, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline().startswith(b"MCP Conformance Test Server running on")
            yield f"http://localhost:{port}/mcp"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def gateway(sdk_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a project that mounts the SDK's example server."""
    folder = tmp_path_factory.mktemp("gateway")
    root, data = folder / "project", folder / "data"
    home = root / ".toolcrib"
    home.mkdir(parents=True)
    server = {"url": sdk_server, "prefix": False}
    settings = {"mcp_servers": {"fixture": server}, "mcp": {"max_listed": 1000}}
    (home / "config.yml").write_text(json.dumps(settings))
    Trust(Vault(root, data)).accept(load_config(home / "config.yml", root).digest, "ann")
    with serving("gateway", root, data) as url:
        yield url


def test_the_frozen_requirements(suite: list[str], gateway: str) -> None:
    assert passed_of_required(suite, gateway, "2026-07-28") == (37, 37)
