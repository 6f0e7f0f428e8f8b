"""A project put together: its tools, its limits, functions beside manifests."""

from __future__ import annotations

import asyncio

import pytest

from tests.crib import Crib, failed
from toolcrib import Project, RetryableError, ToolcribError


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


async def test_the_projects_retry_repeats_only_functions_that_allow_it(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "retry: {max_attempts: 3}\n")

    def charge(why: str) -> None:
        raise RetryableError("busy") if why == "busy" else OSError("the connection was lost")

    async with crib.open() as project:
        project.toolset.register(charge)
        project.toolset.register("charge_once_more", charge, idempotent=True)

        assert (await project.call("charge", {"why": "lost"})).attempts == 1
        assert (await project.call("charge", {"why": "busy"})).attempts == 3
        assert (await project.call("charge_once_more", {"why": "lost"})).attempts == 3


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
