"""`toolcrib servers`: what a person at a terminal sees of MCP servers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, run, text
from tests.crib import Crib
from tests.e2e.terminal import terminal
from tests.integration.project.mcp.test_mcp_login import get, running
from tests.mcp_servers import RAW, mount, trust, write

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    (tmp_path / "p").mkdir()
    return Crib(tmp_path / "p")


def toolcrib(crib: Crib, *words: str) -> subprocess.CompletedProcess[str]:
    return text(run([*words, "--root", str(crib.root)], crib.root))


def audited(crib: Crib, event: str) -> list[dict[str, Any]]:
    return [line.fields for line in crib.audit() if line.event == event]


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_servers_are_shown_reviewed_and_their_tools_run(crib: Crib) -> None:
    mount(crib, "raw", RAW + "\nmain()")
    mount(crib, "bad", "import sys; print('first'); sys.exit('no licence found')")
    write(crib, {}, {"review": "ask"})
    assert "not known yet; `toolcrib servers list` starts them: raw, bad" in toolcrib(crib, "list").stderr
    shown = toolcrib(crib, "servers", "list")
    assert "raw   ready" in shown.stdout
    assert "1 (1 unreviewed)" in shown.stdout
    assert "no licence found" in shown.stderr
    rows = {row["name"]: row for row in document(toolcrib(crib, "servers", "list", "--json"))["servers"]}
    assert rows["raw"]["state"] == "ready"
    assert rows["bad"]["stderr"] == "no licence found\n"
    assert "raw__hello" in toolcrib(crib, "list").stdout
    assert toolcrib(crib, "run", "raw__hello").returncode == 5
    assert toolcrib(crib, "servers", "review", "raw").returncode == 5  # nobody is there to ask
    looked = document(toolcrib(crib, "servers", "review", "raw", "--json"))
    assert looked["accepted"] is False
    assert list(looked["unreviewed"]) == ["raw__hello"]
    assert document(toolcrib(crib, "servers", "review", "raw", "--json", "--yes"))["accepted"] is True
    assert toolcrib(crib, "run", "raw__hello").stdout == "hello\n"
    failed = toolcrib(crib, "servers", "review", "bad")
    assert failed.returncode == 1
    assert "no licence found" in failed.stderr
    assert "MCP_SERVER_REVIEWED" in {line.event for line in crib.audit()}


def test_one_review_is_enough_for_all_servers_that_start(crib: Crib) -> None:
    for name in ("first", "second"):
        mount(crib, name, RAW + "\nmain()")
    mount(crib, "bad", "import sys; sys.exit('no licence found')")
    write(crib, {}, {"review": "ask"})
    looked = toolcrib(crib, "servers", "review", "--json")
    assert looked.returncode == 1  # one does not start
    first, second, bad = json.loads(looked.stdout)["servers"]
    assert [list(one["unreviewed"]) for one in (first, second)] == [["first__hello"], ["second__hello"]]
    assert (bad["name"], bad["error"]["code"]) == ("bad", "tool_unavailable")
    assert toolcrib(crib, "run", "second__hello").returncode == 5
    done = toolcrib(crib, "servers", "review", "--yes")
    assert done.returncode == 1
    assert "Reviewed 1 tool of first" in done.stderr
    assert "Reviewed 1 tool of second" in done.stderr
    assert "bad did not start" in done.stderr
    assert toolcrib(crib, "run", "second__hello").stdout == "hello\n"
    assert "Every tool of first has been reviewed" in toolcrib(crib, "servers", "review").stderr


ADDRESS = {"type": "object", "properties": {"url": {"type": "string"}}}
WEB = json.dumps([{"name": "get", "description": "Get a page.", "inputSchema": ADDRESS}])


def test_a_person_enters_the_hosts_of_a_server_whose_tools_take_addresses(crib: Crib) -> None:
    mount(crib, "web", RAW + "\nmain()", env={"DEFINITIONS": WEB})
    mount(crib, "raw", RAW + "\nmain()")
    write(crib, {}, {"review": "ask"})
    command = [PROGRAM, "servers", "review", "--root", str(crib.root)]
    with terminal(command, crib.root, {**os.environ, "TERM": "xterm"}) as screen:
        screen.read_until("Run these tools without asking?")
        screen.type("y\n")
        screen.read_until("Hosts for web")
        screen.type("exa mple.org/x\n")
        screen.read_until("`mple.org/x` is not a host name. A host is written example.org")
        screen.read_until("is every public one.\nHosts for web")  # keys pressed before it do not count
        screen.type("example.org, *.example.com\n")
        assert screen.end() == 0
        assert "web may reach example.org, *.example.com." in screen.text
        assert "Hosts for raw" not in screen.text
    assert "network: example.org, *.example.com" in toolcrib(crib, "trust", "--show").stdout
    found = document(toolcrib(crib, "servers", "list", "--json"))["servers"][0]
    assert found["permissions"]["network"] == {"allow": ["example.org", "*.example.com"]}
    reviewed = {line["name"]: line for line in audited(crib, "MCP_SERVER_REVIEWED")}
    assert reviewed["web"]["network"] == {"allow": ["example.org", "*.example.com"]}
    assert "network" not in reviewed["raw"]


def test_hosts_are_given_as_options_too(crib: Crib) -> None:
    mount(crib, "web", RAW + "\nmain()", env={"DEFINITIONS": WEB})
    write(crib, {}, {"review": "ask"})

    def review(*words: str) -> str:
        done = toolcrib(crib, "servers", "review", "web", *words)
        assert done.returncode == 0, done.stderr
        return done.stderr

    shown = review("--yes")
    assert "web takes addresses, and may reach no host: toolcrib servers review web --allow HOST" in shown
    assert "web may reach every public host." in review("--yes", "--allow", "*")
    assert "web may reach example.org." in review("--yes", "--allow", "example.org")
    looked = json.loads(toolcrib(crib, "servers", "review", "web", "--json", "--allow", "example.com").stdout)
    assert looked["network"] == {"allow": ["example.org"]}  # nobody has agreed
    assert "web may reach no host." in review("--yes", "--allow", "none")
    for words, why in ((("--allow", "x"), "needs the name of a server"), (("web", "--allow", "a b"), "host")):
        refused = toolcrib(crib, "servers", "review", *words)
        assert refused.returncode == 2
        assert why in refused.stderr
    mount(crib, "web", RAW + "\nmain()", permissions={"network": False})
    stated = toolcrib(crib, "servers", "review", "web", "--yes", "--allow", "example.org")
    assert stated.returncode == 2
    assert "the entry of web decides" in stated.stderr


def wheel(folder: Path) -> None:
    """Write a Python package `tiny-server` whose command is an MCP server."""
    info = "tiny_server-1.0.dist-info"
    files = {
        "tiny_server.py": RAW,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-server\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny-server = tiny_server:main\n",
    }
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_server-1.0-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))


def test_a_review_downloads_what_a_launcher_lacks(
    crib: Crib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    for name, value in {"CACHE_DIR": "cache", "FIND_LINKS": "wheels", "TOOL_DIR": "tools"}.items():
        monkeypatch.setenv(f"UV_{name}", str(tmp_path / value))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    crib.write(".mcp.json", json.dumps({"mcpServers": {"tiny": {"command": "uvx", "args": ["tiny-server"]}}}))
    refused = toolcrib(crib, "servers", "review", "--yes")
    assert refused.returncode == 5
    assert "toolcrib trust" in refused.stderr
    trust(crib.root)
    listed = toolcrib(crib, "servers", "list").stderr
    assert "tiny-server is not on this machine" in listed
    assert "To download what is missing, and review the tools: toolcrib servers review" in listed
    looked = json.loads(toolcrib(crib, "servers", "review", "--json").stdout)  # which downloads nothing
    assert looked["servers"][0]["error"]["code"] == "tool_unavailable"
    assert toolcrib(crib, "servers", "review").returncode == 5  # nobody is there to ask
    assert not [*(tmp_path / "cache").glob("archive-v*/**/METADATA")]
    done = toolcrib(crib, "servers", "review", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Reviewed 1 tool of tiny" in done.stderr
    for about in (tmp_path / "cache").glob("archive-v*/**/tiny_server-1.0.dist-info/METADATA"):
        about.write_bytes(about.read_bytes() + "Author: Jé\n".encode("latin-1"))
    assert toolcrib(crib, "run", "tiny__hello").stdout == "hello\n"


def test_a_missing_permission_is_named(crib: Crib) -> None:
    crib.write("data/.keep", "")
    mount(crib, "db", "open('./data/x.db', 'w')")
    shown = toolcrib(crib, "servers", "list").stderr
    assert "hint: To allow it, write under mcp_servers.db in config.yml: permissions:" in shown
    assert '"write": ["data"]' in shown


def test_a_folder_named_on_the_command_line_is_shown_and_written_after_one_review(crib: Crib) -> None:
    for path in ("data/.keep", "other/.keep"):
        crib.write(path, "")
    crib.write("servers/db.py", f"import sys\nopen(sys.argv[2], 'a').write('x')\n{RAW}\nmain()")

    def named(path: str) -> None:
        entry = {"command": "python3", "args": ["servers/db.py", "--db-path", path]}
        (crib.root / ".mcp.json").write_text(json.dumps({"mcpServers": {"db": entry}}))

    def accept() -> str:
        shown = toolcrib(crib, "trust", "--yes")
        assert shown.returncode == 0, shown.stderr
        return shown.stdout

    named("data/x.db")
    shown = accept()
    assert "server db may: read .; write data (named on its command line or in its env)" in shown
    assert "may not" not in shown
    assert "db  ready" in " ".join(toolcrib(crib, "servers", "list").stdout.split("   "))
    assert (crib.root / "data/x.db").read_text() == "x"
    named("other/x.db")
    assert "not trusted" in toolcrib(crib, "servers", "list").stdout
    assert not (crib.root / "other/x.db").exists()
    shown = accept()
    assert "gone: mcp_servers.db/write/data" in shown
    assert "new: mcp_servers.db/write/other" in shown
    (crib.root / "other").rename(crib.root / "moved")
    (crib.root / "other").symlink_to("data")
    assert "not trusted" in toolcrib(crib, "servers", "list").stdout
    named("x.db")
    assert "server db may not write x.db: the root stays read-only" in accept()
    failed = toolcrib(crib, "servers", "review", "--yes")
    assert failed.returncode == 1
    assert "hint: db may not write x.db: the root stays read-only" in failed.stderr


def test_a_person_is_asked_before_another_host_logs_them_in(crib: Crib) -> None:
    with running() as guarded, running() as issuer:
        guarded.issuer, guarded.valid = issuer.base, "access-1"
        write(crib, {"far": {"url": guarded.url}})
        command = [PROGRAM, "servers", "login", "far", "--root", str(crib.root)]
        with terminal(command, crib.root, os.environ) as screen:
            screen.read_until(f"far logs you in at 127.0.0.1:{issuer.port}. Allow that? [y/N] ")
            assert issuer.paths == []
            screen.type("y\n")
            while not (page := re.search(r"^http\S+\n", screen.text, re.MULTILINE)):
                assert screen.read_more()
            _, back = asyncio.run(get(page[0].strip()))
            asyncio.run(get(back))
            assert screen.end() == 0
        assert "Logged in to far." in screen.text


def test_what_is_not_there_is_told(crib: Crib) -> None:
    assert document(toolcrib(crib, "servers", "list", "--json")) == {"servers": [], "wrong": {}}
    assert "names no MCP server" in toolcrib(crib, "servers", "list").stderr
    mount(crib, "raw", RAW + "\nmain()")
    for words in (("review", "rwa"), ("login", "rwa"), ("logout", "rwa")):
        done = toolcrib(crib, "servers", *words)
        assert done.returncode == 3
        assert "Did you mean raw?" in done.stderr
    assert toolcrib(crib, "servers", "login", "raw").returncode == 2
    assert "You are not logged in" in toolcrib(crib, "servers", "logout", "raw").stderr
    found = json.loads(toolcrib(crib, "servers", "logout", "raw", "--json").stdout)
    assert found == {"server": "raw", "logged_out": False}
    (crib.root / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "sh"}}}')
    assert (
        "\n.mcp.json: these MCP servers are started or called: other"
        in f"\n{toolcrib(crib, 'trust', '--show').stdout}"
    )
    lines = {
        one["key"]: one["line"] for one in document(toolcrib(crib, "trust", "--show", "--json"))["settings"]
    }
    assert lines[".mcp.json"] is None
    (crib.root / ".mcp.json").write_text("{broken")
    assert ".mcp.json" in toolcrib(crib, "servers", "list").stderr


def test_served_over_mcp_as_one_of_ours(crib: Crib) -> None:
    mount(crib, "raw", RAW + "\nmain()")
    toolcrib(crib, "servers", "list")
    client = {"name": "t", "version": "1"}
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": begin},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "raw__hello", "arguments": {}}},
    ]
    command = [PROGRAM, "serve", "--stdio", "--root", str(crib.root)]
    with Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdin is not None
        assert ours.stdout is not None
        answers = {}
        for message in messages:
            ours.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            ours.stdin.flush()
        while 3 not in answers:
            answer = json.loads(ours.stdout.readline())
            answers[answer.get("id")] = answer
        ours.stdin.close()
        assert ours.wait(60) == 0
    assert "raw__hello" in [tool["name"] for tool in answers[2]["result"]["tools"]]
    assert answers[3]["result"]["content"][0]["text"] == "hello"
