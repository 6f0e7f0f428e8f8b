"""Third-party MCP servers from a plain `.mcp.json`: what they need is granted, and nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed
from tests.mcp_servers import trust
from tests.third_party import node_packages, python_servers
from toolcrib.project import Project
from toolcrib.spec import Network

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("third_party")]

PRIVATE = ("--allow-private-ips",)  # else it refuses a site on this machine itself
SCOPE = "@modelcontextprotocol"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of this test's own, as caches and launchers are found below it."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    for name in ("UV_CACHE_DIR", "XDG_CACHE_HOME", "npm_config_cache", "UV_TOOL_DIR", "PYENV_VERSION"):
        monkeypatch.delenv(name, raising=False)
    return folder


START_S = 300
"""Seconds for several servers at once on a machine that is busy."""


@asynccontextmanager
async def started(crib: Crib, servers: dict[str, Any]) -> AsyncIterator[Project]:
    """Write `.mcp.json`, trust it and what the servers offer, and open the project."""
    servers = {name: {"start_timeout_s": START_S, **entry} for name, entry in servers.items()}
    crib.write(".mcp.json", json.dumps({"mcpServers": servers}))
    trust(crib.root)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(START_S)
        project.trust.accept("ann", more=[one.row() for one in project.servers.mounted.values()])
        yield project


def state(project: Project, name: str) -> dict[str, Any]:
    assert project.servers is not None
    return project.servers.get(name).as_dict()


def assert_ready(project: Project) -> None:
    assert project.servers is not None
    states = {name: one.as_dict() for name, one in project.servers.mounted.items()}
    assert {name: one["error"] for name, one in states.items() if one["state"] != "ready"} == {}


def repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


async def test_seven_servers_work_as_they_come(crib: Crib, site: str) -> None:
    venv, modules = python_servers() / "bin", node_packages() / "node_modules"
    repository(crib.root)
    crib.write("notes.txt", "some notes")
    for folder in ("data", "docs"):
        crib.write(f"{folder}/.keep", "")
    servers = {
        "time": {"command": str(venv / "mcp-server-time")},
        "fetch": {"command": str(venv / "python"), "args": ["-m", "mcp_server_fetch", *PRIVATE]},
        "git": {"command": str(venv / "mcp-server-git"), "args": ["--repository", "."]},
        "sqlite": {
            "command": str(venv / "mcp-server-sqlite"),
            "args": ["--db-path", "data/x.db"],
        },
        "filesystem": {"command": "node", "args": [str(modules / ".bin/mcp-server-filesystem"), "docs"]},
        "memory": {
            "command": str(modules / ".bin/mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(crib.root / "data/memory.jsonl")},
        },
        "everything": {"command": "node", "args": [f"{modules}/{SCOPE}/server-everything/dist/index.js"]},
    }
    async with started(crib, servers) as project:
        assert_ready(project)
        assert project.servers is not None
        assert [one.spec.name for one in project.servers.mounted.values() if one.waits_for_hosts] == [
            "fetch",
            "everything",
        ]
        fetch = project.servers.get("fetch")
        project.trust.accept("ann", more=[fetch.row(network=Network.parse({"allow": [site]}))])
        page = (await project.call("fetch__fetch", {"url": f"http://{site}/"})).unwrap()
        assert "the page" in str(page)
        now = (await project.call("time__get_current_time", {"timezone": "Asia/Tokyo"})).unwrap()
        assert "Asia/Tokyo" in json.dumps(now)
        assert "notes.txt" in str((await project.call("git__git_status", {"repo_path": "."})).unwrap())
        added = {"repo_path": ".", "files": ["notes.txt"]}
        refused = (await project.call("git__git_add", added)).error  # A grant that a person must write.
        assert refused is not None
        assert '"write": [".git"]' in str(refused.hint)
        for _ in range(2):  # the second one writes the file that the first has made
            query = {"query": "CREATE TABLE IF NOT EXISTS t (n INTEGER)"}
            (await project.call("sqlite__create_table", query)).unwrap()
        assert (crib.root / "data/x.db").stat().st_size > 0
        written = {"path": f"{crib.root}/docs/notes.txt", "content": "some notes"}
        (await project.call("filesystem__write_file", written)).unwrap()
        read = await project.call("filesystem__read_text_file", {"path": f"{crib.root}/docs/notes.txt"})
        assert "some notes" in json.dumps(read.unwrap())
        assert "hi" in str((await project.call("everything__echo", {"message": "hi"})).unwrap())
        entity = {"entities": [{"name": "Ann", "entityType": "person", "observations": []}]}
        (await project.call("memory__create_entities", entity)).unwrap()
        assert "Ann" in str((await project.call("memory__read_graph", {})).unwrap())


async def test_a_refusal_names_the_permission_that_would_help(crib: Crib) -> None:
    venv, modules = python_servers() / "bin", node_packages() / "node_modules"
    crib.write("data/.keep", "")
    servers = {
        "fetch": {
            "command": str(venv / "mcp-server-fetch"),
            "args": ["--ignore-robots-txt", *PRIVATE],
        },
        "listed": {
            "command": str(venv / "mcp-server-fetch"),
            "args": ["--ignore-robots-txt", *PRIVATE],
            "permissions": {"network": {"allow": ["example.com"]}},
        },
        "sqlite": {
            "command": str(venv / "mcp-server-sqlite"),
            "args": ["--db-path", "data/x.db"],
            "permissions": {"fs": {"read": ["."]}},
        },
        "memory": {
            "command": str(modules / ".bin/mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(crib.root / "data/memory.json")},
        },
        "beside": {"command": str(modules / ".bin/mcp-server-memory")},
    }
    async with started(crib, servers) as project:
        error = state(project, "sqlite")["error"]
        assert "unable to open database file" in error["message"]
        assert error["hint"].endswith('permissions: {"fs": {"read": ["."], "write": ["data"]}}')
        entity = {"entities": [{"name": "a", "entityType": "b", "observations": []}]}
        written = await project.call("memory__create_entities", entity)
        failed(written, "permission_denied")
        assert written.error is not None
        assert '"write": ["data"]' in str(written.error.hint)
        written = await project.call("beside__create_entities", entity)
        assert written.error is not None
        assert f"Give it an absolute path in the project, such as {crib.root}/data" in str(written.error.hint)
        hints = {
            "fetch": ("permission_denied", "To allow it: toolcrib trust fetch --allow 127.0.0.1:9"),
            "listed": ("host_not_allowed", '"network": {"allow": ["example.com", "127.0.0.1:9"]}'),
        }
        for name, (code, hint) in hints.items():
            asked = await project.call(f"{name}__fetch", {"url": "http://127.0.0.1:9/"})
            failed(asked, code)
            assert asked.error is not None
            assert hint in str(asked.error.hint), asked.error.as_dict()


async def test_a_launcher_that_is_not_a_package_starts_what_is_on_the_machine(
    crib: Crib, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launchers, pyenv = home / "launchers", home / ".pyenv"
    (pyenv / "versions").mkdir(parents=True)
    (pyenv / "versions/3.99.1").symlink_to(python_servers())
    (pyenv / "version").write_text("3.99.1\n")
    for program in (launchers / "uvx", launchers / "uv", launchers / "npx", pyenv / "shims/python3"):
        program.parent.mkdir(exist_ok=True)  # They are found, and never run.
        program.write_text(f"#!/bin/sh\necho ran > {home}/ran\nexit 9\n")
        program.chmod(0o755)
    (crib.root / "local").mkdir()
    (crib.root / "local/.venv").symlink_to(python_servers())
    monkeypatch.setenv("PATH", f"{pyenv}/shims:{launchers}:{os.environ['PATH']}")
    servers = {
        "uvrun": {"command": "uv", "args": ["--directory", "local", "run", "mcp-server-time"]},
        "pyenv": {"command": "python3", "args": ["-m", "mcp_server_time"]},
        "shell": {"command": "sh", "args": ["-c", f"exec {python_servers()}/bin/mcp-server-time"]},
        "npx": {"command": "npx", "args": ["-y", f"{SCOPE}/server-memory"]},
        "uvx": {"command": "uvx", "args": ["mcp-server-time"]},
        "built": {"command": "uvx", "args": ["--from", "git+https://example.com/x", "x"]},
    }
    async with started(crib, servers) as project:
        ready = {name for name in servers if state(project, name)["state"] == "ready"}
        assert ready == {"uvrun", "pyenv"}
        hint = "To download it, without running any of its code: toolcrib trust"
        assert state(project, "npx")["error"]["hint"] == f"{hint} npx"
        assert state(project, "uvx")["error"]["hint"] == f"{hint} uvx"
        assert "only packages by name" in state(project, "built")["error"]["message"]
        grants = state(project, "uvrun")["grants"]
        assert f"read {python_servers()} (its program)" in grants
        assert f"read {home} (its program)" not in grants
    assert not (home / "ran").exists()
