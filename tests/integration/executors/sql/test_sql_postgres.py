"""SQL tools on a real Postgres server: named values, read-only transactions, limits, types, the pool."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import psycopg
import pytest

from tests.crib import Crib, failed
from tests.postgres import PostgresProcess

ARGUMENTS: dict[str, Any] = {"id": {}, "name": {"type": "string"}, "tags": {"type": "array"}, "more": {}}


@pytest.fixture
def shop(crib: Crib, postgres: PostgresProcess) -> Crib:
    url = postgres.url("shop")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
        connection.execute("CREATE TABLE users (id int, name text)")
        connection.execute("INSERT INTO users VALUES (1, 'Ann'), (2, 'Bob')")
    crib.secrets["SHOP"] = url
    crib.write("folder", str(postgres.folder))
    return crib


def tool(crib: Crib, statement: str, name: str = "q", **config: Any) -> None:
    folder = (crib.root / "folder").read_text()
    permissions = {"fs": {"read": [folder]}, "secrets": {"SHOP": {}}, **config.pop("permissions", {})}
    block = {"engine": "postgres", "secret": "SHOP", "statement": statement, **config}
    crib.tool(name, "sql", block, ARGUMENTS, permissions=permissions)


def test_values_are_bound_by_name_and_never_text(shop: Crib) -> None:
    tool(shop, "SELECT id, name, %(name)s AS said, 7 %% 4 AS rest FROM users WHERE id = %(id)s")
    hostile = "'; DROP TABLE users; --"
    assert shop.call("q", {"id": 2, "name": hostile}).value == [
        {"id": 2, "name": "Bob", "said": hostile, "rest": 3}
    ]
    assert shop.call("q", {}).value == []


def test_types_of_columns(shop: Crib) -> None:
    statement = """SELECT 1.10::numeric AS exact, 1.5::float8 AS near, 'NaN'::float8 AS nan,
        DATE '2030-01-31' AS day, TIMESTAMPTZ '2030-01-31 12:00Z' AT TIME ZONE 'UTC' AS at,
        '{"a": [1, null]}'::jsonb AS doc, ARRAY[[1],[2]] AS list,
        '\\x00ff'::bytea AS raw, true AS yes, NULL AS nothing, 2::int8 ^ 62 > 0 AS big,
        '00000000-0000-0000-0000-000000000001'::uuid AS id, '10.0.0.1'::inet AS ip,
        INTERVAL '1 hour' AS span"""
    tool(shop, statement)
    (row,) = shop.call("q").unwrap()
    assert row == {
        "exact": "1.10",
        "near": 1.5,
        "nan": None,
        "day": "2030-01-31",
        "at": "2030-01-31T12:00:00",
        "doc": {"a": [1, None]},
        "list": [[1], [2]],
        "raw": "AP8=",
        "yes": True,
        "nothing": None,
        "big": True,
        "id": "00000000-0000-0000-0000-000000000001",
        "ip": "10.0.0.1",
        "span": "1:00:00",
    }


def test_lists_and_objects_are_values(shop: Crib) -> None:
    tool(shop, "SELECT name FROM users WHERE name = ANY(%(tags)s::text[]) AND %(more)s::jsonb ? 'k'")
    assert shop.call("q", {"tags": ["Ann", "Eve"], "more": {"k": 1}}).value == [{"name": "Ann"}]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM users RETURNING id",
        "WITH gone AS (DELETE FROM users RETURNING id) SELECT * FROM gone",
        "SELECT nextval('counter')",
        "CREATE TABLE t (a int)",
        "SELECT set_config('transaction_read_only', 'off', false), (SELECT count(*) FROM users)",
    ],
)
def test_nothing_is_written_without_leave(shop: Crib, statement: str) -> None:
    with psycopg.connect(shop.secrets["SHOP"], autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE counter")
    tool(shop, statement)
    tool(
        shop,
        "SELECT count(*) AS users, to_regclass('t') AS t, (SELECT is_called FROM counter) AS c FROM users",
        "look",
    )
    shop.call("q")
    assert shop.call("look").value == [{"users": 2, "t": None, "c": False}]


def test_one_statement_only(shop: Crib) -> None:
    tool(shop, "COMMIT; DELETE FROM users")
    assert "multiple commands" in failed(shop.call("q"), "tool_failed")
    tool(shop, "SELECT count(*) AS users FROM users", "look")
    assert shop.call("look").value == [{"users": 2}]


def test_changes_with_leave(shop: Crib) -> None:
    tool(shop, "UPDATE users SET name = %(name)s", write=True)
    tool(shop, "INSERT INTO users VALUES (3, 'Cy') RETURNING id", "add", write=True)
    assert shop.call("q", {"name": "X"}).value == {"changed": 2}
    assert shop.call("add").value == [{"id": 3}]
    tool(shop, "SELECT 1/0 FROM users WHERE false OR id = 1", "bad")
    assert "division by zero" in failed(shop.call("bad"), "tool_failed")
    tool(shop, "DELETE FROM users", "readonly")
    result = shop.call("readonly")
    assert result.error is not None
    assert "exec.sql.write: true" in str(result.error.hint)


def test_limits_of_rows_bytes_and_time(shop: Crib) -> None:
    tool(shop, "SELECT n FROM generate_series(1, 1000000) AS n", max_rows=3)
    result = shop.call("q")
    assert result.value == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert "more than 3 rows" in result.warnings[0]
    tool(shop, "SELECT repeat('x', 300000) AS t FROM generate_series(1, 9)", "large")
    result = shop.call("large")
    assert len(result.unwrap()) == 3
    assert "bytes" in result.warnings[0]
    tool(shop, "SELECT pg_sleep(600)", "slow", timeout_ms=50)
    result = shop.call("slow")
    assert result.error is not None
    assert (result.error.code, result.error.details["limit"]) == ("timed_out", "the tool's limit")


async def test_connections_are_kept_and_replaced(shop: Crib, postgres: PostgresProcess) -> None:
    tool(shop, "SELECT pg_backend_pid() AS pid")
    tool(shop, "SELECT pg_backend_pid() AS pid FROM pg_sleep(0.5)", "slow")
    async with shop.open() as project:
        pids = [(await project.call("q")).unwrap()[0]["pid"] for _ in range(3)]
        assert len(set(pids)) == 1
        both = await asyncio.gather(project.call("slow"), project.call("slow"))
        assert len({one.unwrap()[0]["pid"] for one in both}) == 2
        with psycopg.connect(postgres.url("shop"), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            )
        assert (await project.call("q")).unwrap()[0]["pid"] not in pids


async def test_a_call_that_is_cancelled_ends_on_the_server(shop: Crib, postgres: PostgresProcess) -> None:
    tool(shop, "SELECT pg_sleep(600), %(name)s::text AS name")
    with psycopg.connect(postgres.url("shop"), autocommit=True) as connection:

        def running() -> int:
            found = "FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(600)%'"
            row = connection.execute(f"SELECT count(*) {found}").fetchone()
            assert row is not None
            return int(row[0])

        async with shop.open() as project, asyncio.timeout(100):
            call = asyncio.ensure_future(project.call("q", {"name": "x"}))
            while not running():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while running():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("url", "code", "what"),
    [
        ("postgresql://a@db.example.com/x", "host_not_allowed", "db.example.com:5432"),
        ("postgresql://a@/x?host=/var/run", "permission_denied", "permissions.fs.read"),
        ("postgresql://a@10.0.0.1,10.0.0.2/x", "tool_failed", "must name one host"),
        ("host=", "tool_failed", "must name one host"),
        ("::", "tool_failed", "not the address"),
    ],
)
def test_servers_that_the_tool_may_not_reach(shop: Crib, url: str, code: str, what: str) -> None:
    tool(shop, "SELECT 1 AS a")
    shop.secrets["SHOP"] = url
    result = shop.call("q")
    assert what in failed(result, code) + str(result.error and result.error.hint)


def test_without_the_driver_a_call_says_what_to_install(shop: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(shop, "SELECT 1")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    result = shop.call("q")
    assert "psycopg" in failed(result, "tool_unavailable")
    assert result.error is not None
    assert "[postgres]" in str(result.error.hint)


def test_a_server_that_is_away_is_retryable(shop: Crib) -> None:
    tool(shop, "SELECT 1 AS a", permissions={"network": {"allow": ["127.0.0.1:1"]}})
    shop.secrets["SHOP"] = "postgresql://ann:pass-word-9@127.0.0.1:1/x"
    result = shop.call("q")
    assert "pass-word-9" not in failed(result, "tool_failed")
    assert result.error is not None
    assert result.error.retryable


@pytest.mark.parametrize(
    ("statement", "config", "what"),
    [
        ("SELECT %(nme)s", {}, "is not an argument"),
        ("SELECT 5 % 2", {}, "single `%`"),
        ("SELECT %s", {}, "single `%`"),
        ("SELECT 1", {"parameters": ["${id}"]}, "named parameters only"),
        ("SELECT 1", {"secret": "OTHER"}, "is not declared"),
    ],
)
def test_manifests_that_cannot_work(shop: Crib, statement: str, config: dict[str, Any], what: str) -> None:
    tool(shop, statement, **config)
    assert what in "\n".join(one.message for one in shop.open().errors) + str(shop.call("q").error)
