"""`toolcrib connect`: the configuration files of agent hosts, and a client that uses what was written."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from tests.commands import run, text
from tests.crib import Crib, accept
from tests.http_server import http_server

FILES = {
    "claude-code": ("~/.claude.json", ["projects", "ROOT", "mcpServers", "toolcrib"]),
    "claude-desktop": ("~/.config/Claude/claude_desktop_config.json", ["mcpServers", "toolcrib-project"]),
    "codex": ("~/.codex/config.toml", ["mcp_servers", "toolcrib-project"]),
    "cursor": ("ROOT/.cursor/mcp.json", ["mcpServers", "toolcrib"]),
    "gemini": ("ROOT/.gemini/settings.json", ["mcpServers", "toolcrib"]),
    "vscode": ("ROOT/.vscode/mcp.json", ["servers", "toolcrib"]),
}
PREFIX = "io.modelcontextprotocol/"
META = {
    "_meta": {
        f"{PREFIX}protocolVersion": "2026-07-28",
        f"{PREFIX}clientInfo": {"name": "test", "version": "1"},
        f"{PREFIX}clientCapabilities": {},
    }
}


class Hosts:
    """A person's home folder and a project."""

    def __init__(self, crib: Crib, home: Path) -> None:
        self.crib, self.home = crib, home
        crib.write("f", "content")
        crib.tool("read", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}})
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG", "CODEX"))}
        self.env = {**kept, "HOME": str(home)}

    def connect(self, host: str, *words: str) -> tuple[int, str, str]:
        done = text(run(["connect", host, *words], self.crib.root, self.env))
        return done.returncode, done.stdout, done.stderr

    def file(self, host: str) -> Path:
        name = FILES[host][0].replace("~", str(self.home)).replace("ROOT", str(self.crib.root))
        return Path(name)

    def entry(self, host: str) -> dict[str, Any]:
        content = self.file(host).read_text()
        found: Any = tomllib.loads(content) if host == "codex" else json.loads(content)
        for key in FILES[host][1]:
            found = found[key.replace("ROOT", str(self.crib.root))]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def hosts(crib: Crib, tmp_path: Path) -> Hosts:
    (tmp_path / "home").mkdir()
    return Hosts(crib, tmp_path / "home")


@pytest.mark.parametrize("host", FILES)
async def test_a_client_can_use_what_was_written(hosts: Hosts, host: str) -> None:
    code, shown, note = hosts.connect(host)
    assert (code, "+" in shown, "Nothing was written" in note) == (0, True, True)
    assert not hosts.file(host).exists()

    assert hosts.connect(host, "--write")[0] == 0
    entry = hosts.entry(host)
    accept(hosts.crib.root)
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))
    async with Client(server) as client:
        assert "read" in [tool.name for tool in (await client.list_tools()).tools]

    written = hosts.file(host).read_bytes()
    assert "nothing to change" in hosts.connect(host, "--write")[2]
    assert hosts.file(host).read_bytes() == written
    assert [file.name for file in hosts.file(host).parent.glob("*backup*")] == []


def test_the_address_and_the_variable_for_the_token_can_be_written(hosts: Hosts) -> None:
    """Uses each host's entry as it does, with a token in the place of the variable."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": META}
    with http_server(hosts.crib.root) as server:
        address = f"{server.address}/mcp"
        for host in sorted(FILES.keys() - {"claude-desktop"}):
            assert "add --write to this command" in hosts.connect(host, "--http", address)[2]
            assert not hosts.file(host).exists()
            code, _, note = hosts.connect(host, "--http", address, "--write")
            assert (code, "Set TOOLCRIB_TOKEN" in note) == (0, True)
            entry = hosts.entry(host)
            assert entry.get("httpUrl" if host == "gemini" else "url") == address
            assert entry.get("type") == ("http" if host in {"claude-code", "vscode"} else None)
            sent = entry.get("headers", {}).get("Authorization")
            if host == "codex":
                assert entry["bearer_token_env_var"] == "TOOLCRIB_TOKEN"
            else:
                variable = "${env:TOOLCRIB_TOKEN}" if host in {"cursor", "vscode"} else "${TOOLCRIB_TOKEN}"
                assert sent == f"Bearer {variable}"
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "server/discover",
        }
        assert server.send("POST", "/mcp", ping, headers).json["result"]["capabilities"]["tools"]
    code, _, error = hosts.connect("claude-desktop", "--http", "--write")
    assert (code, "names only programs" in error, hosts.file("claude-desktop").exists()) == (2, True, False)
    assert hosts.connect("cursor", "--http", "ftp://x")[0] == 2
    assert hosts.connect("cursor", "--http", "https://ann:password@x/mcp")[0] == 2


def test_what_the_hosts_list_changes_is_reported(hosts: Hosts) -> None:
    name = "a_tool_whose_name_is_longer_than_cursor_takes_it"
    hosts.crib.tool(name, "file", {"action": "read", "path": "f"}, {"filter[id]": {"type": "string"}})
    accept(hosts.crib.root)
    hosts.env = dict(os.environ)
    code, out, error = hosts.connect("cursor", "--json")
    assert code == 0, error
    changes = json.loads(out)["list"]["changed"][name]
    assert changes[0].startswith("its name is a_tool_whose_name")
    assert changes[1] == "the argument 'filter[id]' is named filter_id"
    _, _, said = hosts.connect("cursor")
    assert f"{name}: its name is" in said
    done = text(run(["doctor", "--client", "gemini"], hosts.crib.root, hosts.env))
    assert (done.returncode, "Gemini CLI gets" in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize("host", FILES)
def test_what_was_in_the_file_stays_and_a_copy_is_kept(hosts: Hosts, host: str) -> None:
    before = 'model = "x" # mine\n[mcp_servers.other]\ncommand = "y"' if host == "codex" else (
        '{\n    "theme": "dark",\n    "mcpServers": {"other": {"command": "é"}}\n}'
    )  # fmt: skip
    hosts.file(host).parent.mkdir(parents=True, exist_ok=True)
    hosts.file(host).write_text(before, newline="\r\n")
    hosts.file(host).chmod(0o640)
    earlier = hosts.file(host).with_name(f"{hosts.file(host).name}.backup1")
    earlier.write_text("earlier")
    code, out, _ = hosts.connect(host, "--write", "--json")
    assert code == 0
    backup = Path(json.loads(out)["backup"])
    assert backup.read_bytes() == before.replace("\n", "\r\n").encode()
    assert backup.stat().st_mode & 0o777 == 0o640
    assert earlier.read_text() == "earlier"
    after = hosts.file(host).read_text()
    assert hosts.file(host).read_bytes() == after.replace("\n", "\r\n").encode()
    assert hosts.file(host).stat().st_mode & 0o777 == 0o640
    assert hosts.entry(host)["args"][-2:] == ["--root", str(hosts.crib.root)]
    if host == "codex":
        assert after.startswith(before)
    else:
        assert after.startswith('{\n    "theme": "dark",\n    "mcpServers": {\n        "other"')
        assert '"é"' in after


@pytest.mark.parametrize(
    ("host", "content"),
    [
        ("vscode", '{\n  // a comment\n  "servers": {}\n}'),
        ("cursor", '{"mcpServers": []}'),
        ("gemini", '{"a": 1, "a": 2}'),
        ("claude-desktop", "[]"),
        ("codex", '[mcp_servers."toolcrib-project"]\ncommand = "another"\n'),
        ("codex", "mcp_servers = 1\n"),
    ],
)
def test_a_file_that_would_lose_something_is_not_changed(hosts: Hosts, host: str, content: str) -> None:
    hosts.file(host).parent.mkdir(parents=True, exist_ok=True)
    hosts.file(host).write_text(content)
    code, _, error = hosts.connect(host, "--write")
    assert code == 2
    assert "Add this to it yourself" in error
    assert "--root" in error
    assert hosts.file(host).read_text() == content


@pytest.mark.parametrize("content", [b"\xff\xfe{\0", None])
def test_a_file_that_is_no_text_is_left_alone(hosts: Hosts, content: bytes | None) -> None:
    file = hosts.file("cursor")
    file.parent.mkdir(parents=True)
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    code, _, error = hosts.connect("cursor", "--write")
    assert (code, f"{file} cannot be read" in error) == (2, True), error
    assert file.is_dir() or file.read_bytes() == content


def test_a_python_file_is_added_for_the_folder_it_is_used_in(hosts: Hosts) -> None:
    name = "a_function_whose_name_is_longer_than_cursor_takes"
    made = f"tools = Toolset()\n@tools.tool\ndef {name}() -> None: 'Does it.'\n"
    (hosts.crib.root / "sums.py").write_text(f"from toolcrib import Toolset\n{made}")
    code, _, error = hosts.connect("cursor", "sums.py:tools", "--write")
    assert (code, f"{name}: its name is" in error) == (0, True), error
    entry = json.loads(hosts.file("cursor").read_text())["mcpServers"]["toolcrib-sums"]
    assert entry["args"] == ["serve", "--stdio", "--root", f"{hosts.crib.root}/sums.py:tools"]
    assert hosts.connect("cursor", "sums.py", "--http", "--write")[0] == 0
    entry = json.loads(hosts.file("cursor").read_text())["mcpServers"]["toolcrib-sums"]
    assert entry["url"] == "http://127.0.0.1:8745/mcp"
    (hosts.crib.root / "bad.py").write_text("1 / 0")
    for words, told in (
        (("bad.py",), "bad.py does not load"),
        (("gone.py",), "no file gone.py"),
        (("sums",), "Write sums.py"),
    ):
        assert told in hosts.connect("cursor", *words)[2]


def test_a_file_that_cannot_be_written_is_named(hosts: Hosts) -> None:
    folder = hosts.file("codex").parent
    folder.write_text("in its place")
    code, _, error = hosts.connect("codex", "--write")
    assert (code, f"{folder}/config.toml cannot be written" in error) == (1, True), error


def test_a_project_cannot_have_a_file_elsewhere_changed(hosts: Hosts, tmp_path: Path) -> None:
    elsewhere = tmp_path / "settings.json"
    elsewhere.write_text("{}")
    hosts.file("cursor").parent.mkdir()
    hosts.file("cursor").symlink_to(elsewhere)
    code, _, error = hosts.connect("cursor", "--write")
    assert (code, "symbolic link" in error) == (2, True)
    assert elsewhere.read_text() == "{}"


async def test_a_container_gets_the_project_and_a_volume_for_decisions(hosts: Hosts) -> None:
    image = "registry.example.com/toolcrib:1"
    # There is no engine on every machine: this one starts Toolcrib here, with the folder that it was given.
    engine = hosts.home / "podman"
    engine.write_text(
        """#!/bin/sh
while [ "$1" != registry.example.com/toolcrib:1 ]; do
    case "$1" in *:/project) folder="${1%:/project}" ;; esac
    shift
done
[ "$5" = /project ] && exec "$TOOLCRIB" "$2" "$3" "$4" "$folder"
"""
    )
    engine.chmod(0o755)
    hosts.env["PATH"] = f"{hosts.home}:{hosts.env['PATH']}"
    accept(hosts.crib.root)
    assert hosts.connect("cursor", "--container", image, "--write")[0] == 0
    entry = hosts.entry("cursor")
    assert f"{hosts.crib.root}:/project" in entry["args"]
    assert "toolcrib-project:/data" in entry["args"]
    # Podman refuses this of root.
    assert ("--userns=keep-id:uid=10001,gid=10001" in entry["args"]) == (os.geteuid() != 0)
    env = {**os.environ, "TOOLCRIB": str(Path(sys.executable).with_name("toolcrib"))}
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"], env=env)
    async with Client(parameters) as client:
        assert "read" in [tool.name for tool in (await client.list_tools()).tools]
    assert hosts.connect("cursor", "--container", image, "--http")[0] == 2
