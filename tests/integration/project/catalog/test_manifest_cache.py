"""Manifests that passed their checks are not checked again, as long as they are as they were."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.crib import Crib, accept
from toolcrib import Project
from toolcrib.errors import ManifestError
from toolcrib.manifest import check_tool
from toolcrib.manifest.native.reader import tool_of
from toolcrib.project.catalog.sources import _entry
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.serve.mcp.lists import CallerListing

COUNT = 205


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    crib = Crib(tmp_path / "project")
    for number in range(COUNT):
        add(crib, f"t{number}")
    add(crib, "wide", permissions={"fs": {"read": ["/"]}})
    add(crib, "warned", {"a": {"type": "string"}})
    add(crib, "bad", {"a": {"type": "nothing", "description": "It."}})
    settle(crib)
    return crib


def add(crib: Crib, name: str, properties: dict[str, Any] | None = None, **more: Any) -> None:
    crib.tool(name, "command", {"entrypoint": "true"}, properties, **more)


def settle(crib: Crib) -> None:
    """Wait until the files are old enough for their times to show a change."""
    newest = max(path.stat().st_ctime_ns for path in crib.home.glob("tools/*/tool.yml"))
    probe = crib.root / "probe"
    while True:
        probe.write_text("")
        if probe.stat().st_ctime_ns > newest + 150_000_000:
            return


def seen(crib: Crib) -> tuple[list[str], bool, list[str]]:
    """What a new start lists, whether the tool that may read everything needs approval, its diagnostics."""
    project = Project.open(crib.root)
    names = [tool.name for tool in project.tools()]
    told = sorted(f"{one.where} {one.line} {one.rule}" for one in project.diagnostics)
    with pytest.raises(ManifestError):
        project.get("bad")
    return names, project.get("wide").approval.required, told


@pytest.fixture
def checked() -> Iterator[set[str]]:
    """The tools that are checked from now on."""
    names: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is check_tool.__code__:
            names.add(frame.f_locals["tool"].name)

    sys.setprofile(watch)
    yield names
    sys.setprofile(None)


def test_the_next_start_checks_only_what_did_not_pass(crib: Crib, checked: set[str]) -> None:
    first = seen(crib)
    assert len(checked) == COUNT + 3
    assert first[1]
    assert "bad" not in first[0]
    checked.clear()
    assert seen(crib) == first
    # Only to find the positions of their warnings.
    assert checked == {"bad", "wide", "warned"}
    checked.clear()
    Project.open(crib.root).tools()
    assert checked == {"bad"}


@pytest.fixture
def entered() -> Iterator[list[str]]:
    """The tools of manifests whose entries in lists are made from now on."""
    names: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is _entry.__code__ and frame.f_locals["type"] == "native":
            names.append(frame.f_locals["name"])

    sys.setprofile(watch)
    yield names
    sys.setprofile(None)


def listed(crib: Crib) -> dict[str, tuple[str, list[str]]]:
    """Version and tags of all tools that the catalogue of a new start lists."""
    return {one.name: (one.version, list(one.tags)) for one in crib.open().list_tools(limit=256).tools}


def test_the_next_start_makes_no_entry_again(crib: Crib, entered: list[str]) -> None:
    first = listed(crib)
    assert {f"t{number}" for number in range(COUNT)} <= first.keys()
    assert len(entered) > COUNT
    entered.clear()
    assert listed(crib) == first
    assert entered == ["bad"]  # What does not load is in no cache.
    entered.clear()
    add(crib, "t0", version=2, tags=["new"])
    settle(crib)
    assert listed(crib) == {**first, "t0": ("2", ["new"])}
    assert entered == ["t0", "bad"]


def worse(crib: Crib) -> None:
    add(crib, "t7", {"a": {"type": "nothing", "description": "It."}})


def worse_at_the_same_time(crib: Crib) -> None:
    path = crib.home / "tools" / "t7" / "tool.yml"
    before = path.stat()
    text = path.read_text()
    path.write_text(text.replace('"properties": {}', '"properties": []'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_manifest_that_changed_is_checked(crib: Crib) -> None:
    for change in (worse, worse_at_the_same_time):
        assert "t7" in seen(crib)[0]
        change(crib)
        assert "t7" not in seen(crib)[0], change
        add(crib, "t7")
        settle(crib)


def cut_the_index(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(9_000))


def not_wide(path: Path) -> None:
    """Change the result of a check, but not its digest."""
    content = path.read_bytes()
    result = b"[true,["
    assert result in content
    path.write_bytes(content.replace(result, b"[null,["))


def open_to_others(path: Path) -> None:
    path.chmod(0o622)


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def test_a_damaged_or_foreign_file_passes_nothing(crib: Crib, tmp_path: Path, checked: set[str]) -> None:
    first = seen(crib)
    for harm in (cut_the_index, empty, noise, not_wide, open_to_others, link, Path.unlink):
        (cache,) = (tmp_path / "cache").glob("*/manifests")
        assert cache.stat().st_mode & 0o777 == 0o600
        harm(cache)
        checked.clear()
        assert seen(crib) == first, harm
        assert len(checked) == COUNT + 3, harm


def test_without_a_folder_for_it_all_are_checked_each_time(
    crib: Crib, monkeypatch: pytest.MonkeyPatch, checked: set[str]
) -> None:
    for name in ("TOOLCRIB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/nowhere")
    assert seen(crib) == seen(crib)
    assert len(checked) == COUNT + 3


LISTS = ("tools", "prompts", "resources", "resourceTemplates")
FORMS = {
    "shown": {"icons": [{"src": "https://example.com/i.png"}]},
    "prompt": {"prompt": True},
    "only-prompt": {"prompt": True, "listed": False},
    "page": {"resource": "test://page", "mime_type": "text/plain"},
    "pages": {"resource": "test://pages/{a}", "listed": False},
}


@pytest.fixture
def made() -> Iterator[list[str]]:
    """The tools that are made of their manifests from now on."""
    names: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is tool_of.__code__:
            names.append(frame.f_locals["data"]["name"])

    sys.setprofile(watch)
    yield names
    sys.setprofile(None)


def mcp_lists(crib: Crib) -> list[bytes]:
    """Every page of the lists that an MCP client gets from a new start."""
    crib.write(".toolcrib/config.yml", "mcp: {max_listed: 1000}")
    listing = CallerListing(McpCatalog(Project.open(crib.root)), page_size=1_000)
    return [listing.page(name=name) for name in LISTS]  # type: ignore[arg-type]


def with_forms(crib: Crib) -> None:
    for name, forms in FORMS.items():
        add(crib, name, {"a": {"type": "string", "description": "A."}}, mcp=forms)
    add(crib, "named.so", examples=[{"description": "é", "params": {}}])
    settle(crib)


def test_mcp_clients_get_the_same_lists_from_the_next_start(
    crib: Crib, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_forms(crib)
    accept(crib.root)
    with monkeypatch.context() as without:
        for name in ("TOOLCRIB_CACHE", "XDG_CACHE_HOME"):
            without.setenv(name, "/proc/nowhere")
        expected = mcp_lists(crib)
    assert b'"name":"wide"' in expected[0]
    assert b'"approval":{"required":true' in expected[0]
    assert mcp_lists(crib) == expected
    made.clear()
    assert mcp_lists(crib) == expected
    assert sorted({*made} - {"bad"}) == ["named.so", "only-prompt", "page", "pages", "prompt"]


def test_mcp_clients_get_the_new_entry_of_a_manifest_that_changed(crib: Crib) -> None:
    mcp_lists(crib)
    add(crib, "t7", description="Something new.")
    assert b"Something new." in mcp_lists(crib)[0]
    (crib.home / "tools" / "t7" / "tool.yml").unlink()
    assert b'"name":"t7"' not in mcp_lists(crib)[0]


def test_damaged_entries_of_lists_are_made_again(crib: Crib, tmp_path: Path) -> None:
    first = mcp_lists(crib)
    (cache,) = (tmp_path / "cache").glob("*/manifests")
    content = cache.read_bytes()
    entry = b'"description":"Does t7."'
    assert entry in content
    cache.write_bytes(content.replace(entry, b'"description":"Did t77."'))
    assert mcp_lists(crib) == first


async def test_a_tool_of_a_kept_list_is_called_like_any_other(crib: Crib) -> None:
    add(crib, "t7", outputs={"format": "text"})
    settle(crib)
    mcp_lists(crib)
    async with Project.open(crib.root, accept="all") as project:
        listing = CallerListing(McpCatalog(project))
        assert b'"name":"t7"' in listing.page()
        found = listing.get("t7")
        assert found is not None
        assert found.tool.description == "Does t7."
        assert listing.get("t99999") is None
        result = await project.call("t7")
        assert result.status == "ok", result.error
