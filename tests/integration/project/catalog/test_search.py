"""Search over a project's tools: order, filters, facets, and an index that may go at any time."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Forked
from tests.crib import Crib
from tests.patience import patient
from toolcrib.errors import InvalidInput
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.search import words_of
from toolcrib.spec import Call, Caller

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
    assert words_of("getHTTPStatus_of-x2 Ünder") == ["get", "http", "status", "of", "x2", "under"]
    assert words_of("Straße ΣΊΣΥΦΟΣ ﬁle") == ["strasse", "σισυφοσ", "file"]
    assert words_of("查天气API的") == ["查天", "天气", "api", "的"]


def test_beginnings_come_first_then_words_and_names_before_the_rest(crib: Crib) -> None:
    assert "facets" not in search(crib, "weather")
    found = search(crib, "weather", facets=True)
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
        ("railwya", "station"),
        ("weathernow", "weather_now"),
        ("fore cast", "forecast"),
        ("tell me whether to take it", "umbrella"),
    ],
)
def test_what_is_meant_comes_first(crib: Crib, query: str, first: str) -> None:
    assert names(crib, query)[0] == first


def test_the_very_name_and_the_whole_word_come_first(crib: Crib) -> None:
    for name in ("now", "now_and_then", "say_nowhere", "nowadays", "say_now"):
        add(crib, name, "Of time.")
    assert names(crib, "now") == ["now", "nowadays", "now_and_then", "say_now", "weather_now", "say_nowhere"]


def test_accents_do_not_count_and_unspaced_text_is_found_inside(crib: Crib) -> None:
    add(crib, "forecast_zh", "查询城市天气预报")
    add(crib, "menu", "Crème brûlée für die Straße.")
    for query in ("天气", "天", "报", "市天气预", "查询"):
        assert names(crib, query) == ["forecast_zh"]
    assert names(crib, "天市") == []
    for query in ("creme BRULEE", "crème", "fur strasse", "straße", "STRASSE"):
        assert names(crib, query) == ["menu"]


def test_some_of_the_words_are_better_than_none_and_rare_ones_weigh_more(crib: Crib) -> None:
    for number in range(40):
        add(crib, f"x{number}", "A common thing" + " apart" * (number % 8 == 0) + " oddly" * (number == 7))
    found = search(crib, "common apart oddly")
    assert found["hits"][0]["name"] == "x7"
    assert {(hit["match"], hit["field"]) for hit in found["hits"]} == {("some", "several")}
    assert found["total"] == 6
    assert names(crib, "nothing whatever") == []


def pages(
    crib: Crib, query: str, between: Callable[[], object] = lambda: None, **options: Any
) -> list[list[str]]:
    """All pages of a search, each in a project opened anew."""
    found: list[list[str]] = []
    page: str | None = None
    while True:
        part = search(crib, query, page=page, **options)
        found.append([hit["name"] for hit in part["hits"]])
        page = part["next"]
        if page is None:
            return found
        between()


def test_a_question_in_other_words_finds_each_tool_once(crib: Crib) -> None:
    for number in range(23):
        add(crib, f"delete_repo_{number}", "Gone for good.")
    add(crib, "show_repo", "Shows it.")
    found = pages(crib, "erase my codebase", limit=5)
    flat = [name for page in found for name in page]
    repos = {f"delete_repo_{number}" for number in range(23)}
    assert len(flat) == len(set(flat))
    assert repos <= set(flat[:24])  # There is another one that deletes.
    assert "show_repo" in flat[24:]


@pytest.mark.parametrize("query", ["weather", "many", "weahter", "kind of some"])
def test_pages_hold_each_hit_once_in_the_order_of_one_page(crib: Crib, query: str) -> None:
    for number in range(30):
        words = "many of some" + " weather" * (number % 3 == 0)
        add(crib, f"many_{number}" if number % 2 else f"n{number}", words, ("web",) * (number % 5 == 0))
    for options in (
        {},
        {"tags": ("web",)},
        {"identity": Caller("t", frozenset({"read"}), ("n*", "many_1*"))},
    ):
        whole = search(crib, query, limit=256, facets=True, **options)
        for limit in (1, 7):
            found = pages(crib, query, limit=limit, **options)
            assert {len(page) for page in found[:-1]} <= {limit}
            assert [name for page in found for name in page] == [hit["name"] for hit in whole["hits"]]
        assert whole["total"] == len(whole["hits"])
        assert sum(whole["facets"]["kinds"].values()) == whole["total"]


def test_pages_go_on_where_tools_change_meanwhile(crib: Crib) -> None:
    for number in range(20):
        add(crib, f"many_{number}", "Many.")
    late = iter(range(100))

    def change() -> None:
        add(crib, "many_0", "Many, anew.")
        add(crib, f"many_more_{next(late)}", "Many.")

    found = [name for page in pages(crib, "many", change, limit=3) for name in page]
    assert len(found) == len(set(found))
    assert set(found) >= {f"many_{number}" for number in range(1, 20)}


@pytest.mark.parametrize("page", ["", "x", "e30", "W10", "WzFd", "ä", "bnVsbA", "a" * 5_000])
def test_a_page_that_is_none_is_refused(crib: Crib, page: str) -> None:
    with pytest.raises(InvalidInput, match="not a token"):
        search(crib, "weather", page=page)


def test_a_page_of_another_search_and_a_wrong_limit_are_refused(crib: Crib) -> None:
    page = search(crib, "weather", limit=1, facets=True)["next"]
    assert names(crib, "WEATHER", page=page)
    for query, options in (
        ("forecast", {}),
        ("weather", {"tags": ("web",)}),
        ("weather", {"kinds": ("http",)}),
    ):
        with pytest.raises(InvalidInput, match="another search"):
            search(crib, query, page=page, **options)
    for limit in (0, 257):
        with pytest.raises(InvalidInput, match="a page of"):
            search(crib, "weather", limit=limit)


@pytest.mark.parametrize(
    "query", ['"', "AND", "a OR b*", "name:weather NOT x", "^(", "🦆", "%_", "'; DROP TABLE tools"]
)
def test_no_query_is_syntax(crib: Crib, query: str) -> None:
    if words_of(query):
        search(crib, query)
    else:
        with pytest.raises(InvalidInput):
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
    found = search(crib, "weather", facets=True, identity=identity)
    assert [hit["name"] for hit in found["hits"]] == ["getWeather", "forecast"]
    assert found["facets"]["tags"] == {"web": 1}


def test_hidden_tools_keep_no_typing_error_from_being_found(crib: Crib) -> None:
    add(crib, "wether", "Counts sheep.")
    identity = Caller("t", frozenset({"read"}), ("wether",))
    found = search(crib, "weather", identity=identity)
    assert ([hit["name"] for hit in found["hits"]], found["total"]) == (["wether"], 1)


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
    found = search(crib, "weather", limit=1, facets=True)
    assert [hit["name"] for hit in found["hits"]] == ["weather_now"]
    assert (found["total"], found["facets"]["kinds"]) == (5, {"command": 5})
    assert "weather_bad" not in names(crib, "weather")


def settle(path: Path) -> None:
    """Wait until a file is old enough for its times to show a change."""
    while time.time_ns() - path.stat().st_ctime_ns < 200_000_000:
        time.sleep(0.01)


async def test_two_that_search_in_turn_do_not_write_the_index_each_time(crib: Crib, tmp_path: Path) -> None:
    def ping(host: str) -> None:
        """Ask the weather station for a sign of life."""

    path = add(crib, "cloud", "The weather above.") / "tool.yml"
    async with crib.open() as early:  # The file is too new to show its next change.
        settle(path)
        async with crib.open() as late:
            for project in (early, late):
                project.toolset.register(ping)
            for project in (early, late, early, late):
                assert project.search("weather")["total"] == 7
            (state,) = (tmp_path / "cache").glob("*/search/state.json")
            written = state.stat().st_mtime_ns
            for project in (early, late, early, late):
                assert project.search("weather")["total"] == 7
            assert state.stat().st_mtime_ns == written


def test_two_processes_keep_each_their_own_tools_in_one_index(crib: Crib) -> None:
    async def both() -> list[int]:
        async with crib.open() as one, crib.open() as other:
            for number, project in enumerate((one, other, one, other)):
                if number < 2:

                    @project.toolset.tool
                    def juggle(balls: int) -> int:
                        """Throw and catch."""
                        return balls

                project.search("juggle")
            return [len(project.search("juggle")["hits"]) for project in (one, other, one, other)]

    assert asyncio.run(both()) == [1, 1, 1, 1]


async def test_tools_that_only_one_process_has_do_not_have_the_index_written_each_time(
    crib: Crib, tmp_path: Path
) -> None:
    def juggle(weather: int) -> int:
        """Throw and catch."""
        return weather

    async with crib.open() as one, crib.open() as other:
        one.toolset.register(juggle)
        deadline, before, after = time.monotonic() + patient(20), -1, 0
        # It is written again once, when the manifests are old enough to tell a later change by their times.
        while before != after:
            assert time.monotonic() < deadline
            for _ in range(3):
                assert [one.search("weather")["total"], other.search("weather")["total"]] == [6, 5]
                assert (one.suggest("juggle"), other.suggest("juggle")) == (["juggle"], [])
            assert other.search("wether juggel")["total"] == 5
            (state,) = (tmp_path / "cache").glob("*/search/state.json")
            before, after = after, state.stat().st_mtime_ns


def test_many_tools_that_are_gone_leave_the_index(crib: Crib, tmp_path: Path) -> None:
    for number in range(70):
        add(crib, f"more_{number}", "The weather again.")
    assert search(crib, "weather")["total"] == 75
    for number in range(70):
        shutil.rmtree(crib.home / f"tools/more_{number}")
    assert search(crib, "weather")["total"] == 5
    (state,) = (tmp_path / "cache").glob("*/search/state.json")
    assert "more_" not in state.read_text()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


def noise(folder: Path) -> None:
    for path in (folder / "tantivy").iterdir():
        path.write_bytes(os.urandom(5_000))


def half(folder: Path) -> None:
    for path in (folder / "tantivy").iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_state(folder: Path, state: Any) -> None:
    """Write another state in the form of this version."""
    path = folder / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": state}))


def unfinished(folder: Path) -> None:
    write_state(folder, None)


def another(folder: Path) -> None:
    (folder / "state.json").write_text('{"form": 0, "state": {}}')


def nonsense(folder: Path) -> None:
    write_state(folder, {"x": 7})


def open_to_others(folder: Path) -> None:
    folder.chmod(0o777)


def link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to("real")


def file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def fifo_of_the_state(folder: Path) -> None:
    (folder / "state.json").unlink()
    os.mkfifo(folder / "state.json")


def fifo_of_a_part(folder: Path) -> None:
    part = next((folder / "tantivy").glob("*.idx"))
    part.unlink()
    os.mkfifo(part)


@pytest.mark.parametrize(
    "harm",
    [
        gone,
        noise,
        half,
        unfinished,
        another,
        nonsense,
        open_to_others,
        link,
        file,
        fifo_of_the_state,
        fifo_of_a_part,
    ],
)
def test_the_index_is_made_anew(crib: Crib, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    before = names(crib, "weather")
    (index,) = (tmp_path / "cache").glob("*/search")
    assert index.stat().st_mode & 0o777 == 0o700
    harm(index)
    assert names(crib, "weather") == before
    assert names(crib, "weather") == before
    assert index.stat().st_mode & 0o777 == 0o700


def test_an_index_that_another_process_writes_is_left_alone(crib: Crib, tmp_path: Path) -> None:
    before = names(crib, "weather")
    (index,) = (tmp_path / "cache").glob("*/search")
    add(crib, "weather_then", "Later.")
    with (index / "lock").open() as lock:
        flock(lock, LOCK_EX)
        assert names(crib, "weather") == ["weather_then", *before]
        assert (index / "state.json").exists()
    assert names(crib, "weather") == ["weather_then", *before]


def test_a_writer_that_is_killed_leaves_no_wrong_index(crib: Crib) -> None:
    for number in range(60):
        add(crib, f"many_{number}", "Many.")
    code = "import sys; from toolcrib import Project; Project.open(sys.argv[1]).search('many')"
    for delay in range(12):
        add(crib, "weather_now", f"Changed {delay} times.")
        with Forked([sys.executable, "-c", code, str(crib.root)]) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2 + delay * 0.05)
            process.kill()
        found = search(crib, "many", limit=256)
        assert sorted(hit["name"] for hit in found["hits"]) == sorted(
            f"many_{number}" for number in range(60)
        )
        assert names(crib, f"changed {delay} times") == ["weather_now"]


def test_without_a_place_for_it_the_index_is_in_memory(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOOLCRIB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/nowhere")
    assert len(names(crib, "weather")) == 5


def suggest(crib: Crib, question: str, **options: Any) -> list[str]:
    async def once() -> list[str]:
        async with crib.open() as project:
            return list(project.suggest(question, **options))

    return asyncio.run(once())


def test_a_question_finds_tools_by_what_they_do(crib: Crib) -> None:
    add(crib, "remove_member", "Remove a user from an organization.")
    add(crib, "repos_list", "List repositories of an organization. Those that are archived are not in it.")
    add(crib, "avatar_put", "Set the avatar of a user.", properties={"size": {"type": "integer"}})
    assert suggest(crib, "kick somebody out of our company")[0] == "remove_member"
    assert suggest(crib, "which codebases does the firm have")[0] == "repos_list"
    assert suggest(crib, "a new profile picture for a colleague")[0] == "avatar_put"
    assert suggest(crib, "archiving")[0] == "repos_list"
    assert suggest(crib, "sizes")[0] == "avatar_put"
    assert suggest(crib, "erase the lot", limit=2)[0] == "delete_everything"
    assert suggest(crib, "of the zzz") == []
    assert suggest(crib, "") == []


def test_a_word_that_names_the_source_outweighs_the_others(crib: Crib) -> None:
    add(crib, "discord__send_message", "Send a message to a channel.")
    add(crib, "teams__send_message", "Send a message to a channel of a team.")
    add(crib, "slack__post_message", "Post a message to a channel.")
    add(crib, "slack__list_users", "List the people of a workspace.")
    add(crib, "sonos__play", "Play a song or station on a speaker.")
    add(crib, "music__play_song", "Play a song from a list.")
    add(crib, "spotify__start_playback", "Start or resume what plays on a device.")
    assert suggest(crib, "send a message to a channel on slack")[0] == "slack__post_message"
    assert suggest(crib, "play something on spotify")[0] == "spotify__start_playback"
    assert suggest(crib, "play a song")[0] != "spotify__start_playback"


@pytest.mark.parametrize(
    "question",
    [
        "weather",
        "weather of tomorrow",  # One tool has every word.
        "what will tomorrow be like outside",  # None has, and other tools are meant by some.
        "take a forecast of the railway",
    ],
)
def test_a_list_and_the_meta_tool_have_one_order(crib: Crib, question: str) -> None:
    async def both() -> tuple[list[str], list[str]]:
        async with crib.open() as project:
            listed = [hit["name"] for hit in project.search(question, limit=5)["hits"]]
            call = Call("tools_search", {"query": question, "limit": 5}, caller="cli")
            return listed, [tool["name"] for tool in (await McpCatalog(project).invoke(call)).unwrap()]

    listed, found = asyncio.run(both())
    assert listed
    assert found[: len(listed)] == listed


def test_a_question_finds_only_what_the_caller_may_see(crib: Crib) -> None:
    caller = Caller("t", frozenset({"read"}), ("umbrella", "forecast"))
    found = suggest(crib, "weather of today or tomorrow", identity=caller, caller="bot")
    assert sorted(found) == ["forecast", "umbrella"]
    assert len(suggest(crib, "weather of today or tomorrow")) == 5
