"""Sources that change on disk while a project is open."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.patience import patient
from toolcrib import Project
from toolcrib.project import CatalogChange
from toolcrib.state.inotify import Inotify

PATIENCE_S = 40


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    return Crib(tmp_path / "project")


@pytest.fixture
def no_inotify(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Inotify) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Inotify, "__init__", full)


@asynccontextmanager
async def watched(crib: Crib, *sources: dict[str, Any]) -> AsyncIterator[tuple[Project, list[CatalogChange]]]:
    crib.write(".toolcrib/config.yml", json.dumps({"sources": sources}))
    seen: list[CatalogChange] = []
    async with crib.open() as project:
        await project.watch(seen.append)
        yield project, seen


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + patient(PATIENCE_S)
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)


def names(project: Project) -> list[str]:
    return [tool.name for tool in project.tools()]


def pack(crib: Crib, *tools: str, description: str = "Ask") -> None:
    file = {
        "kind": "SkillPack",
        "spec": {
            "sidecar": {
                "tools": [
                    {"name": name, "description": description, "command": ["echo", "/"]} for name in tools
                ]
            }
        },
    }
    crib.write("pack.yaml", json.dumps(file, indent=1))


def vega(crib: Crib, name: str, path: str) -> Path:
    """A tool that reads a file."""
    crib.write(f"data/{path}", path)
    block = f"{{type: file_read, path: data/{path}}}"
    text = f"name: {name}\ndescription: Read\nparams: []\nimplementation: {block}\n"
    return crib.write(f"defs/{name}.yaml", text)


def skill(crib: Crib, name: str, description: str) -> None:
    crib.write(f"skills/{name}/SKILL.md", f"---\nname: {name}\ndescription: {description}\n---\nDo it.\n")


async def test_tools_of_one_file_come_change_and_go(crib: Crib) -> None:
    pack(crib, "one", "two")
    async with watched(crib, {"file": "pack.yaml"}) as (project, seen):
        assert names(project) == ["one", "two"]
        revision = project.revision
        pack(crib, "one", "three")
        await until(lambda: "three" in project.toolset)
        assert names(project) == ["one", "three"]
        assert (seen[0].added, seen[0].removed, seen[0].changed) == (["three"], ["two"], [])
        assert project.revision > revision
        pack(crib, "one", "three", description="Other")
        await until(lambda: len(seen) > 1)
        assert seen[1].changed == ["one", "three"]
        assert project.get("one").description == "Other"
        assert project.search("other")["total"] == 2
        (crib.root / "pack.yaml").unlink()
        await until(lambda: not names(project))
        assert project.diagnostics[0].rule == "unreadable"
        pack(crib, "two")
        await until(lambda: names(project) == ["two"])
        assert project.diagnostics == []


async def test_a_file_with_errors_leaves_its_tools_as_they_were(crib: Crib) -> None:
    pack(crib, "one", "two")
    good = (crib.root / "pack.yaml").read_text()
    async with watched(crib, {"file": "pack.yaml"}) as (project, seen):
        crib.write("pack.yaml", "kind: [")
        await until(lambda: seen)
        assert [finding.rule for finding in seen[0].broken] == ["yaml-syntax"]
        assert names(project) == ["one", "two"]
        seen.clear()
        # One tool of two has an error: it stays, and the other one changes.
        file = json.loads(good)
        first, second = file["spec"]["sidecar"]["tools"]
        first["command"] = "echo | cat"
        second["description"] = "New"
        crib.write("pack.yaml", json.dumps(file))
        await until(lambda: seen)
        assert "needs a shell" in seen[0].broken[0].message
        assert seen[0].changed == ["two"]
        assert (project.get("one").description, project.get("two").description) == ("Ask", "New")
        seen.clear()
        # It has the right form, but says what cannot be.
        first["command"] = ["echo", "/${"]
        crib.write("pack.yaml", json.dumps(file))
        await until(lambda: seen)
        assert seen[0].broken
        assert project.get("one").description == "Ask"
        seen.clear()
        crib.write("pack.yaml", good)
        await until(lambda: seen)
        assert seen[0].fixed == ["one"]
        assert project.diagnostics == []


async def test_a_call_runs_what_the_file_says_now(crib: Crib) -> None:
    vega(crib, "look", "a")
    async with watched(crib, {"dir": "defs"}) as (project, seen):
        assert (await project.call("look")).unwrap() == "a"
        vega(crib, "look", "b")
        await until(lambda: seen)
        assert (await project.call("look")).unwrap() == "b"
        vega(crib, "more", "c").rename(crib.root / "defs/other.yaml")
        await until(lambda: "more" in project.toolset)
        (crib.root / "defs/look.yaml").write_text("name: look\n")
        await until(lambda: seen[-1].broken)
        assert names(project) == ["look", "more"]
        (crib.root / "defs/look.yaml").unlink()
        await until(lambda: seen[-1].removed == ["look"])
        assert seen[-1].fixed == []
        assert (await project.call("more")).unwrap() == "c"


async def test_folders_that_come_and_go(crib: Crib) -> None:
    async with watched(crib, {"dir": "defs"}, {"dir": "skills", "dialect": "skill"}) as (project, _):
        assert names(project) == []
        assert len(project.diagnostics) == 2
        vega(crib, "look", "a")
        await until(lambda: "look" in project.toolset)
        skill(crib, "forms", "Fill in forms")
        await until(lambda: "forms" in project.toolset)
        assert names(project) == ["look", "forms"]
        assert project.diagnostics == []
        skill(crib, "forms", "Fill in all forms")
        await until(lambda: project.get("forms").description == "Fill in all forms")
        shutil.rmtree(crib.root / "skills")
        await until(lambda: names(project) == ["look"])


async def test_another_file_in_the_folder_of_tools(crib: Crib) -> None:
    record = {
        "slug": "weather", "version": "v1", "description": "One", "type": "go",
        "argSchema": {"type": "object"}, "impl": {"goFunc": "a.Weather"},
    }  # fmt: skip
    async with watched(crib) as (project, _):
        crib.write(".toolcrib/tools/weather/tool.json", json.dumps(record))
        await until(lambda: "weather" in project.toolset)
        crib.write(".toolcrib/tools/weather/tool.json", json.dumps(record | {"description": "Two"}))
        await until(lambda: project.get("weather").description == "Two")
        # A manifest beside it counts instead.
        crib.tool("weather", "file", {"action": "read", "path": "x"})
        await until(lambda: project.get("weather").kind == "file")
        (crib.home / "tools/weather/tool.yml").unlink()
        await until(lambda: "weather" in project.toolset and project.get("weather").kind == "function")
        shutil.rmtree(crib.home / "tools/weather")
        await until(lambda: "weather" not in project.toolset)


async def test_a_name_that_is_taken_is_reported_and_free_later(crib: Crib) -> None:
    crib.tool("one", "file", {"action": "read", "path": "x"})
    pack(crib, "one", "two")
    async with watched(crib, {"file": "pack.yaml"}) as (project, seen):
        assert project.get("one").kind == "file"
        assert "there is a tool named `one` already" in project.diagnostics[0].message
        shutil.rmtree(crib.home / "tools/one")
        await until(lambda: "one" not in project.toolset)
        pack(crib, "one", "two", description="Mine")
        await until(lambda: "one" in project.toolset)
        assert project.get("one").kind == "command"
        assert names(project) == ["one", "two"]
        assert seen[-1].added == ["one"]


@pytest.mark.usefixtures("no_inotify")
async def test_where_the_kernel_tells_nothing_sources_are_looked_at(crib: Crib) -> None:
    pack(crib, "one")
    async with watched(crib, {"file": "pack.yaml"}, {"dir": "defs"}) as (project, seen):
        assert any("checked again and again" in text for change in seen for text in change.warnings)
        pack(crib, "one", "two")
        await until(lambda: "two" in project.toolset)
        vega(crib, "look", "a")
        await until(lambda: "look" in project.toolset)


async def test_a_storm_of_changes_ends_with_what_is_there(crib: Crib) -> None:
    pack(crib, "t0")
    async with watched(crib, {"file": "pack.yaml"}) as (project, _):
        for number in range(100):
            pack(crib, f"t{number}", "always")
            if number % 10 == 0:
                await asyncio.sleep(0)
        await until(lambda: sorted(names(project)) == ["always", "t99"])


async def test_a_function_that_has_taken_the_name_of_a_broken_tool_stays(crib: Crib) -> None:
    pack(crib, "one", "two")
    broken = (crib.root / "pack.yaml").read_text().replace('"/"', '"/${"', 1)
    crib.write("pack.yaml", broken)
    async with watched(crib, {"file": "pack.yaml"}) as (project, seen):
        assert names(project) == ["two"]

        @project.toolset.tool
        def one() -> str:
            """Mine."""
            return "mine"

        pack(crib, "one", "two", "three")
        await until(lambda: "three" in project.toolset)
        assert (await project.call("one")).unwrap() == "mine"
        assert any("there is a tool named `one` already" in finding.message for finding in seen[-1].broken)
        pack(crib, "two")
        await until(lambda: "three" not in project.toolset)
        assert (await project.call("one")).unwrap() == "mine"


async def test_what_is_changed_again_and_again_is_taken_up_meanwhile(crib: Crib) -> None:
    pack(crib, "one")
    async with watched(crib, {"file": "pack.yaml"}) as (project, _):
        ended = threading.Event()

        def keep_writing() -> None:
            while not ended.wait(0.002):
                pack(crib, "one", description=f"Ask {time.monotonic()}")

        thread = threading.Thread(target=keep_writing)
        thread.start()
        try:
            await until(lambda: project.get("one").description.startswith("Ask "))
            assert not ended.is_set()
        finally:
            ended.set()
            await asyncio.to_thread(thread.join)
