"""The public conformance suite of MCP through a project that mounts a server: nothing gets lost on the way.

The gateway mounts the server over HTTP, and trusts, records and limits its tools like any other. Mounted are
our own fixture, the unmodified example server of the official SDK, and the same of an SDK that knows sessions
only, so that clients and servers of both protocols meet.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.conftest import HERE, passed_of_required, required_and_failed, serving
from tests.patience import wait_for
from tests.third_party import SDK_LOCK, SESSIONS_LOCK, example_server, python_servers
from toolcrib.guard import Ledger
from toolcrib.project import load_config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.state import Vault

NOT_IN_A_SESSION = [
    "input-required-result-basic-elicitation",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-tampered-state",
]
"""They need names of questions, a state, or several questions at once, none of which a session has."""


@contextmanager
def mounting(address: str, folder: Path) -> Iterator[str]:
    """Serve a project that mounts a server; yields its address."""
    root, data = folder / "project", folder / "data"
    home = root / ".toolcrib"
    home.mkdir(parents=True)
    server = {"url": address, "prefix": False}
    settings = {"mcp_servers": {"fixture": server}, "mcp": {"max_listed": 1000}}
    (home / "config.yml").write_text(json.dumps(settings))
    config = load_config(home / "config.yml", root)
    Ledger(Vault(root, data)).accept(settings_rows(config), "ann", "program")
    with serving("gateway", root, data) as url:
        yield url


@contextmanager
def running(command: list[str], source: Path, folder: Path) -> Iterator[str]:
    """Run a server with the official SDK on any free port; yields its address."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"}
    log = folder / "log"

    def address() -> str:
        assert server.poll() is None, log.read_text()
        return "".join(re.findall(r"running on (http://127\.0\.0\.1:\d+) ", log.read_text()))

    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=source, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        ) as server,
    ):
        try:
            wait_for(address, "the address of the server", 100)
            yield f"{address()}/mcp"
        finally:
            server.kill()


@pytest.fixture(scope="module")
def fixture(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mounting(address, tmp_path_factory.mktemp("fixture")) as url:
        yield url


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [sys.executable, "-m", "mcp_everything_server", "--port", "0"]
    folder = tmp_path_factory.mktemp("example")
    with running(command, example_server(SDK_LOCK), folder) as address, mounting(address, folder) as url:
        yield url


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [str(python_servers() / "bin" / "python"), str(HERE / "sdk_sessions.py"), "0"]
    folder = tmp_path_factory.mktemp("sessions")
    with running(command, example_server(SESSIONS_LOCK), folder) as address, mounting(address, folder) as url:
        yield url


@pytest.mark.parametrize(
    ("mounted", "version", "required"),
    [
        # The example shows the same in `make test`: both know both protocols.
        pytest.param("fixture", "2025-11-25", 30, marks=pytest.mark.soak),
        pytest.param("fixture", "2026-07-28", 37, marks=pytest.mark.soak),
        pytest.param("example", "2025-11-25", 30, marks=pytest.mark.soak),  # As that of sessions.
        ("example", "2026-07-28", 37),
        ("sessions", "2025-11-25", 30),
    ],
)
def test_the_frozen_requirements(
    mounted: str, version: str, required: int, suite: list[str], request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(mounted)
    assert passed_of_required(suite, address, version) == (required, required)


def test_a_client_of_2026_before_a_server_of_sessions(suite: list[str], sessions: str) -> None:
    required, failed = required_and_failed(suite, sessions, "2026-07-28")
    assert (len(required), sorted(failed)) == (37, sorted(NOT_IN_A_SESSION))
