"""A project that somebody else made: one question before anything runs, then only about what changes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, complete, decides, run, text
from tests.conftest import need
from tests.crib import Crib
from tests.e2e.terminal import Terminal, terminal
from toolcrib import Project, Result

pytestmark = pytest.mark.usefixtures("kernel")

DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
ASKS = "/N]"
"""The end of each question."""


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
            # Without the line that a slower machine shows meanwhile.
            return re.sub(r"\r(?:[^\r\n]* runs for [^\r\n]*)?", "", screen.text)

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
        process.communicate()
        return answer


def answer(screen: Terminal, *keys: str) -> None:
    """Answer the questions on the screen, one after the other."""
    for number, key in enumerate(keys, 1):
        while screen.text.count(ASKS) < number:
            assert screen.read_more(), screen.text
        screen.type(f"{key}\n")


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
    crib.write(".toolcrib/.gitignore", "audit/\nstate.db*\n")
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
    assert f"1 command tool may write {rc.parent}: evil" in screen
    assert "1 command tool only reads in the project: look" in screen
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
        assert (screen.end(), "nothing was accepted" in screen.text) == (5, True), screen.text
    assert person.at_terminal("run", "wipe").endswith("gone\n")
    assert person.questions == 1


def test_a_server_that_runs_hears_of_the_answer(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "wipe", "echo gone", fs={"write": ["."]})
    person = ann()

    async def before_and_after() -> list[Result]:
        async with Project.open(person.root) as project:
            first = await project.call("wipe")
            project.trust.accept("ann", project.trust.sheets()[0], settings=True)
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


def test_of_what_one_makes_oneself_only_tools_wait(ann: Callable[..., Person]) -> None:
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


@pytest.fixture
def ci(origin: Crib, ann: Callable[..., Person]) -> Callable[..., Person]:
    """Clone the project for a runner of CI, whose user's own settings let commands decide."""

    def clone(name: str) -> Person:
        runner = ann(name)
        runner.settings(decides(runner.root))
        return runner

    return clone


def locked(crib: Crib) -> str:
    """Trust and lock the project where it was made; return the digest of the lock."""
    assert text(run(("trust", "--yes"), crib.root)).returncode == 0
    done = text(run(("trust", "--lock", "--json"), crib.root))
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["sha256"])


def test_in_ci_exactly_the_lock_of_a_digest_is_trusted(origin: Crib, ci: Callable[..., Person]) -> None:
    command(origin, "fill", "echo x > x; echo done", fs={"write": ["."]})
    origin.write(".toolcrib/config.yml", "limits: {timeout_ms: 600000}\n")
    digest = locked(origin)
    first = ci("ci")
    refused = first.run("run", "fill")
    assert (refused.returncode, "trust --locked SHA256" in refused.stderr) == (5, True)
    wrong = first.run("trust", "--locked", "0" * 64)
    assert (wrong.returncode, f"has the digest {digest}" in wrong.stderr) == (5, True)
    assert first.run("trust", "--locked", digest).returncode == 0
    done = first.run("run", "fill")
    assert done.stdout == "done\n"
    assert done.stderr == ""
    assert first.project("fill")["status"] == "ok"

    command(origin, "fill", "echo y > x; echo done", fs={"write": ["."]})
    second = ci("after-a-change")
    refused = second.run("trust", "--locked", digest)
    assert (
        refused.returncode,
        "not what toolcrib.lock pins, so nothing was trusted: fill: " in refused.stderr,
    ) == (5, True)
    assert second.run("run", "fill").returncode == 5

    assert locked(origin) != digest
    refused = ci("after-a-new-lock").run("trust", "--locked", digest)
    assert (refused.returncode, "has the digest" in refused.stderr) == (5, True)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        (".toolcrib/config.yml", "limits: {timeout_ms: 5000}\n", "settings"),
        (
            ".toolcrib/agents/helper.yml",
            json.dumps({
                "name": "helper", "description": "Helps.", "model": "scripted", "instructions": "Help.",
                "script": [{"text": "Yes."}],
            }),
            "agent:helper: not in the lock",
        ),
    ],
    ids=["settings", "agent"],
)  # fmt: skip
def test_in_ci_nothing_is_trusted_that_the_lock_does_not_pin(
    origin: Crib, ci: Callable[..., Person], path: str, content: str, said: str
) -> None:
    command(origin, "fill", "echo x > x; echo done", fs={"write": ["."]})
    digest = locked(origin)
    origin.write(path, content)
    runner = ci("ci")
    refused = runner.run("trust", "--locked", digest)
    assert (refused.returncode, said in refused.stderr) == (5, True)
    assert runner.run("run", "fill").returncode == 5


def test_in_ci_a_grant_through_a_link_leads_where_the_lock_says(
    origin: Crib, ci: Callable[..., Person]
) -> None:
    origin.write("src/out/.keep", "")
    origin.write("shared/.keep", "")
    (origin.root / "shared/out").symlink_to("../src/out")
    command(origin, "fill", "echo x > shared/out/x; echo done", fs={"write": ["shared", "shared/out"]})
    digest = locked(origin)
    first = ci("ci")
    assert first.run("trust", "--locked", digest).returncode == 0
    assert first.run("run", "fill").stdout == "done\n"

    (first.root / "docs").mkdir()
    (first.root / "shared/out").unlink()
    (first.root / "shared/out").symlink_to("../docs")
    assert first.run("run", "fill").returncode == 5
    assert not (first.root / "docs/x").exists()


def test_a_lock_accepts_nothing_by_itself(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "fill", "echo x > x", fs={"write": ["."]})
    locked(origin)
    person = ann()
    assert "error[not_trusted]" in person.run("run", "fill").stderr


def test_only_what_is_trusted_is_locked(origin: Crib, ci: Callable[..., Person]) -> None:
    command(origin, "fill", "echo x > x", fs={"write": ["."]})
    runner = ci("ci")
    refused = runner.run("trust", "--lock")
    assert (refused.returncode, "something waits" in refused.stderr) == (5, True)
    assert not (runner.root / "toolcrib.lock").exists()


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
    locked(origin)
    commit(origin)
    git(person.root, "pull", "-q")
    assert person.run("trust", "--check").returncode == 5
    screen = person.at_terminal("trust")
    assert "5 command tools may write .: t0, t1, t2, t3, t4 (changed: files/tool.yml, manifest)" in screen
    person.unasked(*TEN)
    assert person.questions == 4


def test_a_question_at_a_run_covers_the_tool_and_the_call(origin: Crib, ann: Callable[..., Person]) -> None:
    ten_tools(origin, "one")
    person = ann()
    person.at_terminal("trust")
    ten_tools(origin, "two", 0, 5)
    commit(origin)
    git(person.root, "pull", "-q")
    screen = person.at_terminal("run", "t0")
    assert "changed since it was trusted" in screen
    assert screen.endswith("two 0\n")
    assert screen.count("\n") <= 12  # "t0 runs for …" is written again and again on one line.
    person.unasked("t0", "t9")
    assert "error[approval_required]" in person.run("run", "t1").stderr
    assert person.questions == 2


def test_the_files_and_differences_are_a_key_away(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "old", "echo one; echo x > x", fs={"write": ["."]})
    person = ann()
    person.env["PAGER"] = "cat"
    person.at_terminal("trust")
    command(origin, "old", "echo two; echo x > x", fs={"write": ["."]})
    command(origin, "new", "echo three; echo x > x", fs={"write": ["."]})
    commit(origin)
    git(person.root, "pull", "-q")
    with person.terminal("trust") as screen:
        screen.read_until(ASKS)
        assert "echo two" not in screen.text
        answer(screen, "d", "n")
        assert screen.end() == 5
    shown = screen.text
    assert "+++ now/tool.yml" in shown
    assert "echo one" in shown
    assert "echo two" in shown
    assert "    1 | " in shown  # A new file is shown as a file.
    assert "@@ -0,0" not in shown
    assert person.run("trust", "--check").returncode == 5


def test_one_after_another_accepts_some(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "first", "echo one; echo x > x", fs={"write": ["."]})
    command(origin, "second", "echo two; echo x > x", fs={"write": ["."]})
    person = ann()
    with person.terminal("trust") as screen:
        answer(screen, "s", "y", "n", "y")  # The project comes before its tools.
        assert screen.end() == 0
    assert "error[approval_required]" in person.run("run", "first").stderr
    assert person.unasked("second") == "two\n"
    check = person.run("trust", "--check")
    assert (check.returncode, check.stdout) == (5, "first: not trusted yet\n")


def test_one_after_another_asks_about_changed_settings_too(origin: Crib, ann: Callable[..., Person]) -> None:
    command(origin, "first", "echo one")
    person = ann()
    person.at_terminal("trust")
    (person.root / ".toolcrib/config.yml").write_text("approvals: {channels: [elicitation]}\n")
    with person.terminal("trust") as screen:
        answer(screen, "s", "n")
        assert "Trust the changed settings?" in screen.text
        assert screen.end() == 5
    assert person.run("trust", "--check").returncode == 5


def test_trust_in_one_tool_is_taken_back(origin: Crib, ci: Callable[..., Person]) -> None:
    ten_tools(origin, "one")
    person = ci("ann")
    assert person.run("trust", "--yes").returncode == 0
    assert person.run("trust", "--revoke", "t0").returncode == 0
    assert "error[approval_required]" in person.run("run", "t0").stderr
    person.unasked("t1", "t9")
    assert person.run("trust", "t0", "--yes").returncode == 0
    person.unasked("t0")
    assert person.run("trust", "--revoke").returncode == 0
    assert "error[not_trusted]" in person.run("run", "t9").stderr


def test_the_index_of_a_large_catalogue_is_made_with_trust(origin: Crib, ann: Callable[..., Person]) -> None:
    for number in range(1_001):
        command(origin, f"t{number}", "echo it", fs={"read": ["."]})
    person = ann()
    person.at_terminal("trust", "--yes")
    assert [*(person.home / ".cache").rglob("search/state.json")]
