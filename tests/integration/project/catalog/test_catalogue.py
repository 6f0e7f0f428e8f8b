"""The one catalogue: every tool by its source, with one record, addresses, orders, counts and switches."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.commands import PROGRAM
from tests.crib import Crib, accept, failed
from tests.mcp_servers import RAW, mount
from tests.postgres import PostgresProcess
from toolcrib import Project, Toolset
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.errors import InvalidInput
from toolcrib.project.catalog.bundles import Wish
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.spec import Caller
from toolcrib.spec.identifier import new_id
from toolcrib.state import Vault

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
BLOCK = {"entrypoint": "echo", "args": ["1"]}
WEB = ToolBody(display_name="Web", type="http", impl={"urlTemplate": "https://example.com/"})


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"TOOLCRIB_{name}", str(tmp_path / name.lower()))
    monkeypatch.delenv("DATABASE_URL", raising=False)
    return Crib(tmp_path / "project")


def command(crib: Crib, name: str, **more: Any) -> Path:
    return crib.tool(name, "command", BLOCK, **more)


def all_of(project: Project, **wish: Any) -> dict[str, Any]:
    return {tool.name: tool for tool in project.bundles.all(Wish(**wish))}


def put(crib: Crib, slug: str) -> str:
    store, bundle = Store(Vault(crib.root).data), new_id()
    store.put_bundle(bundle, BundleBody(slug="mine"))
    store.put_tool(bundle, slug, "v1", WEB)
    return bundle


async def test_each_source_is_a_bundle_and_each_tool_is_there_once(crib: Crib) -> None:
    command(crib, "word_count", tags=["text"], version="2.0", owner="Ann")
    put(crib, "get")
    mount(crib, "s", f"{RAW}\nmain()")
    async with crib.open() as project:

        @project.toolset.tool
        def juggle(balls: int) -> int:
            """Throw and catch."""
            return balls

        McpCatalog(project)  # Its meta-tools are of no source.
        assert project.servers is not None
        await project.servers.ready()
        tools = all_of(project)
        sources = {name: tool.source for name, tool in tools.items() if tool.source != "server"}
        assert sources == {"word_count": "project", "juggle": "project", "mine/get@v1": "user"}
        assert {tool.bundle for tool in tools.values() if tool.source == "server"} == {"s"}
        assert set(all_of(project, sources=["server"])) == set(tools) - set(sources)
        own, function = tools["word_count"], tools["juggle"]
        assert (own.slug, own.version, own.kind, own.type) == ("word-count", "2.0", "command", "native")
        assert (own.tags, own.owner, own.touches, own.asks) == (
            ("text",),
            "Ann",
            ["nothing of this machine"],
            None,
        )
        assert (function.slug, function.version, function.type) == ("juggle", "1", "go")
        written = (crib.home / "tools/word_count/tool.yml").stat().st_mtime
        assert own.created_at == own.modified_at
        assert abs(time.mktime(time.strptime(own.created_at[:19], "%Y-%m-%dT%H:%M:%S")) - written) < 86_400
        bundles = {one.source: one for one in project.bundles.bundle_answers(project.bundles.store.bundles())}
        assert {name: one.tool_count for name, one in bundles.items()} == {
            "project": 2, "user": 1, "builtin": 14, "server": len(tools) - len(sources),
        }  # fmt: skip
        assert all(UUID7.fullmatch(one.id) for one in (*bundles.values(), *tools.values()))
    async with crib.open() as later:
        assert all_of(later)["word_count"].id == own.id
    assert Vault(crib.root).path.exists()
    elsewhere = Crib(crib.root.parent / "other")
    command(elsewhere, "word_count")
    async with elsewhere.open() as other:
        assert all_of(other)["word_count"].bundle_id != own.bundle_id


def test_two_names_of_one_slug_have_two_addresses_that_do_not_depend_on_their_order(crib: Crib) -> None:
    found = []
    for names in (("a-b", "a_b"), ("a_b", "a-b")):
        project = crib.open()
        for name in names:
            project.toolset.register(name, lambda: None, description="It.")
        found.append({name: tool.slug for name, tool in all_of(project).items()})
        listed = project.bundles.stored.find(found[-1]["a_b"])
        assert listed is not None
        assert listed.full == "a_b"
    assert found[0] == found[1]
    assert found[0]["a-b"] == "a-b"
    assert re.fullmatch(r"a-b-[0-9a-f]{8}", found[0]["a_b"])


@pytest.mark.parametrize("name", ["x" * 64, "Ärger", "查天气", "_", "-"])
def test_any_name_has_an_address(crib: Crib, name: str) -> None:
    project = crib.open()
    project.toolset.register(name, lambda: None, description="It.")
    (tool,) = all_of(project).values()
    record = project.bundles.store.tool(tool.bundle_id, tool.slug, tool.version)
    assert 1 <= len(record.slug) <= 64
    assert project.bundles.name(tool.bundle_id, tool.slug, tool.version) == name


def pages(project: Callable[[], Project], between: Callable[[], object], **options: Any) -> list[str]:
    found, page = [], None
    while True:
        got = project().list_tools(page=page, **options)
        found += [tool.name for tool in got.tools]
        page = got.next
        if page is None:
            return found
        between()


SORTS = ("name", "createdAt", "modifiedAt", "callCount", "lastCalledAt")


@pytest.mark.parametrize("sort", SORTS)
async def test_pages_have_the_order_of_the_first_one_whatever_changes(crib: Crib, sort: Any) -> None:
    names = [f"t{number}" for number in range(12)]
    for number, name in enumerate(names):
        file = command(crib, name) / "tool.yml"
        os.utime(file, (number + 1e9, number + 1e9))
    async with crib.open() as project:
        calls = {"t3": 3, "t7": 2, "t5": 1}
        for name in ("t5", "t7", "t3"):
            for _ in range(calls[name]):
                assert (await project.call(name)).ok
        first = [tool.name for tool in project.list_tools(sort=sort).tools]
        expected = {
            "name": sorted(names),
            "createdAt": names[::-1],
            "modifiedAt": names[::-1],
            "callCount": ["t3", "t7", "t5", *(name for name in names[::-1] if name not in calls)],
            "lastCalledAt": ["t3", "t7", "t5", *(name for name in names[::-1] if name not in calls)],
        }
        assert first == expected[sort]
        changing = iter(range(100))

        def change() -> None:
            number = next(changing)
            project.toolset.register(f"a_late_{number}", lambda: None, description="It.")
            for one in project.bundles.all()[:3]:  # Those are called often from now on.
                for _ in range(9):
                    project.bundles.usage.count(one.id, failed=False)

        assert pages(lambda: project, change, sort=sort, limit=5) == first


@pytest.mark.parametrize("sort", SORTS)
def test_pages_go_on_in_another_process(crib: Crib, sort: Any) -> None:
    for number in range(7):
        command(crib, f"t{number}")
    whole = pages(crib.open, lambda: None, sort=sort, limit=256)
    assert pages(crib.open, lambda: None, sort=sort, limit=3) == whole
    token = crib.open().list_tools(sort=sort, limit=3).next
    for other, options in ((sort, {"tags": ["x"]}), ("name" if sort != "name" else "createdAt", {})):
        with pytest.raises(InvalidInput, match="another search"):
            crib.open().list_tools(sort=other, limit=3, page=token, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("sort", ["callCount", "lastCalledAt"])
def test_a_page_of_another_process_begins_where_its_last_tool_was_at_first(crib: Crib, sort: Any) -> None:
    for number in range(7):
        command(crib, f"t{number}")
    project = crib.open()
    whole = project.list_tools(sort=sort)
    page = project.list_tools(sort=sort, limit=3)
    project.bundles.usage.count(whole.tools[5].id, failed=False)  # The last of the second page is called.
    page = project.list_tools(sort=sort, limit=3, page=page.next)
    project.bundles.usage.flush()
    assert [tool.name for tool in page.tools] == [tool.name for tool in whole.tools[3:6]]
    page = crib.open().list_tools(sort=sort, limit=3, page=page.next)
    assert [tool.name for tool in page.tools] == [whole.tools[6].name]


def test_a_page_is_bounded_in_bytes_and_one_tool_has_its_whole_text(crib: Crib) -> None:
    long = "It does a lot. " * 400
    for number in range(8):
        permissions = {"fs": {"read": [f"{letter}{'x' * 2_000}" for letter in "abcdefghijklmnopqrstuvwxyz"]}}
        command(crib, f"t{number}", description=long, permissions=permissions)
    project = crib.open()
    page = project.list_tools(limit=8)
    assert all(len(tool.description) < 400 for tool in page.tools)
    assert len(page.tools) == 8
    assert sum(len(line) for tool in page.tools for line in tool.touches) < 40_000
    answer = project.bundles.tool("t3")
    assert answer is not None
    assert (answer.description, len(answer.touches)) == (long, 26)
    schema = {"type": "object", "properties": {f"p{n}": {"description": "x" * 90} for n in range(90)}}
    for number in range(300):
        tags = [f"tag_{number}_{'x' * 50}_{one}" for one in range(40)]
        project.toolset.register(
            f"f{number}", lambda **given: 1, description="It.", input_schema=schema, tags=tags
        )
    found, page_of = [], None
    while True:
        part = project.list_tools(limit=256, page=page_of)
        assert len(json.dumps([tool.tags for tool in part.tools])) < 256 * 1024
        found += part.tools
        if (page_of := part.next) is None:
            break
    assert len(found) == len({tool.name for tool in found}) == 308


def noted(built: list[str], name: str, make: Callable[[], Any]) -> Any:
    built.append(name)
    return make()


def test_facets_count_what_the_same_list_or_search_has_and_make_nothing_ready(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        command(crib, f"t{number}", tags=["walnut" if number % 3 == 0 else "spruce"])
    crib.write(".toolcrib/config.yml", "policy:\n  rules:\n    - {name: no, effect: deny, tools: [t0]}\n")
    crib.trust()
    put(crib, "walnut-web")
    time.sleep(0.2)  # What is as new as that may change again without another time.
    first = crib.open()
    assert first.search("walnut")["total"] == 10  # Without t0; the index is there from now on.
    project = crib.open()
    built: list[str] = []
    for bound in project.catalog.registry.unchecked.values():
        read, bind = bound.__dict__["_unused"]
        monkeypatch.setattr(bound, "_unused", (partial(noted, built, bound.name, read), bind))
    every, found = project.bundles.facets(), project.bundles.facets("walnut")
    assert (every.total, every.tags) == (30, {"spruce": 20, "walnut": 9})
    assert (every.kinds, every.sources) == ({"command": 29, "http": 1}, {"project": 29, "user": 1})
    assert (found.total, found.tags, found.sources) == (10, {"walnut": 9}, {"project": 9, "user": 1})
    token = Caller("t", frozenset({"read"}), ("t1*", "t3"))
    assert project.bundles.facets("walnut", Wish(identity=token)).total == 4
    assert project.bundles.facets(None, Wish(identity=token, tags=["walnut"])).total == 4
    assert project.bundles.facets(None, Wish(sources=["user"], kinds=["command"])).total == 0
    whole = project.bundles.facets(None, Wish(include_disabled=True))
    assert (every.disabled, whole.disabled, whole.sources["builtin"]) == (14, 14, 14)
    assert (every.availability, every.touches["network"]) == ({"available": 30}, 1)
    assert project.bundles.facets("walnut", Wish(touches=["network"])).sources == {"user": 1}
    assert project.bundles.facets(None, Wish(availability=["unavailable"])).total == 0
    assert len(project.bundles.tools(Wish(touches=["network"])).tools) == 1
    assert project.bundles.facets("walnut", Wish(caller="mcp:x", models=True)).total == 9  # All are trusted.
    assert built == []


async def test_a_tool_that_is_switched_off_is_off_everywhere_and_for_other_processes(crib: Crib) -> None:
    for name in ("one", "two"):
        command(crib, name)
    mount(crib, "s", f"{RAW}\nmain()")
    async with crib.open() as project, crib.open() as other:
        assert project.servers is not None
        await project.servers.ready()
        store = project.bundles.store.acting("ann")
        for name in ("one", next(one for one in all_of(project) if one.startswith("s__"))):
            tool, revision = all_of(project)[name], project.revision
            address = (tool.bundle_id, tool.slug, tool.version)
            assert not store.switch_tool(*address, enabled=False).is_enabled
            assert failed(await project.call(name), "tool_disabled")
            assert project.revision != revision
            assert name not in project.listed()
            assert name not in [one.name for one in project.tools()]
            assert name not in [one for one, _ in project.described()]
            assert name not in [hit["name"] for hit in project.search(name)["hits"]]
            assert name not in all_of(project)
            assert not all_of(project, include_disabled=True)[name].is_enabled
            if name == "one":
                assert failed(await eventually(other, name, ok=False), "tool_disabled")
                assert crib.audit()[-2].event == "TOOL_REFUSED"
            store.switch_tool(*address, enabled=True)
            assert name in project.listed()
            assert (await eventually(other, "one", ok=True)).ok
        own = all_of(project)["one"].bundle_id
        store.switch_bundle(own, enabled=False)
        for name in ("one", "two"):
            assert failed(await project.call(name), "bundle_disabled")
        assert "one" not in project.listed()
        store.switch_bundle(own, enabled=True)
        assert (await project.call("two")).ok
    events = [line.event for line in crib.audit() if line.event.endswith("ABLED")]
    assert events == ["TOOL_DISABLED", "TOOL_ENABLED"] * 2 + ["BUNDLE_DISABLED", "BUNDLE_ENABLED"]


async def eventually(project: Project, name: str, *, ok: bool) -> Any:
    result = await project.call(name)
    for _ in range(1000):
        if result.ok is ok:
            break
        await asyncio.sleep(0.02)
        result = await project.call(name)
    return result


async def test_a_switch_is_of_one_bundle(crib: Crib) -> None:
    async with crib.open() as project:
        builtin = all_of(project, include_disabled=True, sources=["builtin"])["read_file"]
        project.bundles.store.switch_tool(builtin.bundle_id, builtin.slug, "v1", enabled=False)
    command(crib, "read_file")
    put(crib, "look")
    async with crib.open() as project:
        catalog, own = McpCatalog(project), all_of(project)["read_file"].bundle_id
        assert "read_file" in project.listed()
        project.trust.trust(project.get("mine/look@v1"), "ann")
        project.bundles.store.switch_bundle(own, enabled=False)
        listed = list(catalog.listed())
        assert "read_file" not in listed
        assert "tools_search" in listed
        assert any("look" in name for name in listed)
        assert (await project.call("tools_search", {"query": "look"})).ok


async def test_a_version_that_changes_does_not_switch_a_tool_on(crib: Crib) -> None:
    command(crib, "one")
    project = crib.open()
    tool = all_of(project)["one"]
    project.bundles.store.switch_tool(tool.bundle_id, tool.slug, tool.version, enabled=False)
    command(crib, "one", version=2)
    assert failed(await crib.open().call("one"), "tool_disabled")


async def test_built_in_tools_are_switched_on_and_off_for_good(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "builtins: [read_file]\n")
    crib.trust()
    crib.write("notes.txt", "noted")
    command(crib, "write_file")
    async with crib.open() as project:
        tools = all_of(project, sources=["builtin"], include_disabled=True)
        assert [name for name, tool in tools.items() if tool.is_enabled] == ["read_file"]
        hidden = tools["builtin/write-file@v1"]  # The manifest of this name wins.
        assert "a tool of this name" in (hidden.unavailable_because or "")
        assert not (await project.call("builtin/write-file@v1")).ok
        assert failed(await project.call("list_files"), "tool_disabled")
        for name, enabled in (("list_files", True), ("read_file", False)):
            tool = tools[name]
            project.bundles.store.switch_tool(tool.bundle_id, tool.slug, "v1", enabled=enabled)
        for opened in (project, crib.open()):
            assert "notes.txt" in (await opened.call("list_files")).unwrap()
            assert "notes.txt" in (await opened.call("builtin/list-files")).unwrap()
            assert failed(await opened.call("read_file", {"path": "notes.txt"}), "tool_disabled")
            assert set(all_of(opened, sources=["builtin"])) == {"list_files"}
            opened.catalog.builtins.switch_on(["read_file"], "agent:x")  # For an agent that lists it
            assert not (await opened.call("read_file", {"path": "notes.txt"}, caller="agent:x")).ok


def test_a_manifest_that_does_not_load_is_listed_as_unavailable_without_its_path(crib: Crib) -> None:
    command(crib, "good")
    crib.write(".toolcrib/tools/bad/tool.yml", "name: bad\nkind: nothing\n")
    command(crib, "late", properties={"a": {"type": "nothing", "description": "It."}})
    project = crib.open()
    assert set(all_of(project)) == {"good"}
    every = all_of(project, include_disabled=True, sources=["project"])
    for name in ("bad", "late"):
        assert every[name].availability == "unavailable"
        assert every[name].unavailable_because
        assert str(crib.root) not in (every[name].unavailable_because or "")
    assert every["good"].availability == "available"


async def test_what_waits_for_trust_asks_or_lacks_a_function_says_so(crib: Crib) -> None:
    crib.accept = "trusted"
    command(crib, "quiet")
    command(crib, "writes", permissions={"fs": {"write": ["out"]}})
    command(crib, "dear", approval={"required": True, "reason": "it is dear"})
    crib.tool("calls", "function", {"reference": "shop.sell"})
    (crib.root / "out").mkdir()
    accept(crib.root)
    async with crib.open() as project:
        assert {name: tool.trust for name, tool in all_of(project).items()} == dict.fromkeys(
            ("quiet", "writes", "dear", "calls")
        )
        assert all_of(project)["dear"].asks == "it is dear"
        assert "write out" in all_of(project)["writes"].touches
        assert "shop.sell" in (all_of(project)["calls"].unavailable_because or "")
        project.functions.register("sell", lambda: 1)
        assert all_of(project)["calls"].availability == "available"
    command(crib, "writes", permissions={"fs": {"write": ["out"]}}, description="Another.")
    command(crib, "reaches", permissions={"network": True})
    async with crib.open() as project:
        tools = all_of(project)
        assert (tools["writes"].trust, tools["reaches"].trust, tools["quiet"].trust) == (
            "changed",
            "new",
            None,
        )
        model = all_of(project, caller="mcp:bot", models=True)
        assert "reaches" not in model
        assert model["writes"].description == "Does writes."  # As it was trusted
        assert tools["writes"].description == "Another."


async def test_calls_of_every_source_are_counted(crib: Crib) -> None:
    command(crib, "one")
    crib.write("f", "x")
    async with crib.open() as project:
        project.toolset.register("fails", lambda: 1 / 0, description="It.")
        for name in ("one", "one", "fails", "nothing"):
            await project.call(name)
        await project.call("one", {"x": 1})  # Refused: no call of the tool.
        tools = all_of(project)
        assert {name: tool.call_count for name, tool in tools.items()} == {"one": 2, "fails": 1}
        assert tools["one"].last_called_at is not None
        assert project.bundles.usage.of(tools["fails"].id).failures == 1
    assert all_of(crib.open())["one"].call_count == 2


def test_an_answer_to_a_put_makes_no_executor(crib: Crib) -> None:
    program = """if True:
        import json, sys
        from toolcrib import Project
        from toolcrib.bundles import BundleBody, ToolBody
        from toolcrib.spec.identifier import new_id
        project, bundle = Project.open(sys.argv[1]), new_id()
        project.bundles.store.put_bundle(bundle, BundleBody(slug="mine"))
        body = ToolBody(display_name="Web", type="http", impl={"urlTemplate": "https://example.com/"})
        answer = project.bundles.answer(project.bundles.store.put_tool(bundle, "web", "v1", body))
        loaded = [one for one in sys.modules if one.startswith("toolcrib.executors.http.")]
        print(json.dumps([answer.availability, answer.trust, loaded]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", program, str(crib.root)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    availability, trust, loaded = json.loads(ran.stdout)
    assert (availability, trust) == ("available", "new")
    assert set(loaded) <= {f"toolcrib.executors.http.{one}" for one in ("kind", "lint", "effect")}


def test_an_owner_is_in_the_list_show_python_and_the_manifest_again(crib: Crib) -> None:
    command(crib, "mine", owner="Ann")
    command(crib, "nobodys")

    def said(*words: str) -> Any:
        done = subprocess.run(
            [PROGRAM, *words, "--root", str(crib.root)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        )
        return json.loads(done.stdout) if "--json" in words else done.stdout

    listed = {tool["name"]: tool["owner"] for tool in said("list", "--json")["tools"]}
    assert listed == {"mine": "Ann", "nobodys": ""}
    assert "OWNER" in said("list").splitlines()[0]
    assert said("show", "mine", "--json")["owner"] == "Ann"
    assert "owner: Ann" in said("show", "mine")
    project = crib.open()
    assert project.get("mine").owner == "Ann"
    assert all_of(project)["mine"].owner == "Ann"


async def test_a_python_file_is_one_bundle(crib: Crib, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        "from toolcrib import Toolset\ntools = Toolset()\n\n@tools.tool\ndef add(a: int, b: int) -> int:\n"
        '    "Add."\n    return a + b\n'
    )
    put(crib, "get")
    async with Project.open(str(file)) as project:
        (tool,) = project.bundles.all(Wish(include_disabled=True))
        assert (tool.name, tool.source, tool.slug, tool.type) == ("add", "file", "add", "go")
        (bundle,) = project.bundles.bundle_answers(project.bundles.store.bundles())
        assert (bundle.display_name, bundle.source, bundle.tool_count) == ("app.py", "file", 1)
        project.bundles.store.switch_tool(tool.bundle_id, "add", "1", enabled=False)
        assert failed(await project.call("add", {"a": 1, "b": 2}), "tool_disabled")


@pytest.mark.parametrize("key", ["same", "another"])
async def test_a_switch_on_a_server_is_followed_by_who_uses_it_and_has_the_key(
    crib: Crib, postgres: PostgresProcess, tmp_path: Path, key: str
) -> None:
    command(crib, "one")
    url = postgres.url(f"shop_{uuid.uuid4().hex}")
    mine, theirs = tmp_path / "data", tmp_path / "elsewhere"
    here = Project.open(crib.root, database=url, accept="all", data=mine)
    tool = all_of(here)["one"]
    here.bundles.store.switch_tool(tool.bundle_id, tool.slug, tool.version, enabled=False)
    (theirs).mkdir(mode=0o700)
    text = (mine / "grants-key").read_text() if key == "same" else "0" * 64
    (theirs / "grants-key").write_text(text)
    (theirs / "grants-key").chmod(0o600)
    there = Project.open(crib.root, database=url, accept="all", data=theirs)
    assert (await there.call("one")).ok == (key != "same")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT tool, enabled FROM switches").fetchall() == [("one", 0)]
    if key == "same":
        here.bundles.store.switch_tool(tool.bundle_id, tool.slug, tool.version, enabled=True)
        assert (await eventually(there, "one", ok=True)).ok
        here.bundles.store.switch_tool(tool.bundle_id, tool.slug, tool.version, enabled=False)
        await eventually(there, "one", ok=False)
        away = "postgresql://nobody@127.0.0.1:1/none"
        later = Project.open(crib.root, database=away, accept="all", data=theirs)
        assert failed(await later.call("one"), "tool_disabled")  # As this machine saw it last.
        await later.aclose()
    else:
        assert all_of(there)["one"].is_enabled
    await here.aclose()
    await there.aclose()


def test_a_toolset_has_no_catalogue(crib: Crib) -> None:
    tools = Toolset()
    tools.register("f", lambda: 1, description="It.")
    assert asyncio.run(tools.call("f")).ok
    assert not Vault(crib.root).data.joinpath("usage.db").exists()
