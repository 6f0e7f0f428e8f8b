"""`toolcrib new`: manifests that lint clean and run."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import sys
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from tests.commands import PROGRAM, run
from tests.e2e.cli.test_cli import ENVIRONMENT, Done
from tests.e2e.terminal import terminal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop" / "src").mkdir(parents=True)
    (tmp_path / "shop" / "src" / "a.txt").write_text("one\ntwo\n")
    assert cli(tmp_path / "shop", "init").code == 0
    return tmp_path / "shop"


def cli(folder: Path, *words: str) -> Done:
    return Done(run(words, folder, ENVIRONMENT | {"TOOLCRIB_DATA": str(folder.parent / "data")}))


def test_every_kind_lints_clean_and_runs(folder: Path) -> None:
    for words in (
        ("count_lines", "--run", "wc -l ${path}", "--read", "src"),
        ("stats", "--kind", "python", "--argument", "n:integer", "--argument", "word"),
        ("weather", "--kind", "http", "--run", "https://api.example.com/x/${city}?q=${word}"),
        ("rates", "--kind", "http", "--run", "https://api.example.com/${day}", "--argument", "base"),
        ("notes", "--kind", "file", "--run", "src"),
        ("things", "--kind", "sql", "--run", "SELECT ${a} AS a"),
        ("both", "--kind", "composite", "--run", "count_lines", "--argument", "path"),
    ):
        done = cli(folder, "new", *words, "--json")
        assert (done.code, done.document["diagnostics"]) == (0, []), done.out
    linted = cli(folder, "lint", "--json")
    assert linted.code == 0, linted.out
    assert len(cli(folder, "list", "--json").document["tools"]) == 7
    assert cli(folder, "run", "rates", "day=x", "base=y", "--dry-run").out.count('"query":{"base":"y"}') == 1
    assert cli(folder, "run", "count_lines", "path=src/a.txt").out == "2 src/a.txt\n"
    assert cli(folder, "run", "notes", "path=src/a.txt").out == "one\ntwo\n"
    with sqlite3.connect(folder / "data.db") as base:
        base.execute("CREATE TABLE t (a TEXT)")
    base.close()
    assert cli(folder, "run", "things", "a=7", "--json").document["value"] == [{"a": "7"}]


def given(*arguments: str) -> list[str]:
    return [word for argument in arguments for word in ("--argument", argument)]


def test_arguments_have_descriptions_and_may_be_optional(folder: Path) -> None:
    for words in (
        (
            "find",
            "--run",
            "echo ${word}",
            "--argument",
            "word=What to find",
            "--argument",
            "most:integer?=How many",
        ),
        ("py", "--kind", "python", *given("most:integer?", "word")),
        ("my tool (2)", "--kind", "python"),
        ("naïve-tool", "--run", "echo hi"),
    ):
        done = cli(folder, "new", *words, "--json")
        assert (done.code, done.document["diagnostics"]) == (0, []), done.out
    schema = cli(folder, "show", "find", "--json").document["argSchema"]
    assert schema["required"] == ["word"]
    assert {name: one["description"] for name, one in schema["properties"].items()} == {
        "word": "What to find", "most": "How many"
    }  # fmt: skip
    assert cli(folder, "run", "find", "word=x").out == "x\n"
    assert cli(folder, "run", "py", "word=x", "--json").document["value"] == {"word": "x", "most": None}
    assert cli(folder, "run", "my tool (2)", "--json").document["value"] == {}
    assert cli(folder, "run", "naïve-tool").out == "hi\n"
    assert cli(folder, "new", "a/b").code == 2
    assert cli(folder, "new", ".x").code == 2


def test_at_a_terminal_it_asks_and_offers_a_first_run(folder: Path) -> None:
    answers = (
        ("Which kind?", "qqqqq"),  # what is wrong is asked for again
        ("Which kind?", "comand"),  # the nearest one is taken
        ("What is it for?", "Count the lines of a file"),
        ("What does it run?", ""),
        ("What does it run?", "wc -l ${path}"),
        ("Further arguments?", "path:str"),
        ("types: string, integer", "most:integer"),
        ("What is `path`?", "The file to count"),
        ("What is `most`?", ""),
        ("may be left out? (path most)", "rest"),  # there is no such argument
        ("The arguments are path, most.", "most"),
        ("may it read?", "src"),
        ("may it write?", ""),
        ("Run it now? [y/N]", "y"),
        ("With which arguments? (path=…)", "path=src/a.txt"),
    )
    env = ENVIRONMENT | {"TOOLCRIB_DATA": str(folder.parent / "data")}
    with terminal([PROGRAM, "new", "lines"], folder, env, 120) as screen:
        for question, answer in answers:
            screen.read_until(question)
            screen.type(f"{answer}\n")
        assert screen.end() == 0, screen.text
    assert "2 src/a.txt" in screen.text
    shown = cli(folder, "show", "lines").out
    assert "Count the lines of a file" in shown
    assert re.search(r"path +string, required: The file to count", shown), shown
    assert re.search(r"most +integer, optional: The most", shown), shown
    # A Python tool runs as it was made, also by the name of a module of Python.
    with terminal([PROGRAM, "new", "json", "--kind", "python"], folder, env, 120) as screen:
        for question in ("for?", "arguments?", "read?", "write?"):
            screen.read_until(question)
            screen.type("\n")
        screen.read_until("[y/N]")
        screen.type("y\n")
        assert screen.end() == 0, screen.text


def test_at_a_terminal_it_asks_only_for_what_its_kind_uses(folder: Path) -> None:
    """What cannot work is asked for again, a name that is taken is refused at once, Ctrl-D makes nothing."""
    env = ENVIRONMENT | {"TOOLCRIB_DATA": str(folder.parent / "data")}
    cli(folder, "new", "lines", "--run", "true")
    url = "https://api.example.com/${city}"
    for words, replies, code in (
        (
            ["weather", "--kind", "http", "--run", url],
            [("for?", ""), ("arguments?", ""), ("`city`?", ""), ("left out? (city)", ""), ("[y/N]", "n")],
            0,
        ),
        (
            ["page", "--kind", "http"],
            [
                ("for?", ""),
                ("Which URL?", "example.com"),
                ("begins with https://", url),
                ("s?", ""),
                ("`city`?", "Where"),
                ("(city)", ""),
                ("N]", "n"),
            ],
            0,
        ),
        (
            ["file", "--kind", "file"],
            [("for?", ""), ("does it read?", "src"), ("[y/N]", "y"), ("(path=src/…)", "path=src/a.txt")],
            0,
        ),
        (
            ["rows", "--kind", "sql", "--run", "SELECT 1"],
            [("for?", ""), ("arguments?", ""), ("file? [data.db]", "shop.db"), ("[y/N]", "n")],
            0,
        ),
        (["lines"], [], 7),
        (["none"], [("Which kind?", "\x04")], 130),
    ):
        with terminal([PROGRAM, "new", *words], folder, env, 120) as screen:
            for question, answer in replies:
                screen.read_until(question)
                screen.type(f"{answer}\n")
            assert screen.end() == code, screen.text
    assert cli(folder, "show", "none").code == 3
    assert "shop.db" in (folder / ".toolcrib/tools/rows/tool.yml").read_text()


def test_a_tool_that_nobody_has_trusted_shows_its_card_and_its_files_by_a_key(folder: Path) -> None:
    cli(folder, "new", "save", "--run", "touch src/new", "--write", "src")
    env = ENVIRONMENT | {"TOOLCRIB_DATA": str(folder.parent / "data"), "PAGER": "cat"}
    screens = []
    for answers in ("n", "dy"):
        with terminal([PROGRAM, "run", "save"], folder, env, 120, accepted=False) as screen:
            for number, answer in enumerate(answers, 1):
                while screen.text.count("[y/d/N]") < number:
                    assert screen.read_more(), screen.text
                screen.type(f"{answer}\n")
            screen.end()
            screens.append(screen.text)
    assert screens[0].startswith("save: not trusted yet, digest ")
    assert "1 command tool may write src: save" in screens[0]
    assert "name: save" not in screens[0]
    assert "| name: save" in screens[1]
    assert (folder / "src/new").exists()


def test_what_takes_long_shows_so_on_a_terminal(folder: Path) -> None:
    """Each command waits for something that never comes, so it shows its line however slow the machine is."""
    env = ENVIRONMENT | {"TOOLCRIB_DATA": str(folder.parent / "data")}
    cli(folder, "new", "nap", "--run", "sleep 600")
    manifest = folder / ".toolcrib/tools/nap/tool.yml"
    manifest.write_text(manifest.read_text() + "examples: [{description: Nap, params: {}}]\n")
    servers = {"slow": {"command": "sleep", "args": ["600"]}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert cli(folder, "trust", "--yes", "--wait", "1").code == 1  # The server does not start.
    program = "import time\nfrom toolcrib import Toolset\ntools = Toolset()\n@tools.tool\n"
    (folder / "app.py").write_text(program + "def nap():\n    'Nap.'\n    time.sleep(600)\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for words, shown in (
            (["test"], "running examples "),
            (["servers", "list"], " s (slow)"),
            (["import", "openapi", url, "--list"], f"reading {url} "),
            (["run", "app.py", "nap"], "nap runs for "),
        ):
            with terminal([PROGRAM, *words], folder, env) as screen:
                screen.read_until(shown)
                screen.type("\x03")
                assert screen.end() == 130, screen.text
                assert "Traceback" not in screen.text
    with (folder / ".toolcrib/audit/tools.log").open() as log:
        flock(log, LOCK_EX)  # as a writer that is stopped; a reader waits 5 s, and shows it after 0.3 s
        for word, shown in (("verify", "verifying tools.log "), ("search", "searching tools.log ")):
            with terminal([PROGRAM, "audit", word], folder, env) as screen:
                screen.read_until(shown)


def test_who_serves_at_a_terminal_is_told_what_connects(folder: Path) -> None:
    env = ENVIRONMENT | {"TOOLCRIB_DATA": str(folder.parent / "data")}
    (folder / "app.py").write_text("from toolcrib import Toolset\ntools = Toolset()\ntools.run()\n")
    (folder / "plain.py").write_text("from toolcrib import Toolset\ntools = Toolset()\n")
    for argv, shown in (
        ([PROGRAM, "serve", "plain.py"], f"toolcrib connect HOST --root {folder}/plain.py\n"),
        ([sys.executable, "app.py"], f"toolcrib connect HOST --root {folder}/app.py\n"),
        ([PROGRAM, "serve", "--stdio"], "toolcrib connect HOST\n"),
    ):
        with terminal(argv, folder, env, 300) as screen:
            screen.read_until(shown)
            assert "for a client that starts this command itself" in screen.text
            screen.type("\x03")
            screen.end()


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["a/b"], 2, "not the name"),
        (["x", "--kind", "http", "--run", "api.example.com"], 2, "URL"),
        (["x", "--run", "echo", "--argument", "n:int"], 2, "integer"),
        (["x", "--run", "echo 'a"], 2, "cannot be read"),
        (["x"], 2, "--run"),
        (["x", "--kind", "comand", "--run", "true"], 2, "did you mean `command`?"),
        (["x", "--kind", "mcp"], 2, "The kinds of new tools: http, command, "),
        (["x", "--run", "cat a | wc -l"], 2, "is for a shell"),
        (["x", "--kind", "python", "--run", "a.py"], 2, "Leave out --run"),
        (["x", "--kind", "http", "--run", "https://example.com/{id}"], 2, "Write ${id}"),
        (["x", "--kind", "sql", "--run", "SELECT 'a:b', :id"], 2, "Write ${id}"),
        (["there", "--run", "true"], 7, "exist already"),
    ],
)
def test_what_cannot_be_made_is_explained(folder: Path, words: list[str], code: int, printed: str) -> None:
    cli(folder, "new", "there", "--run", "true")
    done = cli(folder, "new", *words)
    assert (done.code, printed in done.err) == (code, True), done.err
