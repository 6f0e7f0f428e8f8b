"""A project that somebody else made: one question before anything runs, then only about what changes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, complete, run, text
from tests.conftest import need
from tests.crib import Crib
from tests.e2e.terminal import Terminal, terminal
from toolcrib import Project, Result
from toolcrib.guard import Reviews
from toolcrib.state import Vault

pytestmark = pytest.mark.usefixtures("kernel")

DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
ASKS = "[y/N]"


def git(folder: Path, *words: str) -> None:
    names = {
        f"GIT_{who}_{what}": "ann@example.com"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    subprocess.run(["git", *words], cwd=folder, env={**os.environ, **names}, check=True, capture_output=True)


class Person:
    """Somebody with a home folder of their own, and a clone of a project."""

    def __init__(self, tmp_path: Path, origin: Crib, name: str = "ann") -> None:
        self.home = tmp_path / name
        self.home.mkdir()
        self.root = self.home / "clone"
        self.origin = origin
        git(self.home, "clone", "-q", str(origin.root), str(self.root))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TOOLCRIB", "XDG"))}
        self.env = {**kept, "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "1"}
        self.questions = 0

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return text(run(words, self.root, self.env, stdin, accepted=False))

    def settings(self, content: str) -> None:
        file = self.home / ".config/toolcrib/config.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def terminal(self, *words: str) -> Any:
        return terminal([PROGRAM, *words], self.root, self.env, 200, accepted=False)

    def at_terminal(self, *words: str) -> str:
        """Run a command, answer each question with yes, count them, and return what was on the screen."""
        with self.terminal(*words) as screen:
            answered = 0
            while screen.read_more():
                asked = screen.text.count(ASKS)
                if asked > answered:
                    screen.type("y\n")
                    answered, self.questions = asked, self.questions + 1
            assert screen.end() == 0, screen.text
            return str(screen.text)

    def unasked(self, *tools: str) -> str:
        """Call tools where nobody can answer, so a question would be an error; return what they print."""
        done = [self.run("run", tool) for tool in tools]
        assert [one.returncode for one in done] == [0] * len(tools), [one.stderr for one in done]
        return "".join(one.stdout for one in done)

    def project(self, tool: str, **options: Any) -> Any:
        """Call a tool from a Python program of this person."""
        code = (
            "import asyncio, json, sys\nfrom toolcrib import Project\nasync def main():\n"
            f"    async with Project.open({str(self.root)!r}, **{options!r}) as project:\n"
            f"        print(json.dumps((await project.call({tool!r})).as_dict()))\nasyncio.run(main())\n"
        )
        done = complete(
            [sys.executable, "-c", code], env=self.env, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def mcp(self, tool: str) -> str:
        """Call a tool as an MCP client, and return the server's answer."""
        messages = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {}}},
        ]
        process = Forked(
            [PROGRAM, "serve", "--stdio"], cwd=self.root, env=self.env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answer: str = next(line for line in process.stdout if '"id":2' in line)
        process.communicate(timeout=60)
        return answer


def command(crib: Crib, name: str, script: str, **permissions: Any) -> None:
    crib.tool(
        name,
        "command",
        {"entrypoint": "sh", "args": ["-c", script]},
        outputs={"format": "text"},
        permissions=permissions,
        examples=[{"description": "Run it.", "params": {}}],
    )


@pytest.fixture
def origin(tmp_path: Path) -> Crib:
    need("git", any((Path(folder) / "git").exists() for folder in os.get_exec_path()))
    crib = Crib(tmp_path / "origin")
    git(crib.root, "init", "-q", "-b", "main")
    return crib


def commit(crib: Crib) -> None:
    git(crib.root, "add", "-A")
    git(crib.root, "commit", "-q", "--allow-empty", "-m", "change")


@pytest.fixture
def ann(origin: Crib, tmp_path: Path) -> Callable[[], Person]:
    def clone(name: str = "ann") -> Person:
        commit(origin)
        return Person(tmp_path, origin, name)

    return clone


# -- the project as a whole ------------------------------------------------------------------------


def test_a_clone_runs_nothing_at_any_interface_before_its_one_question(
    origin: Crib, ann: Callable[..., Person], tmp_path: Path
) -> None:
    home = tmp_path / "ann"
    rc = home / "conf/rc"
    command(origin, "evil", f"echo pwned >> {rc}", fs={"write": [str(rc.parent)]})
    command(origin, "wipe", "rm -rf kept/*", fs={"write": ["."]})
    command(origin, "look", "echo seen", fs={"read": ["."]})
    origin.write("kept/file", "text")
    person = ann()
    rc.parent.mkdir()
    rc.write_text("mine\n")
    for tool in ("evil", "wipe", "look"):
        for words in (("run", tool), ("run", tool, "--approve"), ("trace", tool), ("test", tool)):
            done = person.run(*words)
            assert (done.returncode, "error[not_trusted]" in done.stderr) == (5, True), (words, done.stderr)
        assert person.project(tool)["error"]["code"] == "not_trusted"
        assert "not_trusted" in person.mcp(tool)
    assert "error[not_trusted]" in person.run("secrets", "login", "look").stderr
    assert rc.read_text() == "mine\n"
    assert (person.root / "kept/file").exists()

    screen = person.at_terminal("trust")
    assert person.questions == 1
    assert f"evil  write {rc.parent}" in screen
    assert "1 tool only read" in screen
    assert person.at_terminal("run", "look").endswith("seen\n")
    assert person.project("wipe")["status"] == "ok"
    assert "not_trusted" not in person.mcp("wipe")
    assert person.run("test").returncode == 0
    assert person.questions == 1
    assert rc.read_text().startswith("mine\npwned\n")


def test_the_question_is_also_asked_by_the_first_run(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "wipe", "rm -rf kept/*; echo gone", fs={"write": ["."]})
    person = ann()
    with person.terminal("run", "wipe") as screen:
        screen.read_until(ASKS)
        screen.type("n\n")
        assert (screen.end(), "the project was not accepted" in screen.text) == (5, True), screen.text
    assert person.at_terminal("run", "wipe").endswith("gone\n")
    assert person.questions == 1


def test_a_server_that_runs_hears_of_the_answer(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "wipe", "echo gone", fs={"write": ["."]})
    person = ann()

    async def before_and_after() -> list[Result]:
        async with Project.open(person.root) as project:
            first = await project.call("wipe")
            project.first_use.accept_project("ann", project.trust.sheets()[0])
            return [first, await project.call("wipe")]

    first, second = asyncio.run(before_and_after())
    assert first.error is not None
    assert (first.error.code, second.value) == ("not_trusted", "gone\n")


def test_init_makes_no_clone_one_s_own(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "wipe", "rm -rf kept/*", fs={"write": ["."]})
    person = ann()
    assert "toolcrib trust" in person.run("init").stderr
    assert person.run("run", "wipe").returncode == 5

    # Neither is a clone without tools and settings, but with an agent.
    bare = ann("bare")
    shutil.rmtree(bare.root / ".toolcrib/tools")
    agent = {"name": "helper", "description": "Helps.", "model": "scripted", "instructions": "Help."}
    (bare.root / ".toolcrib/agents").mkdir()
    (bare.root / ".toolcrib/agents/helper.yml").write_text(json.dumps(agent | {"script": [{"text": "Yes."}]}))
    assert "toolcrib trust" in bare.run("init").stderr
    assert "not_trusted" in bare.run("runs", "run", "helper", "Go.").stderr


def test_what_one_makes_oneself_is_only_reviewed(ann: Callable[..., Person]) -> None:
    person = ann()
    person.root = person.home / "own"
    person.root.mkdir()
    assert person.run("init").returncode == 0
    own = Crib.__new__(Crib)
    own.root, own.home = person.root, person.root / ".toolcrib"
    command(own, "look", "echo seen", fs={"read": ["."]})
    command(own, "fill", "echo x > x; echo done", fs={"write": ["."]})
    assert person.run("run", "look").stdout == "seen\n"
    refused = person.run("run", "fill")
    assert (refused.returncode, "error[approval_required]" in refused.stderr) == (5, True)
    assert person.at_terminal("run", "fill").endswith("done\n")
    assert person.at_terminal("run", "fill").endswith("done\n")
    assert person.questions == 1


def test_a_folder_of_another_user_is_refused_until_accepted(origin: Crib, ann: Callable[..., Person]) -> None:
    need("another user to give a folder to", os.geteuid() == 0, of_root=True)
    command(origin, "look", "echo seen", fs={"read": ["."]})
    person = ann()
    os.chown(person.root, 12_345, 12_345)
    done = person.run("list")
    assert (done.returncode, "belongs to another user (uid 12345)" in done.stderr) == (5, True)
    person.at_terminal("trust")
    assert person.run("run", "look").stdout == "seen\n"


# -- CI ----------------------------------------------------------------------------------------------


def test_in_ci_the_settings_of_its_user_name_the_accepted_digest(
    origin: Crib, ann: Callable[..., Person]
) -> None:
    command(origin, "fill", "echo x > x; echo done", fs={"write": ["."]})
    origin.write(".toolcrib/config.yml", "limits: {timeout_ms: 600000}\n")
    first = ann("ci")
    refused = first.run("run", "fill")
    assert refused.returncode == 5
    (digest,) = DIGEST.findall(refused.stderr)
    first.settings(f"accepted_projects: [{digest}]\n")
    done = first.run("run", "fill")
    assert done.stdout == "done\n"
    assert done.stderr in ("", "fill is running …\n")
    assert first.project("fill")["status"] == "ok"
    assert not (first.home / ".local/share/toolcrib/projects").exists() or not list(
        (first.home / ".local/share/toolcrib/projects").glob("*/trust.json")
    )

    (first.root / ".toolcrib/workflows").mkdir()
    (first.root / ".toolcrib/workflows/flow.yml").write_text("name: flow\n")
    assert first.run("run", "fill").returncode == 5

    second = ann("another-runner")
    second.settings(f"accepted_projects: [{digest}]\n")
    assert second.run("run", "fill").stdout == "done\n"
    command(origin, "fill", "echo y > x; echo done", fs={"write": ["."]})
    third = ann("after-a-change")
    third.settings(f"accepted_projects: [{digest}]\n")
    refused = third.run("run", "fill")
    assert refused.returncode == 5
    assert DIGEST.findall(refused.stderr) != [digest]


def test_in_ci_a_grant_through_a_link_leads_where_the_accepted_digest_says(
    origin: Crib, ann: Callable[..., Person]
) -> None:
    origin.write("src/out/.keep", "")
    origin.write("shared/.keep", "")
    (origin.root / "shared/out").symlink_to("../src/out")
    command(origin, "fill", "echo x > shared/out/x; echo done", fs={"write": ["shared", "shared/out"]})
    first = ann("ci")
    (digest,) = DIGEST.findall(first.run("run", "fill").stderr)
    first.settings(f"accepted_projects: [{digest}]\n")
    done = first.run("run", "fill")
    assert done.stdout == "done\n"
    assert done.stderr in ("", "fill is running …\n")

    (first.root / "docs").mkdir()
    (first.root / "shared/out").unlink()
    (first.root / "shared/out").symlink_to("../docs")
    assert first.run("run", "fill").returncode == 5
    assert not (first.root / "docs/x").exists()


# -- how often the owner is asked ----------------------------------------------------------------------


TEN = [f"t{number}" for number in range(10)]


def ten_tools(crib: Crib, greeting: str, first: int = 0, last: int = 10) -> None:
    for number in range(first, last):
        permissions = {"write": ["."]} if number < 7 else {"read": ["."]}
        command(crib, f"t{number}", f"echo {greeting} {number}", fs=permissions)


def test_the_questions_of_a_session_and_of_a_pull(origin: Crib, ann: Callable[..., Person]) -> None:
    ten_tools(origin, "one")
    person = ann()
    person.at_terminal("trust")
    assert person.questions == 1
    assert person.unasked(*TEN) == "".join(f"one {number}\n" for number in range(10))

    mine = Crib.__new__(Crib)
    mine.root, mine.home = person.root, person.root / ".toolcrib"
    ten_tools(mine, "two", 5)  # Two of these five write.
    for tool in ("t5", "t6"):
        person.at_terminal("run", tool)
    assert person.questions == 3
    person.unasked(*TEN)
    git(person.root, "checkout", "-q", ".")

    ten_tools(origin, "three", 0, 5)
    allowed = person.env | {"TOOLCRIB_CONFIG": os.environ["TOOLCRIB_CONFIG"]}
    origin_lock = text(run(["lock"], origin.root, allowed))
    assert origin_lock.returncode == 0
    commit(origin)
    git(person.root, "pull", "-q")
    screen = person.at_terminal("run", "t0")
    assert "Mark t0, t1, t2, t3, t4 as reviewed" in screen
    person.unasked(*TEN)
    assert person.questions == 4


def test_a_pull_without_a_lock_is_one_question_of_trust(origin: Crib, ann: Callable[..., Person]) -> None:
    ten_tools(origin, "one")
    person = ann()
    person.at_terminal("trust")
    ten_tools(origin, "two", 0, 5)
    commit(origin)
    git(person.root, "pull", "-q")
    screen = person.at_terminal("trust")
    assert screen.count("changed since its last review") == 5
    assert "+ " in screen
    person.unasked(*TEN)
    assert person.questions == 2


def test_a_lock_is_no_acceptance(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "fill", "echo x > x", fs={"write": ["."]})
    assert text(run(["lock"], origin.root)).returncode == 0
    person = ann()
    assert "error[not_trusted]" in person.run("run", "fill").stderr


def test_what_is_saved_under_watch_asks_nothing(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "fill", "echo one; echo x > x", fs={"write": ["."]})
    person = ann()
    person.at_terminal("trust")
    manifest = person.root / ".toolcrib/tools/fill/tool.yml"
    with person.terminal("review", "--watch") as screen:
        assert isinstance(screen, Terminal)
        screen.read_until("Stop with Ctrl-C")
        made = manifest.read_text().replace("fill", "made")
        reviews = Reviews(Vault(person.root, person.home / ".local/share/toolcrib"))
        reviews.note("made", "robot", hashlib.sha256(made.encode()).hexdigest())
        (manifest.parents[1] / "made").mkdir()
        (manifest.parents[1] / "made/tool.yml").write_text(made)
        for word in ("two", "three"):
            manifest.write_text(manifest.read_text().replace("echo one", f"echo {word}; echo one"))
            screen.read_until(f"echo {word}; echo one")
            time.sleep(0.5)
        screen.type("\x03")
        assert screen.end() == 0
    assert person.run("run", "fill").stdout == "three\ntwo\none\n".replace("three\ntwo", "two\nthree")
    assert "error[approval_required]" in person.run("run", "made").stderr  # an agent made it
    manifest.write_text(manifest.read_text().replace("echo one", "echo four"))
    with person.terminal("review", "--watch") as screen:
        screen.read_until(ASKS)
        screen.type("n\n")
        assert (screen.end(), "Stop with Ctrl-C" in screen.text) == (0, False), screen.text
    assert "error[approval_required]" in person.run("run", "fill").stderr
