"""The calls of one client are limited over all of its connections, and those of others are not."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.serve.doubles import MemoryCatalog, make_tool
from toolcrib.serve.mcp import Connection, ServerSettings
from toolcrib.serve.mcp.calls import CallLoad
from toolcrib.serve.mcp.request import Sender
from toolcrib.spec import Call, Result

BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}


@pytest.mark.parametrize("limit", [{"max_running": 1, "max_waiting": 1}, {"max_bytes": 2_500}])
async def test_more_connections_are_no_more_room(limit: dict[str, Any]) -> None:
    opened = asyncio.Event()

    async def answer(call: Call) -> Result:
        await opened.wait()
        return Result("ok", None)

    catalog, load = MemoryCatalog(make_tool("add"), answer=answer), CallLoad()

    def call(caller: str) -> asyncio.Queue[Any]:
        """Begin a session, and make one call in it; return what comes back."""
        lines: asyncio.Queue[Any] = asyncio.Queue()
        made = Connection(
            catalog,
            lambda line: lines.put_nowait(orjson.loads(line)),
            ServerSettings(**limit),
            load=load,
        )
        params = {"name": "add", "arguments": {"a": "x" * 1_000}}
        for method, given in (("initialize", BEGIN), ("tools/call", params)):
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": given}
            made.receive(orjson.dumps(message), Sender(caller))
        assert lines.get_nowait()["id"] == "initialize"
        return lines

    waiting = [call("greedy"), call("greedy")]
    assert call("greedy").get_nowait()["error"]["code"] == -32000
    waiting.append(call("other"))
    opened.set()
    for lines in waiting:
        assert "result" in await asyncio.wait_for(lines.get(), 30)
    await asyncio.sleep(0)  # A call counts until its task has ended, which is after its answer.
    assert "result" in await asyncio.wait_for(call("greedy").get(), 30)
