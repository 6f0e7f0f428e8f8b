"""Binary answers of every kind of tool are content at every interface, and each is an artifact."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from aiohttp import web

from tests.commands import run
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from tests.integration.egress.servers import serving
from toolcrib import Project
from toolcrib.executors.function.threads import run_in_thread

PNG = b"\x89PNG\r\n\x1a\n\0\0" + bytes(range(256))
ESCAPED = "".join(f"\\{byte:03o}" for byte in PNG)
TOOLS = ("by_http", "by_python", "by_command", "by_file")


def make(crib: Crib, port: int) -> None:
    permissions = {"network": {"allow": [f"127.0.0.1:{port}"]}}
    config = {"method": "GET", "url": f"http://127.0.0.1:{port}/"}
    crib.tool("by_http", "http", config, permissions=permissions)
    crib.python(f"def run():\n    return {PNG!r}\n", "by_python")
    crib.tool(
        "by_command", "command", {"entrypoint": "printf", "args": [ESCAPED]}, outputs={"format": "text"}
    )
    crib.write("a.png", PNG)
    reading = {"action": "read", "path": "a.png", "encoding": "binary"}
    crib.tool("by_file", "file", reading, permissions={"fs": {"read": ["a.png"]}})


def check(name: str, where: str, blocks: Any, details: Any) -> None:
    (block,) = blocks
    assert (block["type"], block["mimeType"]) == ("image", "image/png"), (name, where)
    assert b64decode(block["data"]) == PNG, (name, where)
    if details is not None:
        (kept,) = details["artifacts"]
        assert (kept["size"], kept["mediaType"]) == (len(PNG), "image/png"), (name, where)


def mcp(server: HttpServerProcess, method: str, called: str, token: str = "", **params: Any) -> Any:
    meta: dict[str, Any] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    meta |= {"io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": method}
    headers |= {"MCP-Protocol-Version": "2026-07-28"} | ({"Mcp-Name": called} if called else {})
    return server.send("POST", "/mcp", message, headers, token=token).json


def artifacts(server: HttpServerProcess) -> Any:
    uri = "toolcrib://artifacts"
    return json.loads(mcp(server, "resources/read", uri, uri=uri)["result"]["contents"][0]["text"])


def over_interfaces(crib: Crib) -> None:
    with http_server(crib.root) as server:
        for name in TOOLS:
            said = json.loads(run(["run", name, "--json"], crib.root).stdout)
            check(name, "command line", said["value"]["content"], said.get("details"))
            reply = server.send("POST", f"/tools/invoke/{name}", {"args": {}}).json
            check(name, "REST", reply["value"]["content"], reply.get("details"))
            reply = mcp(server, "tools/call", name, name=name, arguments={})
            check(name, "MCP", reply["result"]["content"], None)
        listed = mcp(server, "resources/list", "")["result"]["resources"]
        assert "toolcrib://artifacts" in [one["uri"] for one in listed]
        mine = artifacts(server)
        assert {one["tool"] for one in mine} == set(TOOLS)
        (image,) = mcp(server, "resources/read", mine[0]["uri"], uri=mine[0]["uri"])["result"]["contents"]
        assert b64decode(image["blob"]) == PNG
        assert artifacts(server) == mine
        other = server.create_token("other", "invoke")
        assert "error" in mcp(server, "resources/read", mine[0]["uri"], token=other, uri=mine[0]["uri"])


@pytest.mark.usefixtures("kernel")
async def test_binary_answers_are_content_at_every_interface(crib: Crib) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=PNG, content_type="image/png")

    async with serving(answer) as port:
        make(crib, port)
        async with Project.open(crib.root, accept="all") as project:
            project.toolset.register("by_function", lambda: PNG, description="Return an image.")
            for name in (*TOOLS, "by_function"):
                result = await project.call(name)
                check(name, "Python", result.blocks, result.details)
        await run_in_thread(lambda: over_interfaces(crib))


BLOCKS = [
    {"type": "image", "data": "iVBOR", "mimeType": "image/png"},
    {"type": "audio", "data": "UklGR", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
    {"type": "resource_link", "uri": "file:///b", "name": "b"},
]


@pytest.mark.usefixtures("kernel")
def test_blocks_of_content_that_a_confined_tool_gives(crib: Crib) -> None:
    content = {"format": "content"}
    crib.python(f"def run():\n    return {BLOCKS!r} + ['end']\n", "many", outputs=content)
    crib.tool("one", "command", {"entrypoint": "echo", "args": [json.dumps(BLOCKS[0])]}, outputs=content)
    crib.tool("wrong", "command", {"entrypoint": "echo", "args": ['[{"type": "image"}]']}, outputs=content)
    many, one, wrong = crib.call("many"), crib.call("one"), crib.call("wrong")
    assert list(many.blocks) == [*BLOCKS, {"type": "text", "text": "end"}]
    assert (list(one.blocks), one.value) == (BLOCKS[:1], {"content": BLOCKS[:1]})
    assert wrong.error is not None
    assert wrong.error.message.endswith("part 0, of type image, needs the text data")
