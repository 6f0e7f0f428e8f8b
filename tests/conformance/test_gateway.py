"""The public conformance suite of MCP through a project that mounts a server: nothing gets lost on the way.

The mounted server is the fixture of the suite; the gateway mounts it over HTTP, and reviews, records and
limits its tools like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import passed_of_required, serving
from toolcrib.guard import Trust
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
    Trust(Vault(root, data)).accept(load_config(home / "config.yml", root).digest, "ann")
    with serving("gateway", root, data) as url:
        yield url


def test_the_frozen_requirements(suite: list[str], gateway: str) -> None:
    assert passed_of_required(suite, gateway, "2026-07-28") == (37, 37)
