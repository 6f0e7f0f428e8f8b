"""What goes wrong in a project, at the MCP door: errors an agent can act on, one audit line for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Forked
from tests.crib import SH, Crib
from tests.integration.project.test_bad_input import stuttering_server

PROGRAM = str(Path(sys.executable).parent / "toolcrib")
BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "0"}}


class Client:
    """A session with `toolcrib serve --stdio`."""

    def __init__(self, crib: Crib) -> None:
        self.crib = crib
        self.process = Forked(
            [PROGRAM, "serve", "--stdio", "--root", str(crib.root)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "MISSING_TOKEN"},
        )
        self.number = 0
        self.ask("initialize", BEGIN)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self._send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert answer.get("id") == self.number, answer
        return answer

    def refused(self, name: str, arguments: Any = None) -> tuple[dict[str, Any], str]:
        """The error object of a call that fails, and the text for the model; there is one audit line."""
        before = len(self.crib.audit())
        answer = self.ask("tools/call", {"name": name, "arguments": arguments or {}})
        assert len(self.crib.audit()) == before + 1
        if "error" in answer:
            return answer["error"]["data"]["error"], answer["error"]["message"]
        assert answer["result"]["isError"]
        return answer["result"]["structuredContent"]["error"], answer["result"]["content"][0]["text"]

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture
def client(crib: Crib) -> Iterator[Client]:
    fine: dict[str, Any] = {"action": "read", "path": "f"}
    granted = {"permissions": {"fs": {"read": ["f"]}}}
    crib.write("f", "content")
    crib.tool("fine", "file", fine, {"n": {"type": "integer"}}, **granted)
    crib.tool("secret", "file", fine, permissions={"secrets": {"MISSING_TOKEN": {}}})
    crib.tool("grant", "file", fine, permissions={"fs": {"read": ["gone"]}})
    crib.tool("asks", "file", fine, approval={"required": True, "reason": "it is dear"}, **granted)
    crib.tool("command", "command", {"entrypoint": "no-such-program"}, outputs={"format": "text"})
    crib.tool("flood", "command", {"entrypoint": "sh", "args": ["-c", "${c}"], "allow_code": True}, SH)
    crib.python("import os\ndef run():\n    os._exit(0)", "exit")
    port = stuttering_server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[")
    crib.tool("http", "http", {"url": f"http://127.0.0.1:{port}/", "timeout_ms": 300},
              permissions={"network": {"allow": [f"127.0.0.1:{port}"]}})  # fmt: skip
    project = crib.open()
    for name in ("secret", "http", "flood"):  # A person has looked at what reaches beyond the project.
        tool = project.get(name)
        project.trust.trust(tool, "ann")
    crib.write(".toolcrib/tools/list/tool.yml", "- a\n")
    crib.write(".toolcrib/tools/deep/tool.yml", "[" * 200_000)
    crib.write(".toolcrib/tools/half/tool.yml", "name: half\ndescription: 'never clo")
    opened = Client(crib)
    yield opened
    opened.close()


@pytest.mark.usefixtures("kernel")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_everything_bad_is_answered_and_recorded_once(client: Client) -> None:
    listed = client.ask("tools/list", {})["result"]["tools"]
    good = ["asks", "command", "exit", "fine", "flood", "grant", "http", "secret"]
    good += ["tool_call", "tool_create", "tools_list", "tools_search"]
    assert sorted(tool["name"] for tool in listed) == good
    flood = {"c": "head -c 9000000 /dev/zero"}
    for name, arguments, code, told, event in (
        ("fime", {}, "tool_not_found", "fine", "TOOL_REFUSED"),
        ("fine", {"m": 1}, "invalid_input", "Invalid input: $.m is not known", "TOOL_REFUSED"),
        ("fine", {"n": "x"}, "invalid_input", "Invalid input: $.n", "TOOL_REFUSED"),
        ("secret", {}, "secret_missing", "MISSING_TOKEN", "TOOL_REFUSED"),
        ("grant", {}, "tool_unavailable", "'gone'", "TOOL_REFUSED"),
        ("asks", {}, "approval_required", "it is dear", "TOOL_WAITS"),
        ("command", {}, "tool_unavailable", "no-such-program", "TOOL_REFUSED"),
        ("flood", flood, "tool_failed", "9,000,000 bytes", "TOOL_EXECUTED"),
        ("exit", {}, "command_failed", "did not return", "TOOL_EXECUTED"),
        ("http", {}, "timed_out", "300 ms", "TOOL_EXECUTED"),
        ("list", {}, "invalid_manifest", "not-a-mapping", "TOOL_REFUSED"),
        ("deep", {}, "invalid_manifest", "yaml-depth", "TOOL_REFUSED"),
        ("half", {}, "invalid_manifest", "yaml-syntax", "TOOL_REFUSED"),
    ):
        error, text = client.refused(name, arguments)
        assert error["code"] == code, error
        assert told in text
        assert client.crib.last().event == event
        assert client.crib.last().fields["caller"] == "mcp:agent"
    answer = client.ask("tools/call", {"name": "fine", "arguments": {}})
    assert answer["result"]["content"][0]["text"] == "content"
