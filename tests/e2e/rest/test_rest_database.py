"""A server whose database does not answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from tests.postgres import PostgresProcess

NOBODY = "01890000-0000-7000-8000-000000000000"
"""An id that no run and no approval has."""
ARGS = {"args": {"c": "true"}}


CASES: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("approvals", "/approvals", None),
    ("grants", "/grants", None),
    ("runs", "/runs", None),
    ("calls", "/tools/calls", None),
    ("leases", "/tools/invoke/limited", ARGS),
    ("recorded", "/tools/invoke/plain", ARGS),
    ("grants", "/tools/invoke/asks", ARGS),
    ("runs", "/runs", {"agent": "counter", "prompt": "one"}),
    ("runs", f"/runs/{NOBODY}/retry", {}),
    ("runs", f"/runs/{NOBODY}/fork", {}),
    ("runs", "/workflows/flow/runs", {}),
    ("approvals", f"/approvals/{NOBODY}", None),
    ("approvals", f"/approvals/{NOBODY}/approve", {"seal": "0" * 64}),
)
"""Table, path and body of a request that needs the table."""


@pytest.fixture(scope="module")
def database(postgres: PostgresProcess) -> str:
    return postgres.url(f"rest_{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("database") / "project")
    crib.shell("limited", limits={"concurrent_calls": 1})
    crib.shell("plain")
    crib.shell("asks", approval={"required": True, "reason": "it writes"})
    agent = {"name": "counter", "description": "Counts.", "model": "scripted", "script": [{"text": "one"}]}
    crib.write(".toolcrib/agents/counter.yml", json.dumps(agent))
    steps = [{"id": "one", "tool": "plain", "args": {"c": "true"}}]
    crib.write(".toolcrib/workflows/flow.yml", json.dumps({"name": "flow", "steps": steps}))
    with http_server(crib.root, env={"DATABASE_URL": database}) as running:
        yield running


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("table", "path", "body"), CASES)
def test_who_needs_the_database_keeps_nobody_else_waiting(
    server: HttpServerProcess, database: str, table: str, path: str, body: dict[str, Any] | None
) -> None:
    def ask() -> int:
        key = {"Idempotency-Key": uuid.uuid4().hex} if table == "recorded" else {}
        return server.send("GET" if body is None else "POST", path, body, key).status

    waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    done = ask()
    assert done == 404 if NOBODY in path else done in (200, 201, 202)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        asked = pool.submit(ask)
        deadline = time.monotonic() + 100
        while other.execute(waiting, [table]).fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server.send("GET", "/").status == 200
        # On a slow machine it has waited for longer than a request may.
        assert not asked.done() or asked.result() == 503, asked.result()
        other.rollback()
        assert asked.result() in (done, 503)
