"""Search over bundles: its order, pages, what it leaves out, and an index that is derived and shared."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.commands import Forked, complete
from tests.conftest import need
from tests.crib import Crib
from toolcrib import Project
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.bundles.records import Translation
from toolcrib.errors import InvalidInput
from toolcrib.project.catalog import stored_search
from toolcrib.project.catalog.bundles import Bundles, Wish
from toolcrib.spec.identifier import new_id
from toolcrib.state import cache_folder

PUT = """
import sys, time
from pathlib import Path
from toolcrib.bundles import Store, ToolBody
store = Store(Path(sys.argv[1]))
for number in range(int(sys.argv[4])):
    tool = ToolBody(display_name=f"find {sys.argv[3]} {number}", type="http", impl={"urlTemplate": "https://x"})
    store.put_tool(sys.argv[2], f"{sys.argv[3]}-{number}", "1", tool)
    if number % 3 == 0:
        store.delete_tool(sys.argv[2], f"{sys.argv[3]}-{number}", "1")
"""
SEARCH = """
import sys, time
from pathlib import Path
from toolcrib import Project
project = Project.open(sys.argv[1])
print("ready", flush=True)
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    project.bundles.search("find", limit=256)
"""

LATE = """
import subprocess, sys
from pathlib import Path
from toolcrib import Project
from toolcrib.bundles import Store, ToolBody
root, cache, data, harm = sys.argv[1:]
bundles, store = Project.open(root).bundles, Store(Path(data))
totals = [bundles.search("find").total]
subprocess.run(["sh", "-c", harm, "sh", cache], check=True, stderr=subprocess.DEVNULL)
(bundle,) = [one.id for one in store.bundles()]
for number in (2, 3):
    body = ToolBody(description="It.", type="http", impl={"urlTemplate": "https://x"})
    store.put_tool(bundle, f"find-{number}", "1", body)
    totals.append(bundles.search("find").total)
print(*totals)
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    return Crib(tmp_path / "project")


@pytest.fixture
def root(crib: Crib) -> Path:
    return crib.root


@pytest.fixture
def store(data: Path) -> Store:
    return Store(data)


@pytest.fixture
def mine(store: Store) -> str:
    found = new_id()
    store.put_bundle(found, BundleBody(slug="mine"))
    return found


def tool(name: str = "", description: str = "", tags: tuple[str, ...] = (), *arguments: str) -> ToolBody:
    schema = {"type": "object", "properties": {one: {"type": "string"} for one in arguments}}
    return ToolBody(
        display_name=name, description=description or "It.", tags=tags, type="http",
        impl={"urlTemplate": "https://example.com"},
        arg_schema=schema,
    )  # fmt: skip


def found(among: Bundles, query: str, **options: object) -> list[str]:
    """The slugs of all hits, page by page."""
    slugs, page = [], None
    while True:
        hits = among.search(query, Wish(**options), limit=7, page=page)  # type: ignore[arg-type]
        slugs += [hit.slug for hit in hits.tools]
        page = hits.next
        if page is None:
            return slugs


@pytest.mark.parametrize(("query", "page"), [("", None), (" -", None), ("a", "x")])
async def test_a_wrong_search_is_refused_before_there_is_a_bundle(
    root: Path, data: Path, query: str, page: str | None
) -> None:
    async with Project.open(root) as project:
        assert not (data / "bundles").exists()
        assert found(project.bundles, "a") == []
        with pytest.raises(InvalidInput):
            project.bundles.search(query, page=page)


def test_the_order_is_that_of_classes_on_every_page(root: Path, store: Store, mine: str) -> None:
    ways: dict[str, tuple[str, ToolBody]] = {
        "whole name": ("weather", tool("Sun")),
        "beginning of the slug": ("weather-now", tool("Sun")),
        "beginning of the name": ("a", tool("Weather station")),
        "beginning of a tag": ("b", tool("x", tags=("weather_map",))),
        "beginning of the description": ("c", tool("x", "Weather of tomorrow.")),
        "beginning of an argument": ("d", tool("x", "It.", (), "weather")),
        "word of the name": ("getWeather", tool("Sun")),
        "word of a tag": ("e", tool("x", tags=("the_weather",))),
        "word of the description": ("f", tool("x", "The weather.")),
        "word of an argument": ("g", tool("x", "It.", (), "theWeather")),
        "typing error in the name": ("leather", tool("Sun")),
        "typing error in a tag": ("h", tool("x", tags=("wether",))),
        "typing error in the description": ("i", tool("x", "The wether.")),
    }
    chance = random.Random(1)
    mixed = list(ways.values())
    chance.shuffle(mixed)
    for slug, body in mixed:
        store.put_tool(mine, slug, "1", body)
    expected = [slug for slug, _ in ways.values()]
    bundles = Project.open(root).bundles
    names = {"weather-now", "a"}  # one class: the last one put comes first
    got = found(bundles, "weather")
    assert [one for one in got if one not in names] == [one for one in expected if one not in names]
    assert got.index("weather") == 0
    assert {got[1], got[2]} == names
    assert {*found(bundles, "weathre")[:4]} == {"weather", *names, "getWeather"}  # a typing error
    assert bundles.search("weather").total == len(ways)


def test_words_of_any_script_and_spelling(root: Path, store: Store, mine: str) -> None:
    store.put_tool(mine, "查天气", "1", tool("查询城市天气预报"))
    store.put_tool(mine, "menu", "1", tool("Crème brûlée"))
    store.put_tool(mine, "x", "1", tool("x", "It.", (), "snake_case_argument"))
    bundles = Project.open(root).bundles
    assert found(bundles, "天气") == ["查天气"]
    assert found(bundles, "creme BRULEE") == ["menu"]
    assert found(bundles, "caseArgument") == ["x"]


def test_the_words_of_every_language_of_a_record_are_found(root: Path, store: Store, mine: str) -> None:
    german = {"de": Translation(display_name="Vorhersage", description="Das Wetter. Auch Regen.")}
    store.put_tool(mine, "sky", "1", msgspec.structs.replace(tool("Forecast"), translations=german))
    store.put_tool(mine, "sea", "1", tool("Regenbogen"))
    bundles = Project.open(root).bundles
    for query in ("vorhersage", "Vorher", "wetter", "vorhersahe", "forecast"):
        assert found(bundles, query) == ["sky"], query
    assert found(bundles, "regen") == ["sea", "sky"]  # A beginning goes before a word.
    store.put_tool(mine, "sky", "2", tool("Forecast"))
    assert [one.version for one in bundles.search("vorhersage").tools] == ["1"]


def test_each_hit_is_on_one_page_while_tools_come_go_and_are_switched(
    root: Path, store: Store, mine: str
) -> None:
    chance = random.Random(7)
    stay = {f"find-{number}" for number in range(60)}
    for slug in sorted(stay):
        store.put_tool(mine, slug, "1", tool(chance.choice(["Find it", "To find", "Finds"])))
    bundles = Project.open(root).bundles
    got, page = [], None
    for round_ in range(100):
        hits = bundles.search("find", limit=4, page=page)
        got += [hit.slug for hit in hits.tools]
        page = hits.next
        if page is None:
            break
        store.put_tool(mine, f"late-find-{round_}", "1", tool("Find it"))
        if round_ > 2:
            store.delete_tool(mine, f"late-find-{round_ - 2}", "1")
    assert stay <= set(got)
    assert len(got) == len(set(got))


def test_filters_and_disabled_tools(root: Path, store: Store, mine: str) -> None:
    other = new_id()
    store.put_bundle(other, BundleBody(slug="other"))
    for number in range(12):
        store.put_tool((mine, other)[number % 2], f"find-{number}", "1", tool("x", tags=(f"t{number % 3}",)))
    bundles = Project.open(root).bundles
    assert len(found(bundles, "find")) == 12
    assert set(found(bundles, "find", bundles=[other])) == {
        f"find-{number}" for number in (1, 3, 5, 7, 9, 11)
    }
    assert set(found(bundles, "find", tags=["t0"])) == {"find-0", "find-3", "find-6", "find-9"}
    for number in range(0, 12, 4):
        store.switch_tool(mine, f"find-{number}", "1", enabled=False)
    assert len(found(bundles, "find")) == bundles.search("find").total == 9
    store.switch_bundle(other, enabled=False)
    assert set(found(bundles, "find")) == {"find-2", "find-6", "find-10"}
    assert bundles.search("find").total == 3
    assert sum(name.startswith("find") for name in found(bundles, "find", include_disabled=True)) == 12
    store.switch_bundle(other, enabled=True)
    assert len(found(bundles, "find")) == 9


def test_tools_of_the_same_time_are_all_found(
    root: Path, store: Store, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_search, "_rank", lambda tool: 1_000_001)
    for number in range(20):
        store.put_tool(mine, f"find-{number}", "1", tool())
    bundles = Project.open(root).bundles
    assert sorted(found(bundles, "find")) == sorted(f"find-{number}" for number in range(20))
    store.put_tool(mine, "find-late", "1", tool())
    again = Project.open(root).bundles
    for one in (again, bundles):
        assert len(found(one, "find")) == len(set(found(one, "find"))) == 21
    store.delete_tool(mine, "find-3", "1")
    for one in (again, bundles):
        assert len(found(one, "find")) == 20


def test_a_bundle_that_was_copied_by_hand_with_a_new_id_is_found_beside_the_first(
    root: Path, store: Store, mine: str, data: Path
) -> None:
    store.put_tool(mine, "find", "1", tool())
    other = new_id()
    shutil.copytree(data / "bundles" / mine, data / "bundles" / other)
    for record in (data / "bundles" / other).rglob("*.json"):
        record.write_text(record.read_text().replace(mine, other))
    bundles = Project.open(root).bundles
    assert found(bundles, "find") == ["find", "find"]
    store.delete_tool(mine, "find", "1")
    assert [hit.bundle_id for hit in bundles.search("find").tools] == [other]


def test_the_index_may_be_gone_or_damaged(root: Path, store: Store, mine: str, tmp_path: Path) -> None:
    def harmed(path: Path) -> None:
        path.write_bytes(random.Random(1).randbytes(300))

    for number in range(10):
        store.put_tool(mine, f"find-{number}", "1", tool())
    bundles = Project.open(root).bundles
    assert len(found(bundles, "find")) == 10
    index = (cache_folder(tmp_path / "data") or tmp_path) / "search"
    harms: list[Callable[[], object]] = [
        lambda: shutil.rmtree(index),
        lambda: harmed(index / "state.json"),
        lambda: harmed(index / "tantivy" / "meta.json"),
        (index / "tantivy" / "meta.json").unlink,
        lambda: (index / "state.json").write_text('{"form": 2, "state": {"position": 1, "moved": 2}}'),
        (tmp_path / "data" / "journal").unlink,
        lambda: shutil.rmtree(tmp_path / "cache"),
    ]
    for number, harm in enumerate(harms):
        harm()
        assert len(found(Project.open(root).bundles, "find")) == 10 + number
        store.put_tool(mine, f"find-late-{number}", "1", tool())
        assert len(found(bundles, "find")) == 11 + number


@pytest.mark.parametrize(
    "harm",
    [
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"',
        "head -c 9m /dev/zero > $1/full || true",
    ],
)
def test_an_index_that_can_no_longer_be_written_is_made_in_memory(
    root: Path, store: Store, mine: str, tmp_path: Path, harm: str
) -> None:
    store.put_tool(mine, "find-1", "1", tool())
    cache = tmp_path / "cache"
    cache.mkdir()
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$4" "$1" "$5" "$6"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    command = [*unshare, str(cache), sys.executable]
    tried = subprocess.run([*command, "pass"], capture_output=True, check=False)
    need("mounts in a user namespace", tried.returncode == 0)
    command += [LATE, str(root), str(tmp_path / "data"), harm]
    # In there the owner of /tmp is nobody, and settings below a folder of nobody's are refused.
    env = {key: value for key, value in os.environ.items() if key != "TOOLCRIB_CONFIG"}
    env |= {"XDG_CONFIG_HOME": str(tmp_path / "none")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (0, "1 2 3\n"), done.stderr


def test_what_another_process_puts_is_found_within_a_second(
    root: Path, store: Store, mine: str, data: Path
) -> None:
    keeper, reader = Project.open(root).bundles, Project.open(root).bundles
    assert found(keeper, "find") == found(reader, "find") == []
    complete([sys.executable, "-c", PUT, str(data), mine, "a", "30"], check=True)
    assert len(found(reader, "find")) == len(found(keeper, "find")) == 20


def test_searching_processes_that_are_killed_while_others_write_leave_a_right_index(
    root: Path, store: Store, mine: str, data: Path
) -> None:
    chance = random.Random(3)
    bundles = Project.open(root).bundles
    for round_ in range(4):
        searching = [
            Forked([sys.executable, "-c", SEARCH, str(root), "60"], stdout=subprocess.PIPE) for _ in range(2)
        ]
        for process in searching:
            assert process.stdout is not None
            process.stdout.readline()
        writing = Forked([sys.executable, "-c", PUT, str(data), mine, f"r{round_}", "45"])
        time.sleep(chance.uniform(0.1, 0.6))
        for process in searching:
            process.kill()
            assert process.wait() == -signal.SIGKILL
            process.stdout.close()  # type: ignore[union-attr]
        assert writing.wait() == 0
        stored = sorted(one.slug for one in store.tools(mine))
        assert len(stored) == (round_ + 1) * 30
        assert sorted(found(bundles, "find")) == stored
        assert sorted(found(Project.open(root).bundles, "find")) == stored


def test_a_project_finds_its_own_tools_and_those_of_bundles_as_one_list(
    crib: Crib, root: Path, store: Store, mine: str
) -> None:
    for number in range(5):
        store.put_tool(mine, f"find-{number}", "1", tool(tags=("web",)))
        crib.tool(f"find_own{number}", "command", {"entrypoint": "true"})
    store.put_tool(mine, "x", "1", tool("The last to find"))
    project = Project.open(root)
    names, page = [], None
    while True:
        got = project.search("find", limit=3, page=page, facets=True)
        assert got["total"] == 11
        assert got["facets"] == {"tags": {"web": 5}, "kinds": {"command": 5, "http": 6}}
        names += [hit["name"] for hit in got["hits"]]
        page = got["next"]
        if page is None:
            break
    own, stored = (
        [f"find_own{number}" for number in range(5)],
        [f"mine/find-{number}@1" for number in range(5)],
    )
    assert sorted(names[:10]) == sorted([*own, *stored])  # One class, the last changed first
    changed = {
        name: store.tool(mine, f"find-{number}", "1").modified_at[:23] for number, name in enumerate(stored)
    }
    found = [changed[name] for name in names if name in changed]
    assert found == sorted(found, reverse=True)  # to the millisecond
    assert names[10] == "mine/x@1"
    hits = project.search("fnid", kinds=["http"], limit=9)["hits"]
    assert [hit["match"] for hit in hits] == ["fuzzy"] * 6


async def test_searches_in_threads_beside_whoever_keeps_the_index_do_not_wait_for_each_other_for_ever(
    root: Path, store: Store, mine: str
) -> None:
    async with Project.open(root) as project:
        await project.watch()

        def work(name: str) -> None:
            for number in range(15):
                store.put_tool(mine, f"find-{name}-{number}", "1", tool())
                slugs = {hit.slug for hit in project.bundles.search("find", limit=256).tools}
                assert f"find-{name}-{number}" in slugs

        async with asyncio.timeout(100):
            await asyncio.gather(*(asyncio.to_thread(work, f"t{one}") for one in range(4)))
