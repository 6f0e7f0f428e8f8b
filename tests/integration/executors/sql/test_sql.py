"""SQL tools: one bound statement on a SQLite file, run by a confined interpreter."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed

pytestmark = pytest.mark.usefixtures("kernel")

ARGUMENTS: dict[str, Any] = {"name": {"type": "string"}, "age": {}}
READ = {"fs": {"read": ["data"]}}
DATA = Path(__file__).parents[3] / "data" / "dialects"


@pytest.fixture
def shop(crib: Crib) -> Crib:
    (crib.root / "data").mkdir()
    with sqlite3.connect(crib.root / "data/shop.db") as database:
        database.execute("CREATE TABLE users (name TEXT, age INTEGER, photo BLOB)")
        database.execute("INSERT INTO users VALUES ('Ann', 30, x'00ff'), ('Bob', 20, NULL)")
    database.close()
    return crib


def tool(crib: Crib, statement: str, *parameters: Any, name: str = "q", **more: Any) -> None:
    config: dict[str, Any] = {"engine": "sqlite", "database": "data/shop.db", "statement": statement}
    config |= {"parameters": list(parameters), **more.pop("config", {})}
    crib.tool(name, "sql", config, ARGUMENTS, **{"permissions": READ, **more})


def test_rows_come_back_as_objects(shop: Crib) -> None:
    tool(shop, "SELECT * FROM users WHERE age >= ? ORDER BY age", "${age}")
    assert shop.call("q", {"age": 10}).value == [
        {"name": "Bob", "age": 20, "photo": None},
        {"name": "Ann", "age": 30, "photo": "AP8="},
    ]
    assert shop.call("q", {"age": 99}).value == []


@pytest.mark.parametrize("kind", ["sql", "python", "command"])
def test_a_process_on_the_machines_own_network_asks_for_each_call(shop: Crib, kind: str) -> None:
    host = {"permissions": {"network": "host", **READ}}
    if kind == "sql":
        tool(shop, "SELECT 1 AS a", name="any", **host)
    elif kind == "python":
        shop.python("def run():\n    return 1", "any", **host)
    else:
        shop.tool("any", "command", {"entrypoint": "echo", "args": ["1"]}, **host)
    assert "all of this machine's network" in failed(shop.call("any"), "approval_required")
    assert shop.call("any", approved_by="ann").ok
    assert "all of this machine's network" in failed(shop.call("any"), "approval_required")


@pytest.mark.parametrize(
    "hostile",
    [
        "' OR 1=1 --",
        "'; DROP TABLE users; --",
        "\x00",
        '"',
        "${age}",
        "?",
        "%' ESCAPE '",
        "\ud7ff",
        "x" * 100_000,
    ],
)
def test_a_value_is_only_ever_a_value(shop: Crib, hostile: str) -> None:
    tool(shop, "SELECT ? AS said, (SELECT count(*) FROM users) AS users", "${name}")
    assert shop.call("q", {"name": hostile}).value == [{"said": hostile, "users": 2}]


def test_values_keep_their_types_and_absent_ones_are_null(shop: Crib) -> None:
    tool(shop, "SELECT typeof(?) AS a, typeof(?) AS b, ? AS c", "${age}", "${name}", 7)
    for value, kind in ((1, "integer"), (1.5, "real"), ("1", "text"), (None, "null"), (True, "integer")):
        assert shop.call("q", {"age": value}).value == [{"a": kind, "b": "null", "c": 7}]
    tool(shop, "SELECT value FROM json_each(?)", "${age}", name="each")
    assert shop.call("each", {"age": [1, "a"]}).value == [{"value": 1}, {"value": "a"}]


def test_a_file_is_only_read_unless_the_manifest_grants_more(shop: Crib) -> None:
    write = "INSERT INTO users VALUES (?, ?, NULL)"
    tool(shop, write, "${name}", "${age}", name="closed")
    tool(shop, write, "${name}", "${age}", name="open", permissions={"fs": {"write": ["data"]}})
    tool(shop, "SELECT count(*) AS n FROM users")
    expected = failed(shop.call("closed", {"name": "Cy", "age": 1}), "tool_failed")
    assert "permissions.fs.write" in expected
    assert shop.call("q", {}).value == [{"n": 2}]
    assert shop.call("open", {"name": "Cy", "age": 1}).value == {"changed": 1}
    assert shop.call("q", {}).value == [{"n": 3}]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("ATTACH DATABASE 'data/other.db' AS other", "not authorized"),
        ("PRAGMA query_only = OFF", "not authorized"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT name, name FROM users", "appear twice"),
        ("SELECT * FROM absent", "no such table"),
        ("SELECT ?", "number of bindings"),
        ("SELECT 9e999 AS big", "not JSON compliant"),
        ("VACUUM INTO 'data/copy.db'", ""),
    ],
)
def test_what_a_statement_may_not_do_is_an_error(shop: Crib, statement: str, expected: str) -> None:
    tool(shop, statement)
    assert expected in failed(shop.call("q", {}), "tool_failed")
    assert sorted(path.name for path in (shop.root / "data").iterdir()) == ["shop.db"]


def test_a_statement_that_never_ends_is_ended(shop: Crib) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    tool(shop, endless, config={"timeout_ms": 500})
    failed(shop.call("q", {}), "timed_out")


def test_too_many_rows_are_an_error_and_not_cut(shop: Crib) -> None:
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 9999) SELECT x FROM c"
    tool(shop, many, limits={"output_bytes": 1000})
    assert "more than its limit of 1,000" in failed(shop.call("q", {}), "tool_failed")


def test_what_is_missing_is_said(shop: Crib) -> None:
    tool(shop, "SELECT 1", name="none", permissions={})
    failed(shop.call("none"), "permission_denied")
    tool(shop, "SELECT 1", name="gone", config={"database": "data/gone.db"})
    assert "does not exist" in failed(shop.call("gone"), "tool_unavailable")
    for engine, said in (("postgres", "name of the declared secret"), ("mysql", "one of sqlite, postgres")):
        tool(shop, "SELECT 1", name="other", config={"engine": engine})
        assert said in failed(shop.call("other"), "invalid_manifest")
    shop.write("data/text.db", "no database at all, only text " * 100)
    tool(shop, "SELECT * FROM sqlite_master", name="text", config={"database": "data/text.db"})
    assert "not a database" in failed(shop.call("text"), "tool_failed")


def test_a_link_out_of_the_grant_is_refused(shop: Crib, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "outside.db") as outside:
        outside.execute("CREATE TABLE t (a)")
    outside.close()
    (shop.root / "data/link.db").symlink_to(tmp_path / "outside.db")
    tool(shop, "SELECT * FROM t", config={"database": "data/link.db"})
    failed(shop.call("q"), "permission_denied")


def test_it_runs_without_namespaces(
    shop: Crib, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tool(shop, "SELECT name FROM users WHERE age > ?", "${age}")
    tool(shop, "SELECT * FROM nowhere", name="wrong")
    (shop.home / "config.yml").write_text("sandbox: {minimum: landlock}\n")
    shop.trust()
    monkeypatch.setattr("toolcrib.sandbox.levels.choice.in_force", cache(lambda: "landlock"))
    found = shop.call("q", {"age": 25})
    assert found.value == [{"name": "Ann"}]
    assert (found.details or {})["enforcement"]["level"] == "landlock"
    caplog.set_level("DEBUG")
    assert failed(shop.call("wrong"), "tool_failed") == "OperationalError: no such table: nowhere"
    assert "Traceback" not in caplog.text, "there is no code of a tool in it"


def test_a_registered_function_runs_for_a_manifest_that_refers_to_it(crib: Crib) -> None:
    record = (
        '{"slug": "weather", "version": "1", "description": "Weather", "type": "go",'
        ' "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},'
        ' "outputSchema": {"type": "string"}, "impl": {"goFunc": "github.com/acme/agent/tools.Weather"}}'
    )
    crib.write(".toolcrib/tools/weather/tool.json", record)

    def weather(city: str) -> Any:
        return f"sunny in {city}" if city != "X" else 7

    async def calls() -> tuple[Any, ...]:
        async with crib.open() as project:
            missing = await project.call("weather", {"city": "Bern"})
        async with crib.open() as project:
            project.functions.register("Weather", weather)
            return (
                missing,
                await project.call("weather", {"city": "Bern"}),
                await project.call("weather", {"city": "X"}),
                await project.call("weather", {}),
            )

    missing, good, bad, wrong = asyncio.run(calls())
    assert "not registered" in failed(missing, "tool_unavailable")
    assert good.value == "sunny in Bern"
    failed(bad, "invalid_output")
    failed(wrong, "invalid_input")
