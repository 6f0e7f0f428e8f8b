"""`toolcrib servers add`: one command from a server's command line to trusted tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.commands import PROGRAM, run, text
from tests.crib import Crib
from tests.e2e.terminal import Terminal, terminal
from tests.mcp_servers import RAW, write
from toolcrib.cli.hosts import add_server
from toolcrib.state.installation import install_command

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    (tmp_path / "p").mkdir()
    crib = Crib(tmp_path / "p")
    crib.write("server.py", RAW + "\nmain()")
    return crib


def add(crib: Crib, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    place = ["servers", "add", "--root", str(crib.root)]
    return text(run([*place, *words], crib.root, env={**os.environ, **env}))


def asked(crib: Crib, *words: str) -> AbstractContextManager[Terminal]:
    return terminal([PROGRAM, "servers", *words], crib.root, os.environ, 200)


def test_a_server_is_shown_started_trusted_and_written(crib: Crib) -> None:
    before = '{\n    "mcpServers": {},\n    "other": {"kept": ["as", "it is"]}\n}\n'
    crib.write(".mcp.json", before)
    done = add(crib, "hello", "--yes", "--env", "MODE=quiet", "--", sys.executable, "server.py")
    assert done.returncode == 0, done.stderr
    assert f"hello: {sys.executable} server.py" in done.stdout
    assert [
        line for line in done.stdout.splitlines() if "may read" in line and "its program" not in line
    ] == ["  may read server.py"]
    assert "server hello: trusted 1 tool: hello__hello" in done.stderr
    written = (crib.root / ".mcp.json").read_text()
    assert written.startswith('{\n    "mcpServers": {\n        "hello"')
    assert json.loads(written)["other"] == {"kept": ["as", "it is"]}
    entry = json.loads(written)["mcpServers"]["hello"]
    assert entry == {
        "command": sys.executable,
        "args": ["server.py"],
        "env": {"MODE": "quiet"},
        "permissions": {"fs": {"read": ["server.py"]}},
    }
    assert text(run(["run", "hello__hello", "--root", str(crib.root)], crib.root)).stdout == "hello\n"
    assert "TRUSTED" in {line.event for line in crib.audit()}
    again = add(crib, "hello", "--yes", "--", "true")
    assert again.returncode == 7
    assert "has a server hello already" in again.stderr
    missing = add(crib, "wrong", "--yes", "--", "nosuchprogram")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "nosuchprogram is not installed, so nothing was added" in missing.stderr
    wrong = add(crib, "wrong", "--yes", "--", "false")
    assert wrong.returncode == 1
    assert "wrong was added, and did not start" in wrong.stderr
    assert f"Change it in {crib.root}/.mcp.json" in wrong.stderr


def test_a_server_gets_what_was_named_and_nothing_else(crib: Crib) -> None:
    reads = """
def called(message):
    def read(path):
        try:
            return open(path).read()
        except OSError as error:
            return type(error).__name__
    return {"content": [{"type": "text", "text": read("a.txt") + read("docs/b.txt")}]}
main()
"""
    crib.write("server.py", RAW + reads)
    crib.write("a.txt", "a")
    crib.write("docs/b.txt", "b")
    for name, words in {"one": (), "two": ("--read", "a.txt"), "three": ("--read", ".")}.items():
        done = add(crib, name, "--yes", *words, "--", sys.executable, "server.py", "--docs=docs")
        assert done.returncode == 0, done.stderr
    said = {
        name: text(run(["run", f"{name}__hello", "--root", str(crib.root)], crib.root)).stdout.strip()
        for name in ("one", "two", "three")
    }
    assert said["one"] in ("FileNotFoundErrorb", "PermissionErrorb")
    assert (said["two"], said["three"]) == ("ab", "ab")


def test_a_server_is_removed_and_the_rest_stays_trusted(crib: Crib) -> None:
    crib.write(".mcp.json", '{"other": [1], "servers": {}}')  # the key of VS Code
    crib.write(".toolcrib/config.yml", "# Nothing yet.\n")
    for name in ("one", "two"):
        assert add(crib, name, "--yes", "--", sys.executable, "server.py").returncode == 0

    def remove(*words: str) -> subprocess.CompletedProcess[str]:
        return text(run(["servers", "remove", *words, "--root", str(crib.root)], crib.root))

    assert remove("one").returncode == 5  # nobody is there to ask
    with asked(crib, "remove", "one") as screen:
        screen.type("y\n")  # before the question is there
        screen.read_until("Remove one from")
        screen.type("n\n")
        assert (screen.end(), "nothing was removed" in screen.text) == (5, True), screen.text
    missing = remove("tow", "--yes")
    assert (missing.returncode, "Did you mean two?" in missing.stderr) == (3, True), missing.stderr
    done = remove("one", "--yes", "--json")
    assert json.loads(done.stdout) == {"removed": "one", "file": f"{crib.root}/.mcp.json"}
    document = json.loads((crib.root / ".mcp.json").read_text())
    assert (list(document), list(document["servers"])) == (["other", "servers"], ["two"])
    assert text(run(["run", "two__hello", "--root", str(crib.root)], crib.root)).stdout == "hello\n"
    # It removes also from a project that nobody trusts, and trusts nothing by that.
    crib.write(".mcp.json", '{"mcpServers": {"theirs": {"command": "sh"}, "more": {"command": "sh"}}}')
    crib.write(".toolcrib/config.yml", "mcp_servers: {more: {permissions: {network: true}}}")
    done = remove("more", "--yes")
    assert (done.returncode, "still has permissions for more" in done.stderr) == (0, True), done.stderr
    shown = text(run(["trust", "--show", "--json", "--root", str(crib.root)], crib.root))
    assert json.loads(shown.stdout)["trusted"] is False


def test_nothing_is_added_without_trust_or_a_person_or_to_a_file_with_comments(crib: Crib) -> None:
    assert add(crib, "x", "--", sys.executable, "server.py").returncode == 5  # nobody is there to ask
    words = ["add", "x", "--", sys.executable, "server.py"]
    with asked(crib, *words) as screen:
        screen.read_until("Start x now, and trust the tools that it lists?")
        screen.type("n\n")
        assert (screen.end(), "nothing was added" in screen.text) == (5, True), screen.text
    assert not (crib.root / ".mcp.json").exists()
    with asked(crib, *words) as screen:
        screen.read_until("Start x now, and trust the tools that it lists?")
        crib.write(".toolcrib/config.yml", "policy: {self_approval: true}\n")
        screen.type("y\n")
        assert (screen.end(), "the settings have changed meanwhile" in screen.text) == (5, True), screen.text
    (crib.root / ".toolcrib/config.yml").unlink()
    (crib.root / ".mcp.json").unlink()
    with asked(crib, *words) as screen:
        screen.read_until("Start x now, and trust the tools that it lists?")
        crib.write(".mcp.json", "{}")
        screen.type("y\n")
        assert (screen.end(), ".mcp.json has just changed" in screen.text) == (7, True), screen.text
    crib.write(".mcp.json", '{\n  // ours\n  "mcpServers": {}\n}\n')
    done = add(crib, "x", "--yes", "--", sys.executable, "server.py")
    assert done.returncode == 2
    assert "cannot be changed without losing something in it" in done.stderr
    assert '"server.py"' in done.stderr
    crib.write(".mcp.json", '{"mcpServers": {"theirs": {"command": "sh"}}}')
    done = add(crib, "x", "--yes", "--", sys.executable, "server.py")
    assert done.returncode == 5
    assert "toolcrib trust" in done.stderr
    assert "server.py" not in (crib.root / ".mcp.json").read_text()
    assert add(crib, "x").returncode == 2


def test_a_daemons_client_is_unconfined_and_said_to_be(crib: Crib, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin/docker"
    docker.write_text(f"#!/bin/sh\necho unconfined > {tmp_path}/outside.txt\nexec {sys.executable} $2\n")
    docker.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    refused = add(crib, "box", "--", "docker", "run", "server.py", PATH=path)
    assert f"runs {docker} unconfined, with all of your rights" in refused.stdout
    assert not (tmp_path / "outside.txt").exists()
    done = add(crib, "box", "--yes", "--", "docker", "run", "server.py", PATH=path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "outside.txt").exists()
    shown = text(
        run(["trust", "--show", "box", "--root", str(crib.root)], crib.root, env={**os.environ, "PATH": path})
    )
    assert "may do all that you may: it runs unconfined, and this gives control" in shown.stdout
    # A program of the project is confined, whatever its name is.
    (tmp_path / "outside.txt").unlink()
    crib.write("docker", docker.read_text(), 0o755)
    assert add(crib, "own", "--yes", "--", "./docker", "run", "server.py", PATH=path).returncode == 1
    assert not (tmp_path / "outside.txt").exists()


def test_a_wrong_key_and_a_missing_client_have_their_cause(crib: Crib) -> None:
    crib.write(".mcp.json", json.dumps({"mcpServers": {"a": {"command": "sh"}}}))
    crib.write(".toolcrib/config.yml", "mcp_servers: {a: {env: {X: y}}}\n")
    done = text(run(["servers", "list", "--root", str(crib.root)], crib.root))
    assert done.returncode != 0
    assert "beside a server of .mcp.json only `permissions` counts" in done.stderr
    crib.write(".toolcrib/config.yml", "{}\n")
    write(crib, {"b": {"command": "sh"}})
    hidden = "import sys; sys.modules['mcp'] = None\nfrom toolcrib.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", hidden, "servers", "list", "--root", str(crib.root)]
    bare = subprocess.run(words, capture_output=True, text=True, check=False)
    assert bare.returncode == 1
    assert install_command("mcp") in bare.stderr


@pytest.mark.parametrize("before", ["", "{}", '{"mcpServers":{}}', '{"a": 1}', '{"mcpServers": {"a": {}}}\n'])
def test_a_member_is_added_and_the_rest_stays(before: str) -> None:
    after = add_server(before, Path(".mcp.json"), ("mcpServers",), "new", {"command": "x"})
    expected = json.loads(before or "{}")
    expected.setdefault("mcpServers", {})["new"] = {"command": "x"}
    assert json.loads(after) == expected
