"""A project put together: its tools, its limits, functions beside manifests."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.crib import Crib, failed
from toolcrib import Project, RetryableError, ToolcribError
from toolcrib.errors import ConflictError
from toolcrib.project import CatalogChange
from toolcrib.project.authoring.creation import create_tool
from toolcrib.schema.providers import wire_names


async def test_functions_registered_in_a_project_are_guarded_and_recorded_too(crib: Crib) -> None:
    crib.secrets = {"TOKEN": "s3cr3t-value"}
    crib.tool("t", "file", {"action": "read", "path": "f"}, permissions={"secrets": {"TOKEN": {}}})
    async with crib.open() as project:

        @project.toolset.tool
        def leak(text: str) -> str:
            return text + "s3cr3t-value"

        assert (await project.call("leak", {"text": "a "})).value == "a ***TOKEN***"
        assert [tool.name for tool in project.tools()] == ["t", "leak"]
    assert crib.last().fields["name"] == "leak"


@pytest.mark.parametrize(
    "secret", ["s3cr3t-value", "hid\u200bden-value", 'quo"te\\-\x01value', "grün-value", "\x7fdel-value"]
)
@pytest.mark.parametrize("around", ["", "x" * 20_000, "\ud800"], ids=["short", "cut", "surrogate"])
async def test_no_spelling_of_a_secret_gets_into_the_log(crib: Crib, secret: str, around: str) -> None:
    crib.secrets = {"TOKEN": secret}
    crib.tool("t", "file", {"action": "read", "path": "f"}, permissions={"secrets": {"TOKEN": {}}})
    async with crib.open() as project:
        project.toolset.register("size", len_of)
        for text in ("harmless", f"{secret} {around}"):
            await project.call("size", {"text": text})
    first, *_, last = (line.fields["params"] for line in crib.audit_lines() if "params" in line.fields)
    assert first == {"text": "harmless"}
    assert "***TOKEN***" in (last.get("text") or last["head"])
    assert secret not in str(last)


def len_of(text: str) -> int:
    return len(text)


async def test_the_projects_retry_repeats_only_functions_that_allow_it(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "retry: {max_attempts: 3}\n")
    crib.trust()

    def charge(why: str) -> None:
        raise RetryableError("busy") if why == "busy" else OSError("the connection was lost")

    async with crib.open() as project:
        project.toolset.register(charge)
        project.toolset.register("charge_once_more", charge, idempotent=True)

        assert (await project.call("charge", {"why": "lost"})).attempts == 1
        assert (await project.call("charge", {"why": "busy"})).attempts == 3
        assert (await project.call("charge_once_more", {"why": "lost"})).attempts == 3


def test_two_manifests_of_one_wire_name_are_a_conflict(crib: Crib) -> None:
    for name in ("a.b", "a_b", "other"):
        crib.tool(name, "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["."]}})
    for name in ("a.b", "a_b"):
        message = failed(crib.call(name), "invalid_manifest")
        assert "`a.b`" in message
        assert "`a_b`" in message
    with crib.open().root.joinpath("f").open("w") as file:
        file.write("content")
    assert crib.call("other").value == "content"


async def test_a_wire_name_stays_with_its_tool_in_an_open_project(crib: Crib) -> None:
    file = ("file", {"action": "read", "path": "f"})
    crib.tool("a.b", *file, permissions={"fs": {"read": ["."]}})
    made = {"description": "Other.", "kind": "file", "version": 1, "exec": {"file": file[1]}}
    changes: list[CatalogChange] = []
    async with crib.open() as project:
        await project.watch(changes.append)
        with pytest.raises(ConflictError, match="a\\.b"):
            create_tool(project, "a_b", made, "x")
        crib.tool("a_b", *file, permissions={"fs": {"read": ["."]}})
        async with asyncio.timeout(100):
            while not changes:  # noqa: ASYNC110 - another thread sees it
                await asyncio.sleep(0.01)
        assert [name for name, tool in wire_names(project.tools()).items()] == ["a_b"]
        assert wire_names(project.tools())["a_b"].name == "a.b"
        assert "a.b" in changes[0].warnings[0]


async def test_the_list_is_stable_and_its_revision_tells_of_changes(crib: Crib) -> None:
    for name in ("b", "a", "c"):
        crib.tool(name, "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["."]}})
    async with crib.open() as project:
        assert [tool.name for tool in project.tools()] == ["a", "b", "c"]
        before = project.revision
        assert project.revision == before
        project.toolset.register("d", lambda: 1)
        assert project.revision != before


def test_a_glee_project_works_as_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    crib = Crib(tmp_path_factory.mktemp("glee") / "project", ".glee")
    crib.write("f", "content")
    crib.tool("t", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}})
    assert crib.call("t").value == "content"
    assert (crib.root / ".glee/audit/tools.log").exists()


@pytest.mark.usefixtures("kernel")
def test_a_tool_cannot_make_a_glee_project_another_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    crib = Crib(tmp_path_factory.mktemp("glee") / "project", ".glee")
    crib.shell(permissions={"fs": {"write": ["."]}})
    crib.sh("mkdir -p .toolcrib/tools/evil; touch .toolcrib/config.yml")
    if (crib.root / ".toolcrib").exists():
        with pytest.raises(ToolcribError) as caught:
            crib.open()
        assert caught.value.code == "conflict"


def test_a_grant_above_the_project_makes_a_tool_ask_at_every_door(crib: Crib) -> None:
    (crib.root.parent / "beside").write_text("content")
    crib.tool("t", "file", {"action": "read", "path": "../beside"}, permissions={"fs": {"read": [".."]}})
    assert "above the project root" in failed(crib.call("t"), "approval_required")
    assert crib.call("t", approved_by="me").value == "content"

    async def listed() -> bool:
        async with crib.open() as project:
            return project.tools()[0].approval.required

    assert asyncio.run(listed())


def test_closing_twice_is_fine(crib: Crib) -> None:
    async def twice() -> None:
        project = Project.open(crib.root)
        await project.aclose()
        await project.aclose()

    asyncio.run(twice())


def test_tools_are_first_used_by_several_threads_at_once(crib: Crib) -> None:
    for number in range(100):
        crib.tool(f"t{number}", "file", {"action": "read", "path": "f"})
    project = crib.open()
    start = threading.Barrier(4)

    def first_use(name: str) -> str:
        start.wait(100)
        return project.get(name).name

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            for number in range(100):
                name = f"t{number}"
                assert list(pool.map(first_use, [name] * 4)) == [name] * 4
            for part in ("approval_service", "calls", "runs", "agents", "workflows", "tasks"):
                made = list(pool.map(lambda name: (start.wait(100), getattr(project, name))[1], [part] * 4))
                assert len(set(map(id, made))) == 1, part
    finally:
        sys.setswitchinterval(before)
