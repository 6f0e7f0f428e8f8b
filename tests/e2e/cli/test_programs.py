"""Python files: listed, shown, called and served, each a project of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM as TOOLCRIB
from tests.commands import run
from tests.e2e.cli.test_cli import ENVIRONMENT, Done

PROGRAM = '''
from toolcrib import Toolset

tools = Toolset()


@tools.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    tools.run()
'''
MESSAGES: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 2, "b": 3}},
    },
]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


def cli(folder: Path, *words: str, env: dict[str, str] | None = None) -> Done:
    return Done(run(words, folder, ENVIRONMENT | (env or {})))


def test_a_file_is_listed_shown_and_called(program: Path) -> None:
    assert [tool["name"] for tool in cli(program, "list", "app.py", "--json").document["tools"]] == ["add"]
    assert "b  integer, default 1" in cli(program, "show", "app.py:tools", "add").out
    done = cli(program, "run", "app.py", "add", "a=2", "--b", "5", "--json")
    assert (done.code, done.document["value"]) == (0, 7)
    (program / "bare.py").write_text(PROGRAM.replace('if __name__ == "__main__":\n    ', ""))
    assert cli(program, "run", "bare.py", "add", "a=2").out == "3\n"  # `tools.run()` serves nobody meanwhile
    (program / "config.yml").write_text("decide_without_terminal: [{what: [all], where: [/]}]")
    wrong = cli(program, "serve", "app.py", env={"TOOLCRIB_CONFIG": str(program / "config.yml")})
    assert (wrong.code, "config.yml:1:34: decide_without_terminal: must be" in wrong.err) == (4, True)
    env = ENVIRONMENT | {"TOOLCRIB_CONFIG": str(program / "config.yml")}
    itself = subprocess.run(
        [sys.executable, "app.py"], cwd=program, env=env, capture_output=True, text=True, check=False
    )
    assert (itself.returncode, itself.stderr) == (4, wrong.err)
    (program / "fails.py").write_text(PROGRAM.replace("return a + b", "return a / 0"))
    failed = cli(program, "run", "fails.py", "add", "a=2", "-v")
    assert f'File "{program}/fails.py", line 10, in add' in failed.err
    wrong = cli(program, "run", "app.py", "add", "a=x", "--json")
    assert (wrong.code, wrong.document["error"]["code"]) == (4, "invalid_input")


def served(program: Path, words: list[str]) -> list[Any]:
    """All that a server writes to a client which leaves once its call is answered."""
    with subprocess.Popen(
        [sys.executable, *words], cwd=program, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in MESSAGES:
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        lines = [server.stdout.readline() for message in MESSAGES if "id" in message]
        server.stdin.close()
        lines += server.stdout.read().splitlines()
        assert server.wait() == 0
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("words", [["-m", "toolcrib", "serve", "app.py"], ["app.py"]])
def test_a_file_is_served_to_a_client(program: Path, words: list[str]) -> None:
    _, called = served(program, words)
    assert called["result"]["content"][0]["text"] == "5"


def test_what_a_program_prints_is_no_result(program: Path) -> None:
    noise = "import subprocess\nsubprocess.run(['echo', 'child'])\nprint('text')\n"
    (program / "loud.py").write_text(noise + PROGRAM.replace("return", "print('inside'); return"))
    done = cli(program, "run", "loud.py", "add", "a=2")
    assert (done.out, done.err.splitlines()) == ("3\n", ["child", "text", "inside"])
    answers = served(program, ["-m", "toolcrib", "serve", "loud.py"])
    assert [answer["id"] for answer in answers] == [1, 2]


def test_what_is_no_toolset_is_explained(program: Path) -> None:
    (program / "shop").mkdir()
    (program / "none.py").write_text("x = 1\n")
    (program / "bare.py").write_text("from toolcrib import Toolset\nToolset().register('f', lambda *x: x)\n")
    (program / "away.py").write_text("import nosuch\n")
    (program / "two.py").write_text("from toolcrib import Toolset\na = Toolset()\nb = Toolset()\n")
    for words, code, told in (
        (["list", "gone.py"], 3, "no file gone.py"),
        (["list", "none.py"], 2, "tools = Toolset()"),
        (["list", "two.py"], 2, "two.py:a, two.py:b"),
        (["list", "app.py:other"], 2, "app.py:tools"),
        (["run", "app.py"], 2, "toolcrib list app.py"),
        (["run", "app.py", "add", "7"], 2, "hint: Write a=7, key:=json"),
        (["show", "app.py"], 2, "toolcrib list app.py"),
        (["serve", "app.py", "--dev"], 2, "--dev has an effect only with the folder of a project"),
        (["run", "app.py", "add", "--root", "."], 2, "name two projects"),
        (["new", "x", "--root", "app.py"], 2, "needs the folder of a project"),
        (["--root", "app.py", "lint"], 2, "needs the folder of a project"),
        (["serve", "app"], 2, "Write app.py"),
        (["list", "shop"], 3, "--root shop"),
        (["list", "bare.py"], 4, "hint: Arguments arrive by name"),
        (
            ["list", "away.py"],
            4,
            f"hint: Install it where toolcrib runs: {sys.executable} -m pip install nosuch",
        ),
    ):
        done = cli(program, *words)
        assert done.code == code, (words, done.err)
        assert told in done.err, (words, done.err)


def test_bash_completes_what_the_printed_function_returns(program: Path) -> None:
    script = f"""
        eval "$({TOOLCRIB} --completion bash)"
        for typed in "ru" "help ser" "nosuch x" "servers a"; do
            COMP_WORDS=(toolcrib $typed); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
            _toolcrib_completion {TOOLCRIB}
            echo "$typed: ${{COMPREPLY[*]}}"
        done
    """
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=program, capture_output=True, text=True, check=True
    )
    expected = "ru: run runs\nhelp ser: serve servers\nnosuch x: \nservers a: add\n"
    assert (done.stdout, done.stderr) == (expected, "")


def test_summaries_are_completed_in_whole(program: Path) -> None:
    asked = {"COMP_WORDS": "toolcrib run", "COMP_CWORD": "run", "_TOOLCRIB_COMPLETE": "fish_complete"}
    summary = "Run agents, and follow, cancel, retry and fork their runs."
    assert f"plain,runs\t{summary}" in cli(program, env=asked).out
    assert 'string split --max 1 ","' in cli(program, "--completion", "fish").out


def test_help_completion_and_colours(program: Path) -> None:
    assert cli(program, "help", "run").out == cli(program, "run", "--help").out
    assert cli(program, "help").out == cli(program, "--help").out
    looking = cli(program, "help", "looking").out
    assert "  audit " in looking
    assert "toolcrib help COMMAND" in looking
    for shell in ("bash", "zsh", "fish"):
        assert "_TOOLCRIB_COMPLETE" in cli(program, "--completion", shell).out
    assert "init or new" in cli(program, "create").err
    assert cli(program, "--root", "/nowhere", "list").code == 3
    assert "\x1b[" in cli(program, "create", env={"FORCE_COLOR": "1"}).err
    assert "\x1b[" not in cli(program, "create", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).err
