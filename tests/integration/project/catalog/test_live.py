"""Manifests that change on disk while a project is open."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.patience import patient
from toolcrib import Project
from toolcrib.project import CatalogChange
from toolcrib.spec import FileExec
from toolcrib.state.inotify import Inotify

PROMISED_S = 0.2
"""A change is in effect after so long,"""
PATIENCE_S = 40
"""but a machine with other work may take longer."""


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    return Crib(tmp_path / "project")


@asynccontextmanager
async def watched(crib: Crib) -> AsyncIterator[tuple[Project, list[CatalogChange]]]:
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


def says(crib: Crib, name: str, text: str) -> Path:
    """A tool of kind file: it needs no process, so a call of it is quick."""
    crib.write(f"data/{text}", text)
    permissions = {"fs": {"read": ["data"]}}
    return crib.tool(name, "file", {"action": "read", "path": f"data/{text}"}, permissions=permissions)


def is_at(project: Project, name: str, path: str) -> bool:
    """Whether the tool that is in force reads this path."""
    config = project.get(name).config
    assert isinstance(config, FileExec)
    return config.path == path


async def value(project: Project, name: str) -> object:
    return (await project.call(name)).unwrap()


async def test_a_tool_is_added_changed_and_removed_without_a_restart(crib: Crib) -> None:
    says(crib, "b", "one")
    async with watched(crib) as (project, seen):
        revision = project.revision
        says(crib, "a", "new")
        await until(lambda: "a" in project.toolset)
        assert project.revision > revision
        assert names(project) == ["a", "b"]  # as after a new start
        assert await value(project, "a") == "new"

        says(crib, "b", "two")
        await until(lambda: any("b" in change.changed for change in seen))
        assert await value(project, "b") == "two"

        shutil.rmtree(crib.home / "tools" / "a")
        await until(lambda: "a" not in project.toolset)
        assert names(project) == ["b"]
        result = await project.call("a")
        assert result.error is not None
        assert result.error.code == "tool_not_found"


async def test_a_change_is_in_effect_within_the_time_promised(crib: Crib) -> None:
    says(crib, "b", "one")
    async with watched(crib) as (project, _):
        took = [math.inf]
        while min(took) >= PROMISED_S and len(took) < 200:  # On a busy machine each may take longer.
            number = len(took)
            started = time.monotonic()
            says(crib, "b", f"t{number}")
            config = f"data/t{number}"
            await until(partial(is_at, project, "b", config))
            took.append(time.monotonic() - started)
    assert min(took) < PROMISED_S


async def test_a_call_that_runs_ends_on_the_tool_it_began_with(crib: Crib) -> None:
    crib.write("gate/.keep", "")
    permissions = {"fs": {"read": ["gate"]}}
    wait = "while [ ! -e gate/open ]; do sleep 0.02; done; echo "
    block = {"entrypoint": "sh", "args": ["-c", wait + "old"]}
    text: dict[str, Any] = {"outputs": {"format": "text"}, "permissions": permissions}
    crib.tool("slow", "command", block, **text)
    async with watched(crib) as (project, seen):
        running = asyncio.ensure_future(project.call("slow"))
        await asyncio.sleep(0)
        crib.tool("slow", "command", {**block, "args": ["-c", "echo new"]}, **text)
        await until(lambda: seen)
        assert str(await value(project, "slow")).strip() == "new"
        assert not running.done()
        (crib.root / "gate" / "open").touch()
        assert str((await running).unwrap()).strip() == "old"


async def test_an_edit_that_cannot_be_used_keeps_the_last_good_one_and_is_reported(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    says(crib, "other", "rest")
    good = (folder / "tool.yml").read_text()
    async with watched(crib) as (project, seen):
        revision = project.revision
        (folder / "tool.yml").write_text("name: b\nkind: [file\n")
        await until(lambda: seen)
        (broken,) = seen[0].broken
        assert (broken.rule, broken.line) == ("yaml-syntax", 2)
        assert project.diagnostics == [broken]
        assert await value(project, "b") == "one"
        assert await value(project, "other") == "rest"

        # It has the right form, but says what cannot be.
        seen.clear()
        (folder / "tool.yml").write_text(good.replace("data/one", "${nothing}"))
        await until(lambda: seen)
        assert [finding.rule for finding in seen[0].broken] == ["placeholder"]
        assert await value(project, "b") == "one"
        assert project.revision == revision

        seen.clear()
        (folder / "tool.yml").write_text(good)
        await until(lambda: seen)
        assert seen[0].fixed == ["b"]
        assert project.diagnostics == []
        assert project.revision == revision


async def test_nobody_is_asked_to_agree_to_what_is_not_on_disk(crib: Crib) -> None:
    block, approval = {"entrypoint": "true"}, {"required": True, "reason": "it matters"}
    folder = crib.tool("dear", "command", block, approval=approval)
    async with watched(crib) as (project, seen):
        result = await project.call("dear")
        assert result.error is not None
        assert result.error.code == "approval_required"
        (folder / "tool.yml").write_text("name: [")
        await until(lambda: seen)
        result = await project.call("dear")
        assert result.error is not None
        assert result.error.code == "conflict"


async def test_a_new_manifest_that_cannot_be_used_is_reported_and_mended(crib: Crib) -> None:
    async with watched(crib) as (project, seen):
        path = crib.write(".toolcrib/tools/b/tool.yml", "name: [")
        await until(lambda: seen)
        result = await project.call("b")
        assert result.error is not None
        assert result.error.code == "invalid_manifest"
        path.unlink()
        says(crib, "b", "good")
        await until(lambda: "b" in project.toolset)
        assert await value(project, "b") == "good"


async def test_editors_that_save_beside_and_rename(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    text = (folder / "tool.yml").read_text()
    crib.write("data/two", "two")
    async with watched(crib) as (project, seen):
        (folder / ".tool.yml.swp").write_text("half of")
        (folder / "tool.yml").rename(folder / "tool.yml~")
        (folder / "new").write_text(text.replace("data/one", "data/two"))
        (folder / "new").rename(folder / "tool.yml")
        await until(lambda: any(change.changed for change in seen))
        assert await value(project, "b") == "two"
        assert not any(change.removed or change.broken for change in seen)


async def test_a_file_that_is_still_being_written_is_not_read(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    text = (folder / "tool.yml").read_text()
    crib.write("data/two", "two")
    async with watched(crib) as (project, seen):
        with (folder / "tool.yml").open("w") as file:
            file.write(text[:40])
            file.flush()
            says(crib, "later", "other")  # what happens meanwhile elsewhere changes nothing
            await until(lambda: "later" in project.toolset)
            assert await value(project, "b") == "one"
            file.write(text[40:].replace("data/one", "data/two"))
        await until(lambda: any("b" in change.changed for change in seen))
        assert not any(change.broken for change in seen)
        assert await value(project, "b") == "two"


async def test_links_that_are_swapped(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    text = (folder / "tool.yml").read_text()
    crib.write("data/two", "two")
    crib.write("data/three", "three")
    for name, said in (("v1", "one"), ("v2", "two")):
        crib.write(f"versions/{name}/tool.yml", text.replace("data/one", f"data/{said}"))
    shutil.rmtree(folder)
    folder.symlink_to(crib.root / "versions" / "v1")
    async with watched(crib) as (project, seen):
        assert await value(project, "b") == "one"
        spare = folder.parent / ".spare"
        spare.symlink_to(crib.root / "versions" / "v2")
        spare.rename(folder)
        await until(lambda: seen)
        assert await value(project, "b") == "two"
        # The file that the link leads to now is watched too.
        crib.write("versions/v2/tool.yml", text.replace("data/one", "data/three"))
        await until(lambda: len(seen) > 1)
        assert await value(project, "b") == "three"


async def test_a_manifest_that_is_a_link_to_elsewhere(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    crib.write("data/two", "two")
    text = (folder / "tool.yml").read_text()
    real = crib.write("elsewhere/manifest.yml", text)
    (folder / "tool.yml").unlink()
    (folder / "tool.yml").symlink_to(real)
    async with watched(crib) as (project, seen):
        real.write_text(text.replace("data/one", "data/two"))
        await until(lambda: seen)
        assert await value(project, "b") == "two"


async def test_folders_renamed(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    async with watched(crib) as (project, seen):
        folder.rename(folder.parent / "c")
        await until(lambda: seen)
        assert seen[0].removed == ["b"]
        assert [finding.rule for finding in seen[0].broken] == ["name-folder"]
        (folder.parent / "c").rename(folder)
        await until(lambda: "b" in project.toolset)
        assert project.diagnostics == []

        tools = crib.home / "tools"
        tools.rename(crib.home / "aside")
        await until(lambda: "b" not in project.toolset)
        (crib.home / "aside").rename(tools)
        await until(lambda: "b" in project.toolset)
        says(crib, "b", "two")
        await until(lambda: is_at(project, "b", "data/two"))


async def test_a_pipe_in_place_of_a_manifest_holds_up_nothing(crib: Crib) -> None:
    folder = says(crib, "b", "one")
    async with watched(crib) as (project, seen):
        (folder / "tool.yml").unlink()
        os.mkfifo(folder / "tool.yml")
        await until(lambda: any(change.broken for change in seen))
        says(crib, "c", "other")
        await until(lambda: "c" in project.toolset)


async def test_thousands_of_changes_at_once(crib: Crib) -> None:
    count = 3_000
    for number in range(0, count, 2):
        says(crib, f"t{number}", "one")
    crib.write("data/two", "two")
    async with watched(crib) as (project, _):
        longest = 0.0

        async def beat() -> None:
            nonlocal longest
            while True:
                before = time.thread_time()
                await asyncio.sleep(0.001)
                longest = max(longest, time.thread_time() - before)

        def change_all() -> None:
            for number in range(count):
                says(crib, f"t{number}", "two")

        beating = asyncio.ensure_future(beat())
        await asyncio.to_thread(change_all)
        await until(lambda: len(project.toolset.names) == count)

        await until(lambda: all(is_at(project, f"t{at}", "data/two") for at in range(count)))
        beating.cancel()
    assert longest < 2, "nothing else had its turn meanwhile"


async def test_a_function_of_the_same_name_stays(crib: Crib) -> None:
    async with watched(crib) as (project, seen):
        project.toolset.register("b", lambda: "function")
        says(crib, "b", "manifest")
        await until(lambda: seen)
        assert "function" in seen[0].warnings[0]
        assert await value(project, "b") == "function"


async def test_settings_that_change_are_reported(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "")
    async with watched(crib) as (_, seen):
        crib.write(".toolcrib/config.yml", "limits: {timeout_ms: 1000}\n")
        await until(lambda: seen)
        assert "config.yml" in seen[0].warnings[0]


async def test_what_changed_between_opening_and_watching_is_seen(crib: Crib) -> None:
    says(crib, "b", "one")
    async with crib.open() as project:
        says(crib, "b", "two")
        says(crib, "c", "new")
        await project.watch()
        assert await value(project, "b") == "two"
        assert names(project) == ["b", "c"]


async def test_a_change_behind_the_back_of_the_clock_is_seen(crib: Crib) -> None:
    """One that leaves size and time of writing as they were, long after the file was made."""
    path = says(crib, "b", "one") / "tool.yml"
    says(crib, "c", "two")
    old = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(old, old))
    changed = path.stat().st_ctime_ns
    await until(lambda: time.time_ns() > changed + 200_000_000)
    async with crib.open() as project:
        path.write_text(path.read_text().replace("data/one", "data/two"))
        os.utime(path, ns=(old, old))
        await project.watch()
        assert await value(project, "b") == "two"


async def test_a_program_that_comes_later_is_protected_from_tools_that_ran_before(crib: Crib) -> None:
    """No tool may write to what another one runs, whenever that came."""
    crib.write("bin/run.sh", "#!/bin/sh\necho safe\n", 0o755)
    crib.shell("writer", permissions={"fs": {"write": ["bin"]}})
    async with watched(crib) as (project, _):
        assert (await project.call("writer", {"c": "echo >> bin/run.sh"})).ok
        crib.tool("runner", "command", {"entrypoint": "bin/run.sh"}, outputs={"format": "text"})
        await until(lambda: "runner" in project.toolset)
        result = await project.call("writer", {"c": "echo 'echo evil' >> bin/run.sh"})
        assert not result.ok
        assert "evil" not in (crib.root / "bin/run.sh").read_text()


@pytest.mark.parametrize("limit", ["instances", "watches"])
async def test_where_the_kernel_watches_no_more_every_manifest_is_looked_at(
    crib: Crib, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(crib, "b", "one")
    # A source with a broken tool of the same name is no error of the manifest.
    crib.write(".toolcrib/config.yml", "sources: [{file: more.yaml}]")
    more = "sources: {db: {kind: sqlite, database: a.db}}\ntools: {b: {kind: sqlite-sql, source: db}}"
    crib.write("more.yaml", more)

    def full(*_: object) -> int:
        raise OSError(28 if limit == "watches" else 24, "the limit is reached")

    # The limits are the machine's own, so a test cannot lower them for itself.
    monkeypatch.setattr(Inotify, "add" if limit == "watches" else "__init__", full)
    async with watched(crib) as (project, seen):
        assert "fs.inotify.max_user_watches" in seen[0].warnings[0]
        project.toolset.register("own", lambda: "function")
        crib.write("bin/own", "", 0o755)
        crib.tool("own", "command", {"entrypoint": "bin/own"})
        await until(lambda: any("function" in text for change in seen for text in change.warnings))
        # Its form is right; what is wrong is found when it is listed.
        crib.tool("wrong", "command", {"entrypoint": "echo", "args": ["${nope}"]})
        await until(lambda: "wrong" in project.toolset)
        assert "wrong" not in names(project)
        space = project.catalog.binder.workspace()
        says(crib, "b", "twos")
        await until(lambda: is_at(project, "b", "data/twos"))
        says(crib, "c", "new")
        await until(lambda: "c" in project.toolset)
        shutil.rmtree(crib.home / "tools" / "b")
        await until(lambda: "b" not in project.toolset)
        assert sum("function" in text for change in seen for text in change.warnings) == 1
        assert sum("wrong" in change.added for change in seen) == 1
        crib.write(".toolcrib/config.yml", "limits: {timeout_ms: 1000}\n")
        await until(lambda: any("config.yml" in text for change in seen for text in change.warnings))
        assert sum("config.yml" in text for change in seen for text in change.warnings) == 1
        assert not any(change.fixed for change in seen)
        assert project.catalog.binder.workspace() is space
