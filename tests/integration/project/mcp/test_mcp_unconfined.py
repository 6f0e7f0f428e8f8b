"""Servers started by a daemon's client: the trust question shows the program that runs, and no other runs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.crib import Crib
from tests.integration.project.mcp.test_mcp_stdio import opened, server
from tests.mcp_servers import RAW, trust, write
from tests.patience import patient
from toolcrib.project import load_config

pytestmark = pytest.mark.timeout(120)

CONTROL = "this gives control of the machine"


@pytest.fixture
def bin_(crib: Crib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in PATH with a program named docker that leaves a mark where no confined process could."""
    crib.write("s.py", RAW + "\nmain()")
    tmp_path = tmp_path.resolve()
    (tmp_path / "bin").mkdir()
    for name in ("docker", "podman", "nerdctl"):
        client(tmp_path / "bin" / name, tmp_path / "mark")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "bin"


def client(path: Path, mark: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho x > {mark}\nexec {sys.executable} $2\n")
    path.chmod(0o755)


def warnings(crib: Crib) -> list[str]:
    found = load_config(crib.home / "config.yml", crib.root).weakening()
    return [one.allows for one in found if CONTROL in one.allows]


def marked(folder: Path) -> bool:
    return (folder.parent / "mark").exists()


async def runs_unconfined(crib: Crib, folder: Path) -> bool:
    """Start the server `box`, and return True if it reached what is outside."""
    async with opened(crib) as project:
        state = server(project, "box").as_dict()
    assert marked(folder) == (state["sandbox"] == "none"), state
    return marked(folder)


@pytest.mark.parametrize("line", ["docker", "podman", "nerdctl", "box", "{bin}/docker", "{bin}/box"])
async def test_a_client_by_any_name_is_shown_by_its_real_path_and_that_is_started(
    crib: Crib, bin_: Path, line: str
) -> None:
    (bin_ / "box").symlink_to("docker")
    write(crib, {"box": {"command": line.format(bin=bin_), "args": ["run", "s.py"]}})
    real = line if line in ("docker", "podman", "nerdctl") else "docker"
    assert warnings(crib) == [f"{bin_}/{real} runs unconfined: {CONTROL}"]
    assert await runs_unconfined(crib, bin_)


async def test_a_link_that_comes_to_lead_elsewhere_asks_again(crib: Crib, bin_: Path) -> None:
    mark, box = bin_.parent / "mark", bin_ / "box"
    box.symlink_to("/bin/true")
    write(crib, {"box": {"command": "box", "args": ["run", "s.py"]}})
    assert warnings(crib) == []
    for target in (bin_ / "docker", bin_.parent / "other" / "docker"):
        client(target, mark)
        box.unlink()
        box.symlink_to(target)
        before = load_config(crib.home / "config.yml", crib.root).digest
        async with crib.open() as project:
            assert project.waiting
            assert project.servers is not None
            await project.servers.ready(patient(5))
        assert not marked(bin_)
        trust(crib.root)
        assert await runs_unconfined(crib, bin_)
        assert load_config(crib.home / "config.yml", crib.root).digest == before
        mark.unlink()


async def test_a_link_changed_after_the_settings_were_read_is_not_started(crib: Crib, bin_: Path) -> None:
    box = bin_ / "box"
    box.symlink_to("/bin/true")
    write(crib, {"box": {"command": "box", "args": ["run", "s.py"]}})
    project = crib.open()
    box.unlink()
    box.symlink_to("docker")
    async with project:
        assert project.servers is not None
        await project.servers.ready(30)
        error = server(project, "box").server.error
        assert error is not None
        assert "has changed since it was trusted" in error.message
        assert f"is {bin_}/docker" in error.message
    assert not marked(bin_)


@pytest.mark.parametrize(
    "line",
    ["./docker", "docker", "./link", "env docker run s.py", "sh -c 'docker run s.py'", "missing/docker"],
)
async def test_a_program_of_the_project_and_a_client_behind_another_program_are_confined(
    crib: Crib, bin_: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crib.write("docker", (bin_ / "docker").read_text(), 0o755)
    (crib.root / "link").symlink_to(bin_ / "docker")
    if line == "docker":  # found in the project by PATH alone
        monkeypatch.setenv("PATH", f".:{crib.root}:/usr/bin:/bin")
        monkeypatch.chdir(bin_.parent)
    command, *args = shlex.split(line)
    write(crib, {"box": {"command": command, "args": args or ["run", "s.py"]}})
    assert warnings(crib) == []
    assert not await runs_unconfined(crib, bin_)


async def test_code_of_the_project_is_not_loaded_into_it(crib: Crib, bin_: Path) -> None:
    crib.write("evil.so", "x")
    env = {"LD_PRELOAD": "./evil.so"}
    write(crib, {"box": {"command": "docker", "args": ["run", "s.py"], "env": env}})
    async with opened(crib) as project:
        error = server(project, "box").server.error
        assert error is not None
        assert "unconfined, so not with code of the project" in error.message
    assert not marked(bin_)


def test_a_server_of_the_shared_file_is_shown_too(crib: Crib, bin_: Path) -> None:
    (bin_ / "box").symlink_to("docker")
    crib.write(".mcp.json", json.dumps({"mcpServers": {"a": {"command": "box"}}}))
    assert len(warnings(crib)) == 1
