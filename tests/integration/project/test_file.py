"""A Python file opened as a project: what it has, what it never has, and what its agents may see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crib import Crib, accept, failed
from toolcrib import Agent, Project
from toolcrib.errors import NotFoundError, UsageError
from toolcrib.project.authoring.agent_creation import create_agent
from toolcrib.project.authoring.creation import create_tool
from toolcrib.project.root import find

APP = """
from toolcrib import Toolset

tools = Toolset()


@tools.tool
def add(a: int) -> int:
    "Add one."
    return a + 1
"""


def reading(path: str) -> Agent:
    """An agent that reads one file."""
    call = {"tool": "read_file", "arguments": {"path": path}}
    return Agent(
        "reads", "scripted", tools=("read_file",), script=({"calls": [call]}, {"text": "{{result}}"})
    )


@pytest.fixture
def file(crib: Crib) -> Path:
    """A file in the folder of a project that this user has trusted, with its state outside of it."""
    crib.tool("look", "command", {"entrypoint": "ls"})
    crib.write("notes.txt", "a note")
    crib.write(".toolcrib/audit/tools.log", "")
    return crib.write("app/app.py", APP)


async def test_its_tools_are_its_functions_and_nothing_is_made_in_it(file: Path) -> None:
    async with Project.open(file) as project:
        assert [tool.name for tool in project.tools()] == ["add"]
        assert (await project.call("add", {"a": 1})).value == 2
        failed(await project.call("look"), "tool_not_found")
        definition = {
            "description": "d",
            "kind": "command",
            "version": 1,
            "exec": {"command": {"entrypoint": "ls"}},
        }
        with pytest.raises(UsageError, match="all its tools are functions in it"):
            create_tool(project, "made", definition, "bot")
        with pytest.raises(UsageError, match="all its tools are functions in it"):
            create_agent(project, "made", {"model": "scripted", "script": [{"text": "x"}]}, "bot")
        planted = project.place.home / "tools/planted"
    planted.mkdir(parents=True)
    (planted / "tool.yml").write_text("name: planted\ndescription: d\nkind: command\nversion: 1\n")
    async with Project.open(file) as project:
        assert ([tool.name for tool in project.tools()], project.diagnostics) == (["add"], [])


@pytest.mark.parametrize("path", [".toolcrib/audit/tools.log", ".toolcrib/config.yml", "{data}/grants-key"])
async def test_its_agents_see_no_state_of_the_project_above_nor_of_the_user(
    file: Path, crib: Crib, path: str
) -> None:
    async with Project.open(file) as project:
        assert project.root == crib.root
        project.vault.key()
        project.agents.add(reading(path.format(data=project.vault.data)))
        answer = (await project.runs.run(None, "reads", "go")).answer or ""
        assert answer.startswith("Tool call failed:"), answer
        run = await project.runs.run(None, reading("notes.txt"), "go")
        assert "a note" in (run.answer or "")


def test_what_names_a_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    for named in ("app.py:tools", file, f"{file}:tools"):
        place = find(named)
        assert (place.file, place.path) == (file, file)
    assert find("app.py:tools").target == f"{file}:tools"
    (tmp_path / "link.py").symlink_to(file)
    assert find(tmp_path / "link.py").home == find(file).home
    with pytest.raises(NotFoundError, match=r"no file gone\.py"):
        find("gone.py")
    folder = Crib(tmp_path / "folder.py")
    accept(folder.root)
    assert find(folder.root).file is None


def test_a_program_without_a_file_is_told_what_to_do(tmp_path: Path) -> None:
    code = "from toolcrib import Toolset; Toolset().run()"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, "run_stdio(serve_stdio(tools))" in ran.stderr) == (1, True), ran.stderr


def test_a_script_without_the_ending_is_a_project_too(file: Path) -> None:
    script = file.with_name("app")
    script.write_text(APP)
    assert [tool.name for tool in Project.open(script).tools()] == ["add"]
