"""The calls of one client are limited over all of its connections, and those of others are not."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.serve.doubles import MemoryCatalog, make_tool
from tests.unit.serve.test_connection import ENVELOPE
from toolcrib.serve.mcp import Connection, ServerSettings
from toolcrib.serve.mcp.calls import CallLoad
from toolcrib.serve.mcp.request import Channel, Sender
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
        assert "result" in await asyncio.wait_for(lines.get(), 100)
    await asyncio.sleep(0)  # A call counts until its task has ended, which is after its answer.
    assert "result" in await asyncio.wait_for(call("greedy").get(), 100)


async def test_stateless_callers_of_one_connection_do_not_keep_each_other_out() -> None:
    async def answer(call: Call) -> Result:
        if call.caller == "greedy":
            await asyncio.Event().wait()
        return Result("ok", None)

    catalog = MemoryCatalog(make_tool("add"), answer=answer)
    connection = Connection(catalog, lambda _: None, ServerSettings(max_running=1, max_streams=1))
    answers: list[Any] = []

    def send(caller: str, method: str, **params: Any) -> None:
        def reply(data: bytes | None, _: int | None = None, /) -> None:
            answers.append((caller, orjson.loads(data or b"{}").get("error", {}).get("code")))

        channel = Channel(Sender(caller), lambda _: None, lambda: False, shared=False)
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
        connection.handle(message, channel, reply, 100)

    for caller in ("greedy", "greedy", "other"):
        send(caller, "subscriptions/listen", notifications={})
        send(caller, "tools/call", name="add")
    for _ in range(10):
        await asyncio.sleep(0)
    assert answers == [("greedy", -32000), ("other", None)]
    await connection.drain(0)
