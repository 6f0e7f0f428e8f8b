"""Edits of trusted tools while `serve --dev` runs: those that widen nothing need no person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, accept
from tests.patience import patient
from toolcrib import Project
from toolcrib.guard import Ledger
from toolcrib.project.authoring.creation import create_tool
from toolcrib.project.trust.sheets import TrustSheet
from toolcrib.spec import Call
from toolcrib.state import Vault

ASKS = {"required": True, "reason": "it writes"}
LIMITS = {"memory_bytes": 1 << 30, "calls_per_minute": 10, "min_interval_ms": 10}


@pytest.fixture
def crib(crib: Crib) -> Crib:
    crib.accept = "trusted"
    for path in ("src/a", "src/deep/b", "out/old", "out/deep/old", "other/c"):
        crib.write(path, "one")
    write(crib)
    accept(crib.root)
    return crib


def write(crib: Crib, *, allow_code: bool = False, text: str = "one", **more: Any) -> None:
    """The manifest of `note`, whose grants are `read`, `write` and the others of `more`."""
    permissions: dict[str, Any] = {
        name: more.pop(name) for name in ("network", "secrets", "env") if name in more
    }
    permissions["fs"] = {"read": more.pop("read", ["src"]), "write": more.pop("write", ["out"])}
    block = {"entrypoint": "sh", "args": ["-c", f"echo {text} > out/note"], "allow_code": allow_code}
    more = {"permissions": permissions, "limits": LIMITS, **more}
    crib.tool("note", "command", block, outputs={"format": "text"}, **more)


@asynccontextmanager
async def editing(crib: Crib) -> AsyncIterator[tuple[Project, list[TrustSheet]]]:
    """The project as `serve --dev` has it, and what was trusted by itself."""
    followed: list[TrustSheet] = []
    async with crib.open() as project:
        project.trust.follow_edits(followed.append)
        await project.watch()
        yield project, followed


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + patient(40)
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)


async def edited(crib: Crib, project: Project, **more: Any) -> bool:
    """Edit the tool, and return if it is trusted as it is now."""
    before = project.get("note")
    write(crib, **more)
    await until(lambda: project.get("note") != before)
    project.trust.follow(project.get("note"))
    return project.trust.holds(project.get("note"))


@pytest.mark.parametrize(
    "edit",
    [
        {"text": "two"},
        {"read": ["src/deep"]},
        {"read": []},
        {"write": ["out/deep"]},
        {"limits": {**LIMITS, "memory_bytes": 1 << 20, "min_interval_ms": 20, "output_bytes": 1_000}},
        {"approval": ASKS},
        {"retry": {"max_attempts": 1}},
    ],
    ids=str,
)
async def test_an_edit_that_widens_nothing_is_trusted_and_recorded(crib: Crib, edit: dict[str, Any]) -> None:
    async with editing(crib) as (project, followed):
        assert await edited(crib, project, **edit)
        assert ["manifest" in sheet.changed for sheet in followed] == [True]
        assert project.trust.last(project.get("note")).channel == "dev"  # type: ignore[union-attr]
    line = crib.last()
    assert (line.event, line.fields["channel"]) == ("TRUSTED", "dev")
    assert "tool:note" in line.fields["subjects"]


@pytest.mark.parametrize(
    "edit",
    [
        {"read": ["src", "other"]},
        {"read": ["."]},
        {"read": ["/etc"]},
        {"write": ["out", "src"]},
        {"write": ["."]},
        {"network": {"allow": ["example.com"]}},
        {"network": True},
        {"secrets": {"KEY": {}}},
        {"env": ["PATH"]},
        {"allow_code": True},
        {"limits": {**LIMITS, "memory_bytes": 2 << 30}},
        {"limits": {**LIMITS, "calls_per_minute": 11}},
        {"limits": {**LIMITS, "min_interval_ms": 9}},
        {"limits": {}},
        {"retry": {"max_attempts": 3}},
    ],
    ids=str,
)
async def test_all_else_waits_for_a_person(crib: Crib, edit: dict[str, Any]) -> None:
    async with editing(crib) as (project, followed):
        assert not await edited(crib, project, **edit)
        assert followed == []


async def test_a_tool_with_network_is_not_followed_even_if_nothing_widens(crib: Crib) -> None:
    write(crib, network=True)
    accept(crib.root)
    async with editing(crib) as (project, _):
        assert not await edited(crib, project, network=True, text="two")


async def test_to_drop_the_approval_of_each_call_waits(crib: Crib) -> None:
    write(crib, approval=ASKS)
    accept(crib.root)
    async with editing(crib) as (project, _):
        assert await edited(crib, project, approval=ASKS, text="two")
        assert not await edited(crib, project, text="three")


async def test_a_grant_that_a_link_takes_elsewhere_waits(crib: Crib) -> None:
    async with editing(crib) as (project, _):
        (crib.root / "out").rename(crib.root / "was")
        (crib.root / "out").symlink_to("src")
        assert not await edited(crib, project, text="two")


async def test_what_waited_before_it_began_still_waits(crib: Crib) -> None:
    write(crib, text="from a commit")
    async with editing(crib) as (project, followed):
        assert not await edited(crib, project, text="and an edit")
        accept(crib.root)
        assert await edited(crib, project, text="another edit")
    assert len(followed) == 1


async def test_nothing_is_followed_that_nobody_trusted_or_an_agent_made(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "security: {max_permissions: {fs: {write: [out]}}}\n")
    crib.trust()
    made = {"kind": "file", "description": "Writes.", "version": 1}
    made |= {"exec": {"file": {"action": "write", "path": "out/x", "content": "1"}}}
    made |= {"permissions": {"fs": {"write": ["out"]}}}
    async with editing(crib) as (project, followed):
        create_tool(project, "made", made, "an agent")
        project.trust.trust(project.get("made"), "ann")
        path = crib.home / "tools/made/tool.yml"
        path.write_text(path.read_text().replace("Writes.", "Writes!"))
        await until(lambda: project.get("made").description == "Writes!")
        crib.tool("new", "file", made["exec"]["file"], permissions=made["permissions"])  # type: ignore[index]
        await until(lambda: "new" in project.toolset)
        for name in ("made", "new"):
            assert not project.trust.follow(project.get(name))
        assert project.trust.revoke("ann", [project.get("note")]) == 1
        assert not await edited(crib, project, text="two")
        assert followed == []


@pytest.mark.usefixtures("kernel")
async def test_a_script_beside_the_manifest_is_followed_at_the_call(crib: Crib) -> None:
    permissions = {"fs": {"write": ["out"]}}
    script = ".toolcrib/tools/script/run.sh"
    block = {"entrypoint": script}
    crib.write(script, "#!/bin/sh\necho one\n", 0o755)
    crib.tool("script", "command", block, outputs={"format": "text"}, permissions=permissions)
    accept(crib.root)
    async with editing(crib) as (project, followed):
        crib.write(script, "#!/bin/sh\necho two\n", 0o755)
        result = await project.invoke(Call("script", {}, caller="mcp:agent"))
        assert result.unwrap() == "two\n"
        assert [sheet.changed[-1] for sheet in followed] == ["files/run.sh"]


async def test_what_another_process_trusts_is_announced(crib: Crib) -> None:
    ledger = Ledger(Vault(Path(crib.root)))
    async with crib.open() as project:
        await project.watch()
        assert not await edited(crib, project, text="two")
        revision = project.revision
        ledger.accept([project.trust.sheet(project.get("note")).row], "ann", "terminal")
        assert project.trust.holds(project.get("note"))  # without any wait
        await until(lambda: project.revision != revision)
    ledger.close()
