"""The OpenAPI description: complete, and true of the server, as schemathesis finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from toolcrib.serve.rest import ROUTES

ROOT = Path(__file__).parents[2]
# Statuses that follow from the state of the server, whatever the request: of a record that is gone or has
# changed. Page tokens, words, files, templates of URLs, arguments of tools, and a field that stands for
# another have no schema that says all.
SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 410, 412]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 410, 412, 413, 415]

[[operations]]
include-operation-id = [
    "list_bundles", "list_calls", "list_tools", "search_tools", "put_bundle", "put_tool", "list_approvals",
    "list_grants", "list_audit_lines", "export_audit_lines", "lint_text", "convert_text", "import_openapi",
    "list_runs", "list_sessions", "list_messages", "create_session", "explain_policy", "try_rule",
    "get_usage", "cancel_calls", "retry_calls",
    "cancel_runs", "retry_runs", "get_all_usage", "stream_call_events", "stream_run_events",
    "stream_all_run_events", "import_curl", "invoke_draft", "check_draft",
    "permit_draft", "show_trust",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 410, 412]

# No text that is made up is a form.
[[operations]]
include-operation-id = "answer_question"
phases.fuzzing.enabled = false

# The example of a file is no file.
[[operations]]
include-operation-id = "import_from_zip"
phases.examples.enabled = false
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 410, 412]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("openapi") / "project")
    with http_server(crib.root) as running:
        yield running


def run_schemathesis(
    server: HttpServerProcess, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    settings = folder / "schemathesis.toml"
    settings.write_text(SETTINGS)
    words = ["--config-file", str(settings), "run", f"{server.address}/openapi.json"]
    words += ["-H", f"Authorization: Bearer {server.token}", "--continue-on-failure"]
    words += ["--request-timeout=20", "--wait-for-schema=100", *options]
    program = Path(sys.executable).with_name("schemathesis")
    env = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.openapi_formats",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    return subprocess.run([program, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_description_has_every_route(server: HttpServerProcess) -> None:
    described = server.send("GET", "/openapi.json", token=None).json
    assert described["openapi"].startswith("3.1")
    found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}
    assert len({route.handler.__name__ for route in ROUTES}) == len(ROUTES)
    for methods in described["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith(".")


@pytest.mark.timeout(600)
def test_schemathesis_finds_no_difference(server: HttpServerProcess, tmp_path: Path) -> None:
    ended = run_schemathesis(
        server, tmp_path, "--phases", "examples,fuzzing", "--generation-deterministic", "--max-examples", "1"
    )
    assert ended.returncode == 0, ended.stdout[-16000:]


@pytest.mark.soak
def test_schemathesis_finds_no_difference_in_ten_minutes(server: HttpServerProcess, tmp_path: Path) -> None:
    ended = run_schemathesis(server, tmp_path, "--max-time", "600")
    assert ended.returncode == 0, ended.stdout[-16000:]
