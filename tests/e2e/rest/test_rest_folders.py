"""No answer to a token without the scope admin names a folder of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, Reply, http_server
from toolcrib.serve.rest import ROUTES
from toolcrib.spec.identifier import new_id

BUNDLE = new_id()
MODERN = "2026-07-28"
ANY = {"bundleID": BUNDLE, "toolSlug": "cut", "v": "1", "name": "sh", "agent": "a"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("folders") / "project")
    crib.shell()
    crib.tool("gone", "command", {"entrypoint": "no-such-program", "args": []})
    crib.tool("elsewhere", "command", {"entrypoint": "true", "args": [], "cwd": "no-such-folder"})
    crib.tool("module", "python", {"module": "no_such_module", "function": "f"})
    crib.tool("granted", "command", {"entrypoint": "true"}, permissions={"fs": {"read": ["no-such"]}})
    crib.tool("asks", "command", {"entrypoint": "true"}, approval={"required": True, "reason": "It asks."})
    crib.write(".toolcrib/tools/broken/tool.yml", "name: broken\n")
    crib.write(".toolcrib/agents/a.yml", "name: a\ndescription: Does.\nmodel: test:a\ninstructions: Do.\n")
    crib.write(".toolcrib/agents/b.yml", "name: b\n")
    with http_server(crib.root) as running:
        running.send("PUT", f"/tools/bundles/{BUNDLE}", {"slug": "mine"})
        put(running, "go", {"type": "go", "displayName": "F", "impl": {"goFunc": "x.F"}})
        put(
            running, "cut", {"type": "http", "displayName": "G", "impl": {"urlTemplate": "https://a.example"}}
        )
        (file,) = (
            path
            for path in (running.data / "bundles" / BUNDLE / "tools").iterdir()
            if b'"cut"' in path.read_bytes()
        )
        file.write_text("{")
        yield running


def put(server: HttpServerProcess, slug: str, record: dict[str, Any]) -> None:
    assert server.send("PUT", f"/tools/bundles/{BUNDLE}/tools/{slug}/version/1", record).status == 201


@pytest.fixture(scope="module")
def token(server: HttpServerProcess) -> str:
    return server.create_token("agent", "read", "invoke", "approve")


def named(server: HttpServerProcess, reply: Reply) -> bool:
    """True if an answer has the path of a folder of this user."""
    text = reply.body.decode()
    return any(str(folder) in text for folder in (server.root, server.data, Path.home()))


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("elsewhere", "does not exist (./no-such-folder)"),
        ("granted", "does not exist (./no-such)"),
        ("broken", "not usable: ./.toolcrib/tools/broken/tool.yml:1:1"),
    ],
)
def test_the_error_of_a_call_names_no_folder(
    server: HttpServerProcess, token: str, tool: str, message: str
) -> None:
    call: Any = ("POST", f"/tools/invoke/{tool}", {"args": {}})
    reply = server.send(*call, token=token)
    assert message in reply.json["error"]["message"]
    assert not named(server, reply)
    assert named(server, server.send(*call))  # An administrator has to know.
    meta = {"protocolVersion": MODERN, "clientInfo": {"name": "x", "version": "1"}, "clientCapabilities": {}}
    asked = {
        "name": tool,
        "arguments": {},
        "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()},
    }
    sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": MODERN}
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
    over_mcp = server.send("POST", "/mcp", sent, headers, token=token)
    assert message in over_mcp.body.decode()
    assert not named(server, over_mcp)


def test_no_other_answer_names_a_folder(server: HttpServerProcess, token: str) -> None:
    for tool in ("asks", "gone", "module"):
        assert not named(server, server.send("POST", f"/tools/invoke/{tool}", {"args": {}}, token=token))
    (approval,) = server.send("GET", "/approvals", token=token).json["approvals"]
    calls = server.send("GET", "/tools/calls?tool=asks", token=token).json["calls"]
    (call,) = calls
    own = {**ANY, "approvalId": approval["id"], "callId": call["id"]}
    seen = set()
    for route in ROUTES:
        if route.method == "GET" and not route.path.endswith("/events"):
            path = re.sub(r"\{(\w+)\}", lambda name: quote(own.get(name[1], new_id())), route.path)
            query = {"/tools": "?includeDisabled=true", "/tools/search": "?q=cut&includeDisabled=true"}
            reply = server.send("GET", path + query.get(path, ""), token=token)
            assert not named(server, reply), path
            seen.add(reply.status)
    assert {200, 403, 404, 503} <= seen  # Each refusal was looked at too.
    shown = server.send("GET", f"/approvals/{approval['id']}", token=token)
    assert shown.json["facts"]["madeBy"] == "a person, in the file ./.toolcrib/tools/asks/tool.yml"
    assert not named(server, server.send("POST", "/runs", {"agent": "b", "prompt": "x"}, token=token))
