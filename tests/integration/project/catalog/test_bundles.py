"""The tools of the user's bundles in a project: listed, called, trusted, switched as those of any source."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import complete
from tests.crib import Crib
from toolcrib import Project
from toolcrib.bundles import BundleBody, Store, ToolBody, ToolRecord
from toolcrib.errors import (
    ApprovalRequired,
    BundleDisabled,
    ConflictError,
    InvalidInput,
    ManifestError,
    PolicyDenied,
    ToolDisabled,
    ToolNotFound,
    ToolUnavailable,
    UsageError,
)
from toolcrib.project.catalog.bundles import Wish
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.spec.identifier import new_id

CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "City."}}}
PUT = """
import subprocess
import sys
from pathlib import Path
from toolcrib.bundles import Store, ToolBody
tool = ToolBody(display_name="x", type="go", impl={"goFunc": "hello"})
Store(Path(sys.argv[1])).put_tool(sys.argv[2], sys.argv[3], "1", tool)
"""


def go(name: str = "hello", **more: Any) -> ToolBody:
    return ToolBody(display_name="Says hello", type="go", impl={"goFunc": name}, **more)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Store:
    return Store(data)


@pytest.fixture
def mine(store: Store) -> str:
    found = new_id()
    store.put_bundle(found, BundleBody(slug="mine"))
    return found


@pytest.fixture
def project(data: Path, tmp_path: Path) -> Project:
    Crib(tmp_path / "project")
    project = Project.open(tmp_path / "project")
    project.functions.register("hello", lambda: "hello")
    return project


def names(project: Project) -> list[str]:
    return [tool.name for tool in project.tools()]


async def test_a_tool_of_a_bundle_is_listed_and_called_by_its_full_and_shorter_names(
    project: Project, store: Store, mine: str
) -> None:
    assert names(project) == []
    store.put_tool(mine, "hello", "v1", go())
    assert names(project) == ["mine/hello@v1"]
    tool = project.get("hello")
    assert (tool.name, tool.bundle, tool.version) == ("mine/hello@v1", "mine", "v1")
    for name in ("mine/hello@v1", "mine/hello", "hello@v1", "hello", f"{mine}/hello@v1", "mine_hello__v1"):
        result = await project.call(name)
        assert result.unwrap() == "hello", name
        assert ("tool" in (result.details or {})) is (name != "mine/hello@v1")
    missing = await project.call("mine/helo@v1")
    assert isinstance(missing.error, ToolNotFound)
    assert project.bundles.name(mine, "hello", "v1") == "mine/hello@v1"


async def test_of_several_versions_the_bare_name_means_the_only_one_that_is_on_else_the_newest(
    project: Project, store: Store, mine: str
) -> None:
    for version in ("2", "10", "1"):
        store.put_tool(mine, "hello", version, go())
    assert project.get("hello").version == "1"
    store.switch_tool(mine, "hello", "1", enabled=False)
    store.switch_tool(mine, "hello", "10", enabled=False)
    assert project.get("hello").version == "2"
    result = await project.call("hello")
    assert result.details == {"tool": "mine/hello@2"}


async def test_a_name_of_two_bundles_is_refused_with_all_of_them(
    project: Project, store: Store, mine: str
) -> None:
    other, same = new_id(), new_id()
    store.put_bundle(other, BundleBody(slug="other"))
    store.put_bundle(same, BundleBody(slug="mine"))  # it goes by its id
    for bundle in (mine, other, same):
        store.put_tool(bundle, "hello", "1", go())
    result = await project.call("hello")
    assert isinstance(result.error, UsageError)
    for name in ("mine/hello@1", "other/hello@1", f"{same}/hello@1"):
        assert name in result.error.message
        assert (await project.call(name)).ok
    assert len(names(project)) == 3


async def test_a_disabled_tool_or_bundle_is_disabled_everywhere_at_once(
    project: Project, store: Store, mine: str
) -> None:
    store.put_tool(mine, "hello", "1", go())
    assert (await project.call("mine/hello@1")).ok
    store.switch_tool(mine, "hello", "1", enabled=False)
    result = await project.call("mine/hello@1")
    assert isinstance(result.error, ToolDisabled)
    assert names(project) == []
    assert project.bundles.tools().tools == []
    assert project.bundles.search("hello").tools == []
    assert len(project.bundles.search("hello", Wish(include_disabled=True)).tools) == 1
    store.switch_tool(mine, "hello", "1", enabled=True)
    assert (await project.call("hello")).ok
    store.switch_bundle(mine, enabled=False)
    result = await project.call("hello")
    assert isinstance(result.error, BundleDisabled)
    with pytest.raises(BundleDisabled):
        project.get("mine/hello@1")
    assert names(project) == []
    store.switch_bundle(mine, enabled=True)
    store.delete_tool(mine, "hello", "1")
    assert isinstance((await project.call("mine/hello@1")).error, ToolNotFound)


async def test_a_tool_that_another_process_puts_is_there(
    project: Project, store: Store, mine: str, data: Path
) -> None:
    assert names(project) == []
    complete([sys.executable, "-c", PUT, str(data), mine, "late"], check=True)
    assert (await project.call("late")).ok
    assert names(project) == ["mine/late@1"]


async def test_a_project_tool_goes_before_a_bundles_tool_of_the_same_name(
    project: Project, store: Store, mine: str
) -> None:
    project.toolset.register("hello", lambda: "the project's")
    store.put_tool(mine, "hello", "1", go())
    assert (await project.call("hello")).unwrap() == "the project's"
    assert (await project.call("mine/hello")).unwrap() == "hello"


async def test_a_missing_function_keeps_the_record_and_the_call_says_so(
    project: Project, store: Store, mine: str
) -> None:
    store.put_tool(mine, "a", "1", go("example.com/tools.Missing"))
    result = await project.call("a")
    assert isinstance(result.error, ToolUnavailable)
    assert store.tool(mine, "a", "1").is_enabled


async def test_a_record_borrows_no_tool_of_the_project(project: Project, store: Store, mine: str) -> None:
    project.toolset.register("danger", lambda: "done", approval="it is dangerous")
    store.put_tool(mine, "harmless", "1", go("danger"))
    assert isinstance((await project.call("harmless")).error, ToolUnavailable)
    project.functions.register("danger", lambda: "only what is offered")
    assert (await project.call("harmless")).unwrap() == "only what is offered"


async def test_arguments_are_checked_by_the_record(project: Project, store: Store, mine: str) -> None:
    def greet(city: str) -> str:
        return f"hello {city}"

    project.functions.register("greet", greet)
    store.put_tool(mine, "greet", "1", go("greet", arg_schema=CITY))
    assert (await project.call("greet", {"city": "Bonn"})).unwrap() == "hello Bonn"
    result = await project.call("greet", {"city": 1})
    assert result.error is not None
    assert result.error.code == "invalid_input"


async def test_a_record_that_is_no_tool_is_an_error_of_its_call(
    project: Project, store: Store, mine: str
) -> None:
    store.put_tool(mine, "bad", "1", ToolBody(display_name="x", type="http", impl={}))
    result = await project.call("bad")
    assert isinstance(result.error, ManifestError)
    assert names(project) == []


def test_a_project_without_bundles_makes_no_folder(project: Project, data: Path) -> None:
    assert names(project) == []
    with pytest.raises(ToolNotFound):
        project.get("x/y@1")
    assert not (data / "bundles").exists()


async def test_calls_are_counted(project: Project, store: Store, mine: str) -> None:
    made = store.put_tool(mine, "hello", "1", go())
    project.functions.register("fails", lambda: 1 / 0)
    bad = store.put_tool(mine, "bad", "1", go("fails"))
    for _ in range(3):
        await project.call("hello")
        await project.call("bad")
        assert (await project.call("hello", "[]")).error is not None  # It is refused.
    assert (project.bundles.usage.of(made.id).calls, project.bundles.usage.of(made.id).failures) == (3, 0)
    assert (project.bundles.usage.of(bad.id).calls, project.bundles.usage.of(bad.id).failures) == (3, 3)
    assert store.tool(mine, "hello", "1").modified_at == made.modified_at


def test_pages_hold_each_tool_once_while_tools_come_and_go(project: Project, store: Store, mine: str) -> None:
    ids = [store.put_tool(mine, f"find-{number}", "1", go()).id for number in range(30)]
    for pages in (
        lambda page: project.bundles.tools(limit=7, page=page),
        lambda page: project.bundles.search("find", limit=7, page=page),
    ):
        found, page = [], None
        while True:
            got: Any = pages(page)
            found += [one.id for one in got.tools]
            page = got.next
            if page is None:
                break
            store.put_tool(mine, f"find-late-{len(found)}-{new_id()}", "1", go())
        assert set(ids) <= set(found)
        assert len(found) == len(set(found))
    with pytest.raises(InvalidInput, match="another search"):
        project.bundles.tools(Wish(tags=["x"]), page=project.bundles.tools(limit=1).next)
    with pytest.raises(InvalidInput, match="not a token"):
        project.bundles.search("find", page="x")
    with pytest.raises(ConflictError):
        store.put_tool(mine, "find-1", "1", go())


async def test_what_another_process_changes_is_announced(
    project: Project, data: Path, tmp_path: Path
) -> None:
    heard = asyncio.Event()
    project.on_change(heard.set)
    await project.watch()
    try:
        store, mine = Store(data), new_id()  # The first bundle there is
        store.put_bundle(mine, BundleBody(slug="mine"))
        for change in (
            lambda: store.put_tool(mine, "hello", "1", go()),
            lambda: store.switch_tool(mine, "hello", "1", enabled=False),
            lambda: store.switch_tool(mine, "hello", "1", enabled=True),
            lambda: store.switch_bundle(mine, enabled=False),
            lambda: store.switch_bundle(mine, enabled=True),
            lambda: store.delete_tool(mine, "hello", "1"),
        ):
            heard.clear()
            revision = project.revision
            change()
            async with asyncio.timeout(100):
                while project.revision == revision:
                    await heard.wait()
                    heard.clear()
            expected = [
                tool for tool in store.tools(mine) if tool.is_enabled and store.bundle(mine).is_enabled
            ]
            assert names(project) == [f"mine/{tool.slug}@1" for tool in expected]
    finally:
        await project.aclose()


async def test_whoever_watches_removes_deleted_bundles(data: Path, tmp_path: Path) -> None:
    Crib(tmp_path / "project")
    old, now = new_id(), time.time()
    earlier = Store(data, clock=lambda: now - 49 * 3600)
    earlier.put_bundle(old, BundleBody(slug="old"))
    earlier.delete_bundle(old)
    left = data / "bundles" / old / "tools" / ".left.json.0"
    left.touch()
    project = Project.open(tmp_path / "project")
    await project.watch()
    try:
        async with asyncio.timeout(100):
            while (data / "bundles" / old).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await project.aclose()


def test_a_deletion_removes_bundles_that_were_deleted_long_ago(data: Path) -> None:
    now = [1_000_000.0]
    store = Store(data, clock=lambda: now[0])
    ids = [new_id() for _ in range(2)]
    for one in ids:
        store.put_bundle(one, BundleBody(slug="x"))
    store.delete_bundle(ids[0])
    now[0] += 48 * 3600 + 1
    store.delete_bundle(ids[1])
    assert [bundle.id for bundle in store.bundles()] == [ids[1]]


async def test_a_tool_that_reaches_out_waits_for_trust_and_again_when_it_changes(
    project: Project, store: Store, mine: str, tmp_path: Path
) -> None:
    def http(host: str) -> ToolBody:
        return ToolBody(display_name="Gets", type="http", impl={"urlTemplate": f"https://{host}.invalid/"})

    store.put_tool(mine, "get", "1", http("a"))
    for opened in (project, Project.open(tmp_path / "project", accept="all")):
        result = await opened.call("get")
        assert isinstance(result.error, ApprovalRequired)
        assert "nobody has trusted" in result.error.message
    tool = project.get("get")
    project.trust.trust(tool, "ann")
    assert not isinstance((await project.call("get")).error, ApprovalRequired)
    store.switch_tool(mine, "get", "1", enabled=False)
    store.switch_tool(mine, "get", "1", enabled=True)
    assert not isinstance((await project.call("get")).error, ApprovalRequired)  # The switch is no change.
    store.delete_tool(mine, "get", "1")
    store.put_tool(mine, "get", "1", http("b"))
    result = await project.call("get")
    assert isinstance(result.error, ApprovalRequired)
    assert "not what ann trusted" in result.error.message
    await project.aclose()


async def test_rules_tokens_and_the_audit_log_know_the_tools(data: Path, tmp_path: Path) -> None:
    crib = Crib(tmp_path / "project")
    crib.write(
        ".toolcrib/config.yml",
        "policy:\n  rules:\n    - {name: no, effect: deny, bundles: [secret], reason: no}\n",
    )
    store, open_, secret = Store(data), new_id(), new_id()
    for bundle, slug in ((open_, "open"), (secret, "secret")):
        store.put_bundle(bundle, BundleBody(slug=slug))
        store.put_tool(bundle, "hello", "1", go())
    async with Project.open(tmp_path / "project", accept="all") as project:
        project.functions.register("hello", lambda: "hello")
        assert project.described() == [("open/hello@1", "Says hello")]
        assert names(project) == ["open/hello@1"]
        assert (await project.call("open/hello@1")).ok
        assert isinstance((await project.call("secret/hello@1")).error, PolicyDenied)
    lines = [(line.event, line.fields["name"]) for line in crib.audit()]
    assert ("TOOL_EXECUTED", "open/hello@1") in lines
    assert ("TOOL_REFUSED", "secret/hello@1") in lines


def test_why_a_tool_is_unavailable(project: Project, store: Store, mine: str) -> None:
    here, missing = store.put_tool(mine, "a", "1", go()), store.put_tool(mine, "b", "1", go("nowhere"))
    bad = store.put_tool(mine, "c", "1", ToolBody(display_name="x", type="http", impl={}))
    assert project.bundles.answer(here).unavailable_because is None
    assert "not registered" in (project.bundles.answer(missing).unavailable_because or "")
    assert project.bundles.answer(bad).unavailable_because


async def test_a_list_for_clients_reads_no_record_of_a_store_that_is_too_large_for_it(
    project: Project, store: Store, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(120):
        store.put_tool(mine, f"hello-{number}", "1", go())
    catalog = McpCatalog(project)
    read: list[str] = []
    real = Store.tool

    def tool(self: Store, bundle_id: str, slug: str, version: str) -> ToolRecord:
        read.append(slug)
        return real(self, bundle_id, slug, version)

    monkeypatch.setattr(Store, "tool", tool)
    names = {one.name for one in catalog.tools() if one.mcp.listed}
    assert names == {"tool_call", "tool_create", "tools_list", "tools_search"}
    page = (await project.call("tools_list", {"offset": 118, "limit": 9})).unwrap()
    assert page == [{"name": name, "description": "Says hello"} for name, _ in project.described()[-2:]]
    assert read == []
    assert catalog.get("hello-7").name == "mine/hello-7@1"


def test_a_list_needs_no_position_of_a_warning(project: Project, store: Store, mine: str) -> None:
    """Positions in the text of a record are found by the slow parser: it takes longer than all the rest."""
    unsaid = {"type": "object", "properties": {"city": {"type": "string", "default": "x"}}}
    store.put_tool(mine, "a", "1", go(arg_schema=unsaid))
    program = """if True:
        import sys
        from toolcrib import Project
        project = Project.open(sys.argv[1])
        project.functions.register("hello", lambda: "hello")
        print([tool.name for tool in project.tools()], "ruamel.yaml" in sys.modules)
    """
    command = [sys.executable, "-c", program, str(project.root)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "['mine/a@1'] False\n", ran.stderr
