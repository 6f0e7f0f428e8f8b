"""Manifests and settings that are symbolic links: none shows a line of a file that no tool may read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests import commands
from tests.crib import Crib, failed
from toolcrib import Project
from toolcrib.errors import ConfigError
from toolcrib.project.integrity.lock import write_lock
from toolcrib.state import Vault

CANARY = "canary-4711"
REQUESTS = (
    {
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        },
    },
    {"method": "tools/list", "params": {}},
    {"method": "tools/call", "params": {"name": "x", "arguments": {}}},
    {"method": "tools/call", "params": {"name": "tools_search", "arguments": {"query": "x"}}},
)


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    return Crib(tmp_path / "project")


def cli(crib: Crib, *args: str, stdin: str = "", **env: str) -> str:
    """Everything that a command prints."""
    done = commands.text(commands.run(args, crib.root, {**os.environ, **env}, stdin.encode()))
    return done.stdout + done.stderr


def mcp(crib: Crib) -> str:
    """Everything that an agent is told over MCP, and what the server prints."""
    lines = [json.dumps({"jsonrpc": "2.0", "id": n, **one}) for n, one in enumerate(REQUESTS)]
    return cli(crib, "serve", "--stdio", stdin="\n".join(lines) + "\n")


@pytest.mark.parametrize("secret", ["env", "configured", "state", "audit", "outside"])
def test_a_manifest_that_is_a_link_shows_no_line_of_what_no_tool_may_read(crib: Crib, secret: str) -> None:
    paths = {
        "env": ".env",
        "configured": "conf/secrets.env",
        "state": ".toolcrib/state.db",
        "audit": ".toolcrib/audit/tools.log",
        "outside": "../outside",
    }
    crib.write(".toolcrib/config.yml", "secrets: {sources: [{env_file: {path: conf/secrets.env}}]}")
    crib.write(paths[secret], f'PASSWORD: "{CANARY}')
    (crib.home / "tools/x").mkdir()
    (crib.home / "tools/x/tool.yml").symlink_to(crib.root / paths[secret])
    crib.write(".toolcrib/tools/s/notes", "")
    (crib.home / "tools/s/SKILL.md").symlink_to(crib.root / paths[secret])

    async def python() -> str:
        async with crib.open() as project:
            result = await project.call("x")
            return f"{result.error!r} {result.error and result.error.details} {project.diagnostics}"

    said = asyncio.run(python()) + mcp(crib)
    for command in (("list",), ("list", "--json"), ("lint",), ("run", "x"), ("show", "x"), ("trust", "x")):
        said += cli(crib, *command)
    assert CANARY not in said
    assert "so it is not read" in said


@pytest.mark.parametrize("linked", [True, False])
def test_a_script_that_no_tool_may_read_is_not_shown_as_code(crib: Crib, linked: bool) -> None:
    crib.accept = "trusted"
    crib.write(".env", f"PASSWORD={CANARY}\n")
    crib.write(".toolcrib/tools/x/run.sh", "echo shown\n")
    script = ".toolcrib/tools/x/link.sh" if linked else ".env"
    args = ["-c", f". .toolcrib/tools/x/run.sh; . {script}"]
    crib.write("out/x", "")
    fs = {"read": ["."], "write": ["out"]}
    crib.tool("x", "command", {"entrypoint": "sh", "args": args}, permissions={"fs": fs})
    if linked:
        (crib.root / script).symlink_to("../../../.env")
    said = (
        cli(crib, "trust", "x", "--show", "--json")
        + cli(crib, "run", "x")
        + cli(crib, "trust", "x", "--show")
    )
    crib.trust_tools("x")
    kept = [path.read_bytes() for path in Vault(crib.root).path.glob("trust.db*")]
    assert kept
    assert "echo shown" in said
    assert "closed to tools, so it is not shown" in said
    assert CANARY not in said + str(kept)


def test_an_agent_to_import_that_is_a_link_shows_nothing(crib: Crib) -> None:
    crib.write(".env", f'PASSWORD: "{CANARY}')
    crib.write(".claude/agents/notes", "")
    (crib.root / ".claude/agents/a.md").symlink_to(crib.root / ".env")
    (crib.root / ".claude/agents/gone.md").symlink_to("nowhere")
    said = cli(crib, "agents", "import")
    assert "so it is not read" in said
    assert "gone.md" not in said
    assert CANARY not in said


@pytest.mark.parametrize("name", [".toolcrib/config.yml", ".mcp.json"])
def test_settings_that_are_a_link_show_nothing_either(crib: Crib, name: str) -> None:
    crib.write(".env", f'PASSWORD: "{CANARY}')
    (crib.root / name).symlink_to(crib.root / ".env")
    said = mcp(crib) + cli(crib, "list") + cli(crib, "lint") + cli(crib, "trust", "--show")
    assert CANARY not in said
    assert "so it is not read" in said
    if name.endswith("yml"):
        with pytest.raises(ConfigError, match="so it is not read"):
            Project.open(crib.root)


def test_a_definition_that_the_settings_name_is_no_secret(crib: Crib) -> None:
    crib.write(".env", f'PASSWORD: "{CANARY}')
    crib.write("defs/notes", "")
    (crib.root / "defs/x.yaml").symlink_to("../.env")
    for source in ("file: .env", "file: defs/x.yaml", "dir: defs"):
        crib.write(".toolcrib/config.yml", f"sources: [{{{source}}}]")
        said = cli(crib, "list") + cli(crib, "lint") + mcp(crib)
        assert CANARY not in said
        assert "so it is not read" in said


def test_an_agent_sees_no_line_of_a_manifest_with_errors(crib: Crib) -> None:
    crib.write(".toolcrib/tools/x/tool.yml", f"name: x\ndescription: {CANARY}: [\n")
    assert CANARY in cli(crib, "lint")
    for command in (("lint",), ("lint", "--json"), ("list",), ("list", "--json")):
        assert CANARY not in cli(crib, *command, TOOLCRIB_TOKEN="tcr_x")
    assert CANARY not in mcp(crib)
    assert CANARY not in failed(crib.call("x"), "invalid_manifest")


def mounted(folder: Path, files: dict[str, str]) -> None:
    """Lay out a folder as Kubernetes mounts a ConfigMap: each name is a link through `..data`."""
    version = folder / "..2026_01_01_00_00_00.1"
    for name, text in files.items():
        place = version / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)
    (folder / "..data").symlink_to(version.name)
    for name in {name.partition("/")[0] for name in files}:
        (folder / name).symlink_to(f"..data/{name}")


def updated(folder: Path, files: dict[str, str], name: str = "..2026_01_02_00_00_00.2") -> None:
    """Put another version into it, as the kubelet does: one rename of `..data`."""
    version = folder / name
    for name, text in files.items():
        place = version / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)
    (folder / "..data_tmp").symlink_to(version.name)
    (folder / "..data_tmp").rename(folder / "..data")


MANIFEST = """
name: hello
description: Say hello
kind: command
version: 1
exec: {command: {entrypoint: ENTRY}}
outputs: {format: text}
"""
SCRIPT = "#!/bin/sh\necho hello\n"


def test_a_tool_mounted_from_a_config_map_runs(crib: Crib) -> None:
    folder = crib.home / "tools/hello"
    folder.mkdir()
    manifest = MANIFEST.replace("ENTRY", ".toolcrib/tools/hello/run.sh")
    mounted(folder, {"tool.yml": manifest, "run.sh": SCRIPT})
    assert crib.call("hello").value == "hello\n"
    updated(folder, {"tool.yml": manifest, "run.sh": SCRIPT.replace("hello", "again")})
    assert crib.call("hello").value == "again\n"


def test_a_tool_mounted_again_from_a_config_map_needs_no_other_trust(crib: Crib) -> None:
    """Each mount has a version folder of another name; `$0` and the files beside it are found as ever."""
    crib.accept = "trusted"
    (crib.root / "out").mkdir()
    folder = crib.home / "tools/hello"
    folder.mkdir()
    manifest = MANIFEST.replace("ENTRY", ".toolcrib/tools/hello/run.sh")
    manifest += "permissions: {fs: {write: [out]}}\n"
    files = {
        "tool.yml": manifest,
        "run.sh": "#!/bin/sh\n. .toolcrib/tools/hello/lib.sh\n",
        "lib.sh": "echo a\n",
    }
    mounted(folder, files)
    assert failed(crib.call("hello"), "approval_required")
    crib.trust_tools("hello")

    async def lock() -> None:
        async with crib.open() as project:
            write_lock(project.pins.path, project.pins.now(project.tools(), project.config.digest))

    asyncio.run(lock())
    assert crib.call("hello").unwrap() == "a\n"
    updated(folder, files)
    shutil.rmtree(folder / "..2026_01_01_00_00_00.1")
    assert crib.call("hello").unwrap() == "a\n"
    updated(folder, {**files, "lib.sh": "echo b\n"}, "..3")
    shutil.rmtree(folder / "..2026_01_02_00_00_00.2")
    assert "lib.sh" in failed(crib.call("hello"), "lock_drift")


def test_a_project_mounted_from_a_config_map_runs(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    files = {
        ".toolcrib/config.yml": "limits: {timeout_ms: 60000}\n",
        ".toolcrib/tools/hello/tool.yml": MANIFEST.replace("ENTRY", "scripts/run.sh"),
        "scripts/run.sh": SCRIPT,
    }
    mounted(root, files)

    async def call() -> object:
        async with Project.open(root, accept="all") as project:
            assert project.config.timeout_ms == 60_000
            return (await project.call("hello")).unwrap()

    assert asyncio.run(call()) == "hello\n"


API = {
    "openapi": "3.1.0",
    "info": {"title": "a", "version": "1"},
    "servers": [{"url": "https://api.example.com"}],
    "paths": {"/x": {"get": {"operationId": "look", "responses": {"200": {"description": "x"}}}}},
}


@pytest.mark.parametrize("linked", [".toolcrib", ".toolcrib/tools", ".toolcrib/agents"])
def test_no_command_writes_through_a_folder_that_leads_out_of_the_project(
    tmp_path: Path, linked: str
) -> None:
    root, outside = tmp_path / "clone", tmp_path / "outside"
    outside.mkdir()
    (root / linked).parent.mkdir(parents=True)
    (root / linked).symlink_to(outside)
    (root / "api.json").write_text(json.dumps(API))
    (root / "agent.md").write_text("---\nname: a\ndescription: d\nmodel: inherit\n---\nhello\n")
    for command in (
        "init",
        "new look --kind command --description d --run ls --argument a",
        "import openapi api.json",
        "agents import agent.md --model anthropic:claude-sonnet-5",
    ):
        commands.run(command.split(), root, {**os.environ}, b"")
        assert list(outside.iterdir()) == [], command
