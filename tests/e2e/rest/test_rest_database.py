"""A server whose database does not answer."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.crib import Crib
from tests.http_server import http_server
from tests.postgres import PostgresProcess


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/approvals", "approvals"),
        ("/grants", "grants"),
        ("/runs", "runs"),
        ("/tools/calls", "calls"),
        ("/tools/invoke/limited", "leases"),
        ("/tools/invoke/plain", "recorded"),
        ("/tools/invoke/asks", "grants"),
    ],
)
def test_who_needs_the_database_keeps_nobody_else_waiting(
    postgres: PostgresProcess, tmp_path: Path, path: str, table: str
) -> None:
    url = postgres.url(f"rest_{uuid.uuid4().hex}")
    crib = Crib(tmp_path / "project")
    crib.shell("limited", limits={"concurrent_calls": 1})
    crib.shell("plain")
    crib.shell("asks", approval={"required": True, "reason": "it writes"})

    def ask() -> int:
        if "invoke" not in path:
            return server.send("GET", path).status
        key = {"Idempotency-Key": uuid.uuid4().hex} if table == "recorded" else {}
        return server.send("POST", path, {"args": {"c": "true"}}, key).status

    waiting = (
        "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        f" WHERE NOT granted AND query LIKE '%FROM {table} %'"
    )
    with http_server(crib.root, env={"DATABASE_URL": url}) as server, ThreadPoolExecutor(1) as pool:
        done = ask()
        assert done == (202 if path.endswith("asks") else 200)
        with psycopg.connect(url) as other:
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            asked = pool.submit(ask)
            deadline = time.monotonic() + 30
            while other.execute(waiting).fetchone() == (0,):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert server.send("GET", "/").status == 200
            assert other.execute(waiting).fetchone() != (0,), "it was answered after the other"
            other.rollback()
        assert asked.result() == done
