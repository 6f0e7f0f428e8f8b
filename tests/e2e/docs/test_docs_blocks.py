"""Every code block of README and docs does what the page says.

Each page gets a fresh folder, made a project with the example tools unless the page makes it itself. In the
order of the page: a yaml or python block whose first line is a comment with a path is put there; bash and
console blocks run, and what a console block shows after `$ command` must come, `…` standing for anything.
Then the page's other python blocks run as one program. The tutorial is typed at a terminal instead
(`test_tutorial.py`). A block after `<!-- not run: why -->` is left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from tests.commands import shared_server
from tests.conftest import need
from tests.crib import accept
from toolcrib.errors import ToolcribError
from toolcrib.manifest import check_tool, load, parse_tool, read_dialect
from toolcrib.manifest.team import read_team
from toolcrib.pods.operator.resources import InstanceSpec
from toolcrib.pods.up import read_run
from toolcrib.project import find, load_config
from toolcrib.project.config.settings import KEYS
from toolcrib.runs.agents import read_agent
from toolcrib.runs.workflows import read_workflow
from toolcrib.sandbox import level

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"bash", "console", "json", "python", "text", "yaml"}
FENCE = re.compile(r"^```(.*)$")
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
FILE = re.compile(r"^# ((?:[\w.-]+/)*[\w.-]+\.\w+)$")
PRINTS = re.compile(r"^print\(.*\)  # (.+)$")
"""A line of Python with its expected output in a comment."""


class Block(NamedTuple):
    """One fenced block; `line` is that of its first line in the page."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None

    @property
    def file(self) -> str | None:
        """The path its first line names, if it is a file."""
        found = FILE.match(self.text.partition("\n")[0])
        return found[1] if found and self.language in ("python", "yaml") else None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start, language, before = 0, "", ""
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence is None:
            before = line or before if not start else before
        elif not start:
            start, language = number + 1, fence[1]
        else:
            reason = NOT_RUN.match(before)
            text = "\n".join(lines[start - 1 : number - 1]) + "\n"
            yield Block(page, start, language, text, reason[1] if reason else None)
            start, before = 0, ""
    assert not start, f"{page.name}: a block that begins before line {start} does not end"


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and not block.not_run]


def test_every_block_says_its_language() -> None:
    assert [f"{block} {block.language}" for block in BLOCKS if block.language not in LANGUAGES] == []


def test_few_blocks_are_not_run() -> None:
    assert sum(block.not_run is not None for block in BLOCKS) <= 2


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_manifests_and_settings_are_good(block: Block, tmp_path: Path) -> None:
    if (block.file or "").startswith("tools/definitions/"):
        (tool,) = read_dialect(str(block), block.text.encode(), "vega").tools
        assert [finding.render() for finding in check_tool(tool)] == []
        return
    if block.file and block.file.startswith(".toolcrib/agents/"):
        assert read_agent(block.file, block.text.encode())[0].name
        return
    for folder, read in ((".toolcrib/agents/", read_agent), (".toolcrib/workflows/", read_workflow)):
        if block.file is not None and block.file.startswith(folder):
            read(block.file, block.text.encode())
            return
    document = load(block.text.encode(), str(block))
    if document.data.get("kind") == "SympoziumInstance":
        assert msgspec.convert(document.data["spec"], InstanceSpec).skills
        return
    if document.data.get("kind") == "AgentRun":
        (tmp_path / "run.yaml").write_text(block.text)
        assert read_run(tmp_path / "run.yaml").spec.task
        return
    if "tools" in document.data or "spec" in document.data:
        dialect = "vega" if "agents" in document.data else "sympozium"
        loaded = read_dialect(str(block), block.text.encode(), dialect)
        assert [finding.render() for tool in loaded.tools for finding in check_tool(tool)] == []
        assert loaded.diagnostics == ()
        return
    if "members" in document.data:
        assert read_team(str(block), block.text.encode()).members
        return
    if {key.partition(".")[0] for key in KEYS} >= set(document.data):
        (tmp_path / "config.yml").write_text(block.text)
        load_config(tmp_path / "config.yml")
        return
    name = document.data["name"]
    if block.file is not None:
        assert block.file == f".toolcrib/tools/{name}/tool.yml"
    assert [finding.render() for finding in check_tool(parse_tool(document, name), document)] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "tutorial"], ids=lambda page: page.stem
)
def test_what_a_page_shows_happens(page: Path, tmp_path: Path) -> None:
    need("a kernel that confines tools", level()["level"] != "none")
    told = [block for block in blocks(page) if not block.not_run]
    runs = [block.text for block in told if block.language in ("bash", "console", "python")]
    if runs and "toolcrib init" not in "".join(runs):
        if "repo_stats" not in "".join(runs):  # Its environment takes seconds to make.
            venv.create(tmp_path / ".venv", symlinks=True)
        run("toolcrib init --examples", tmp_path, page.name)
    program: list[str] = []
    for block in told:
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "bash":
            run(block.text, tmp_path, str(block))
        elif block.language == "console":
            play(block, tmp_path)
        elif block.language == "python":
            # At its own line, so that a traceback names the line of the page.
            program += [""] * (block.line - 1 - len(program)) + block.text.splitlines()
    if program:
        (tmp_path / f"page_{page.stem}.py").write_text("\n".join(program) + "\n")
        python = sys.executable if page.stem == "README" else shared_server().program("python")
        came = run(f"{python} -W error page_{page.stem}.py", tmp_path, page.name)
        promised = [found[1] for line in program if (found := PRINTS.match(line))]
        assert [line for line in came.splitlines() if line in promised] == promised


def run(script: str, folder: Path, where: str) -> str:
    """Run lines of bash in the folder; what they print."""
    gone = ("TOOLCRIB_ROOT", "COLUMNS", "FORCE_COLOR", "BRAVE_API_KEY")
    environment = {name: value for name, value in os.environ.items() if name not in gone}
    environment["TOOLCRIB_DATA"] = f"{folder}-data"
    programs = (shared_server().program().parent, Path(sys.executable).parent)
    environment["PATH"] = ":".join((*map(str, programs), environment.get("PATH", os.defpath)))
    # The reader's own decisions, of which nobody types the answers here; `old` is a second project of a page.
    projects = [str((folder / name).resolve()) for name in (".", "old")]
    allowed = [{"what": ["trust", "approve", "token"], "where": projects}]
    environment["TOOLCRIB_CONFIG"] = f"{folder}-config.yml"
    Path(environment["TOOLCRIB_CONFIG"]).write_text(json.dumps({"decide_without_terminal": allowed}))
    if not where.startswith("security"):  # That page shows the questions; elsewhere the reader has answered.
        with suppress(ToolcribError):
            accept(find(folder).root, Path(f"{folder}-data"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{where}: exit {done.returncode}\n{script}\n{done.stdout}", pytrace=False)
    return done.stdout


def play(block: Block, folder: Path) -> None:
    """Run each command of a console block; what follows it in the page must come."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        came = run(f"{{ {command}\n}} || true", folder, str(block))
        hidden = "error[" in came and "error[" not in expected  # `…` stands for no error
        if hidden or not pattern(expected).fullmatch(plain(came) + "\n"):
            pytest.fail(
                f"{block}: $ {command}\n--- the page says\n{expected}\n--- it is\n{came}", pytrace=False
            )


def plain(text: str) -> str:
    """Text without blanks at the ends of lines, empty lines, rules of tables and what slow calls say."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line.strip(" ─"))


def pattern(expected: str) -> re.Pattern[str]:
    """What a page shows as an expression: `…` is anything on a line, a line of it any lines."""
    parts = []
    for line in plain(expected).splitlines():
        inner = ".*".join(map(re.escape, line.split("…")))
        parts.append(r"(?:.*\n)*?" if line.strip() == "…" else rf"{inner}\n")
    return re.compile("".join(parts) or r"\n")
