"""`toolcrib.lock`: what differs from it does not run, and it trusts nothing by itself."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crib import Crib, failed
from toolcrib import Project
from toolcrib.errors import ConfigError, DeniedError
from toolcrib.project.integrity.lock import Lock, Pins, read_lock, write_lock

pytestmark = pytest.mark.usefixtures("kernel")

TRUE = {"c": "echo ran"}


def lock(crib: Crib) -> None:
    project = crib.open()
    write_lock(project.pins.path, project.pins.now(project.tools(), project.config.digest))


def test_a_tool_that_drifts_from_the_lock_does_not_run(crib: Crib) -> None:
    folder = crib.shell()
    (folder / "data").write_text("1")
    lock(crib)
    assert crib.call("sh", TRUE).ok
    (folder / "data").write_text("2")
    result = crib.call("sh", TRUE)
    assert "files/data" in failed(result, "lock_drift")
    assert isinstance(result.error, DeniedError)
    assert crib.last().event == "TOOL_REFUSED"
    crib.shell("late")
    assert "not in the lock" in failed(crib.call("late", TRUE), "lock_drift")
    lock(crib)
    assert crib.call("sh", TRUE).ok
    assert crib.call("late", TRUE).ok
    (crib.root / "toolcrib.lock").unlink()
    crib.shell("later")
    assert crib.call("later", TRUE).ok


async def test_an_open_project_heeds_a_lock_that_changes(crib: Crib) -> None:
    folder = crib.shell()
    (folder / "data").write_text("1")
    async with crib.open() as project:
        assert (await project.call("sh", TRUE)).ok
        lock(crib)
        (folder / "data").write_text("2")
        failed(await project.call("sh", TRUE), "lock_drift")
        lock(crib)
        assert (await project.call("sh", TRUE)).ok


def test_the_lock_is_the_same_wherever_the_project_lies(crib: Crib, tmp_path: Path) -> None:
    crib.write("bin/run.sh", "#!/bin/sh\n", 0o755)
    crib.tool("run", "command", {"entrypoint": "bin/run.sh"}, permissions={"fs": {"read": ["."]}})
    lock(crib)
    moved = crib.root.rename(tmp_path / "moved")
    project = Project.open(moved)
    pinned = read_lock(moved / "toolcrib.lock")
    assert pinned is not None
    assert pinned.drift(project.pins.now(project.tools(), project.config.digest)) == []
    assert sorted(pinned.tools["run"]) == [
        "files/tool.yml",
        "grants/read/.",
        "manifest",
        "script/bin/run.sh",
    ]
    assert str(tmp_path) not in (moved / "toolcrib.lock").read_text()


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "{", '{"version": 2, "tools": {}}', "\xff", "link", "forged"]
)
def test_a_lock_that_is_none_stops_every_tool(crib: Crib, tmp_path: Path, text: str) -> None:
    crib.shell()
    path = crib.root / "toolcrib.lock"
    if text == "link":
        path.symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").write_text("{}")
    elif text == "forged":
        lock(crib)
        data = json.loads(path.read_text())
        data["tools"]["sh"]["parts"]["manifest"] = "0" * 64
        path.write_text(json.dumps(data))
    else:
        path.write_bytes(text.encode("latin-1"))
    result = crib.call("sh", TRUE)
    failed(result, "invalid_config")
    assert isinstance(result.error, ConfigError)


def test_no_tool_writes_the_lock(crib: Crib) -> None:
    crib.shell(permissions={"fs": {"read": ["."], "write": ["."]}})
    lock(crib)
    before = (crib.root / "toolcrib.lock").read_bytes()
    crib.sh("echo x > toolcrib.lock; rm -f toolcrib.lock; mv toolcrib.lock other; echo y > fine")
    assert (crib.root / "toolcrib.lock").read_bytes() == before
    assert (crib.root / "fine").exists()


def test_a_lock_that_is_away_for_a_moment_counts_again(crib: Crib) -> None:
    folder = crib.shell()
    lock(crib)
    (folder / "new").write_text("1")
    project, every = crib.open(), list[Pins]()
    tool, shown, away = project.get("sh"), crib.root / "shown", crib.root / "away"
    shown.mkdir()
    (crib.root / "toolcrib.lock").rename(shown / "toolcrib.lock")

    def move() -> None:
        for _ in range(2_000):
            shown.rename(away)
            away.rename(shown)

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        while not moving.done():
            every.append(Pins(shown, project.fingerprint))
            with suppress(DeniedError):
                every[-1].require(tool)
    moving.result()
    for pins in every:
        with pytest.raises(DeniedError, match="new"):
            pins.require(tool)


def test_definitions_of_remote_tools_are_pinned_by_whoever_brings_them(crib: Crib) -> None:
    crib.shell()
    project = crib.open()
    told = {"search": {"find": "1" * 64}}
    project.pins.remote = lambda: told
    write_lock(project.pins.path, project.pins.now(project.tools(), project.config.digest))
    pins = Pins(project.root, project.fingerprint)
    pins.remote = lambda: told
    tool = replace(project.get("sh"), name="find", bundle="search", source=None)
    pins.require(tool)
    told["search"]["find"] = "2" * 64
    with pytest.raises(DeniedError, match="definition"):
        pins.require(tool)
    found = read_lock(project.pins.path)
    assert found is not None
    assert [str(one) for one in found.drift(Lock(found.tools, told))] == ["search/: find"]
