"""Search over a project's tools: order, filters, facets, and an index that may go at any time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib.errors import UsageError
from toolcrib.project.search_index import words_of
from toolcrib.spec import Caller

BLOCK = {"entrypoint": "true"}


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    crib = Crib(tmp_path / "project")
    add(crib, "weather_now", "Tells how it is outside.", ("sky", "web"))
    add(crib, "getWeather", "Asks a station.", ("web",))
    add(crib, "forecast", "The weather of tomorrow.")
    add(crib, "umbrella", "Whether to take one.", ("weather",))
    add(crib, "station", "Of a railway.", properties={"weather": {"type": "string", "description": "It."}})
    add(crib, "delete_everything", "Removes all.")
    return crib


def add(crib: Crib, name: str, description: str, tags: tuple[str, ...] = (), **more: Any) -> Path:
    return crib.tool(name, "command", BLOCK, more.pop("properties", None), description=description,
                     tags=list(tags), **more)  # fmt: skip


def search(crib: Crib, query: str, **options: Any) -> dict[str, Any]:
    async def once() -> dict[str, Any]:
        async with crib.open() as project:
            return project.search(query, **options)

    return asyncio.run(once())


def names(crib: Crib, query: str, **options: Any) -> list[str]:
    return [hit["name"] for hit in search(crib, query, **options)["hits"]]


def test_words() -> None:
    assert words_of("getHTTPStatus_of-x2 Ünder") == ["get", "http", "status", "of", "x2", "ünder"]


def test_beginnings_come_first_then_words_and_names_before_the_rest(crib: Crib) -> None:
    found = search(crib, "weather")
    assert [(hit["name"], hit["match"], hit["field"]) for hit in found["hits"]] == [
        ("weather_now", "prefix", "name"),
        ("umbrella", "prefix", "tags"),
        ("station", "prefix", "arguments"),
        ("getWeather", "word", "name"),
        ("forecast", "word", "description"),
    ]
    assert found["total"] == 5
    assert found["facets"] == {"tags": {"web": 2, "sky": 1, "weather": 1}, "kinds": {"command": 5}}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("weath", "weather_now"),
        ("get wea", "getWeather"),
        ("GETWEATHER", "getWeather"),
        ("weahter now", "weather_now"),
        ("delete evrything", "delete_everything"),
        ("forcast", "forecast"),
        ("umbrlela", "umbrella"),
        ("railway station", "station"),
    ],
)
def test_what_is_meant_comes_first(crib: Crib, query: str, first: str) -> None:
    assert names(crib, query)[0] == first


@pytest.mark.parametrize(
    "query", ['"', "AND", "a OR b*", "name:weather NOT x", "^(", "🦆", "%_", "'; DROP TABLE tools"]
)
def test_no_query_is_syntax(crib: Crib, query: str) -> None:
    if words_of(query):
        search(crib, query)
    else:
        with pytest.raises(UsageError):
            search(crib, query)
    assert len(names(crib, "weather")) == 5


def test_filters_and_limit(crib: Crib) -> None:
    assert names(crib, "weather", tags=("web",)) == ["weather_now", "getWeather"]
    assert names(crib, "weather", tags=("web", "weather")) == ["weather_now", "umbrella", "getWeather"]
    assert names(crib, "weather", kinds=("http",)) == []
    found = search(crib, "weather", limit=2)
    assert (len(found["hits"]), found["total"]) == (2, 5)


def test_only_what_the_caller_may_see(crib: Crib) -> None:
    identity = Caller("t", frozenset({"read"}), ("get*", "forecast"))
    found = search(crib, "weather", identity=identity)
    assert [hit["name"] for hit in found["hits"]] == ["getWeather", "forecast"]
    assert found["facets"]["tags"] == {"web": 1}


def test_changes_are_found_by_the_next_search(crib: Crib) -> None:
    assert names(crib, "station") == ["station", "getWeather"]
    add(crib, "getWeather", "Asks nobody.")
    add(crib, "station_two", "Another.")
    (crib.home / "tools" / "station" / "tool.yml").unlink()
    assert names(crib, "station") == ["station_two"]


def test_functions_are_found_while_they_are_there(crib: Crib) -> None:
    async def both() -> tuple[Any, Any]:
        async with crib.open() as project:
            before = project.search("juggle")["hits"]

            @project.toolset.tool
            def juggle(balls: int) -> int:
                """Throw and catch."""
                return balls

            return before, project.search("juggle")["hits"]

    before, after = asyncio.run(both())
    assert (before, [hit["kind"] for hit in after]) == ([], ["function"])
    assert names(crib, "juggle") == []


def test_a_tool_that_cannot_be_used_is_no_hit(crib: Crib) -> None:
    add(crib, "weather_bad", "Bad.", properties={"a": {"type": "nothing", "description": "It."}})
    assert "weather_bad" not in names(crib, "weather")


def gone(path: Path) -> None:
    path.unlink()


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(5_000))


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8192])


def another(path: Path) -> None:
    import sqlite3

    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE tools (x)")
        database.execute("PRAGMA user_version = 3")
    database.close()
    path.chmod(0o600)


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [gone, noise, half, another, link, folder])
def test_the_index_is_made_anew(crib: Crib, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    before = names(crib, "weather")
    (index,) = (tmp_path / "cache").glob("*/search.db")
    assert index.stat().st_mode & 0o777 == 0o600
    harm(index)
    assert names(crib, "weather") == before


def test_without_a_place_for_it_the_index_is_in_memory(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOOLCRIB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/nowhere")
    assert len(names(crib, "weather")) == 5
