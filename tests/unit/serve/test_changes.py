"""Notifications that the list of tools has changed."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

from tests.unit.serve.doubles import MemoryCatalog, make_tool
from tests.unit.serve.test_connection import Client, session
from toolcrib.serve.mcp import Connection
from toolcrib.serve.mcp.http.streams import EventStream
from toolcrib.serve.mcp.lists import Listings
from toolcrib.serve.mcp.wire import notification, to_json
from toolcrib.spec import McpForms

CHANGED = "notifications/tools/list_changed"
ID = "io.modelcontextprotocol/subscriptionId"


async def listening(client: Client, wanted: Any = None, request_id: Any = "s1") -> Any:
    wanted = {"toolsListChanged": True} if wanted is None else wanted
    client.modern_as(request_id, "subscriptions/listen", {"notifications": wanted})
    return await client.next()


async def test_a_session_is_notified_once_it_is_ready() -> None:
    client = Client()
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    await client.ask("initialize", begin)
    client.catalog.add(make_tool("early"))
    assert await client.quiet()
    client.notify("notifications/initialized")
    client.catalog.add(make_tool("late"))
    assert await client.next() == {"jsonrpc": "2.0", "method": CHANGED}
    listed = (await client.ask("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["add", "my_tool", "early", "late"]


async def test_many_changes_at_once_are_one_notification() -> None:
    client = Client()
    await session(client)
    client.notify("notifications/initialized")
    client.catalog.add(*[make_tool(f"t{number}") for number in range(100)])
    assert (await client.next())["method"] == CHANGED
    assert await client.quiet()
    await asyncio.to_thread(client.catalog.add, make_tool("from a thread"))
    assert (await client.next())["method"] == CHANGED


async def test_a_client_that_does_not_read_is_notified_later() -> None:
    client = Client()
    await session(client)
    client.notify("notifications/initialized")
    client.congested = True
    for name in ("a", "b", "c"):
        client.catalog.add(make_tool(name))
        assert await client.quiet()
    client.congested = False
    assert (await client.next())["method"] == CHANGED
    # The tries are a fixed time apart, so another one planned for the same change would have come by then.
    client.catalog.add(make_tool("d"))
    assert (await client.next())["method"] == CHANGED
    assert await client.quiet()


async def test_a_stream_is_notified_until_the_end() -> None:
    client = Client()
    acknowledged = await listening(client, {"toolsListChanged": True, "promptsListChanged": True})
    assert acknowledged == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "notifications": {"promptsListChanged": True, "toolsListChanged": True},
            "_meta": {ID: "s1"},
        },
    }
    client.catalog.add(make_tool("a"))
    assert await client.next() == {"jsonrpc": "2.0", "method": CHANGED, "params": {"_meta": {ID: "s1"}}}
    await client.connection.drain(0)
    ended = await client.next()
    assert (ended["id"], ended["result"]["_meta"][ID]) == ("s1", "s1")
    assert client.catalog.listeners == []


async def test_a_stream_is_notified_of_the_resources_that_it_names() -> None:
    client = Client()
    wanted = {"resourceSubscriptions": ["b://2", "a://1"]}
    assert (await listening(client, wanted))["params"]["notifications"] == wanted
    client.catalog.add(make_tool("a"))
    updated = [await client.next(), await client.next()]
    assert [one["method"] for one in updated] == ["notifications/resources/updated"] * 2
    assert [one["params"] for one in updated] == [
        {"uri": uri, "_meta": {ID: "s1"}} for uri in ("a://1", "b://2")
    ]


async def test_a_cancelled_stream_is_not_notified() -> None:
    client = Client()
    await listening(client)
    client.notify("notifications/cancelled", {"requestId": "s1"})
    client.catalog.add(make_tool("a"))
    assert await client.quiet()


async def test_a_stream_gets_only_what_it_asked_for() -> None:
    client = Client()
    assert (await listening(client, {}))["params"]["notifications"] == {}
    client.catalog.add(make_tool("a"))
    assert await client.quiet()


async def test_a_listen_without_a_filter_is_refused() -> None:
    filters: list[Any] = [1, [], "toolsListChanged"]
    for wanted in (*filters, {"resourceSubscriptions": ["a" * 70_000]}):
        assert (await listening(Client(), wanted))["error"]["code"] == -32602


async def test_streams_have_an_end_and_ids_of_their_own() -> None:
    client = Client()
    await listening(client)
    assert (await listening(client))["error"]["code"] == -32600  # the same id again
    for number in range(63):
        await listening(client, request_id=number)
    assert (await listening(client, request_id="more"))["error"]["code"] == -32000


async def test_a_session_follows_resources_of_bounded_length() -> None:
    client = Client()
    client.catalog.add(make_tool("report", mcp=McpForms(resource="report://{of}")))
    await session(client)
    for length, is_taken in ((40_000, True), (20_000, True), (10_000, False), (1_000, True)):
        answer = await client.ask("resources/subscribe", {"uri": f"report://{'a' * length}"})
        assert ("result" in answer) is is_taken, length


async def test_a_session_has_no_listen() -> None:
    client = Client()
    await session(client)
    assert (await client.ask("subscriptions/listen", {"notifications": {}}))["error"]["code"] == -32601


async def test_the_lists_are_read_once_for_all_sessions() -> None:
    catalog, lines = MemoryCatalog(make_tool("a")), list[bytes]()
    shared = Listings(catalog, 500)
    for _ in range(5):
        connection = Connection(catalog, lines.append, listings=shared)
        begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        connection.receive(to_json({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}))
        connection.receive(notification("notifications/initialized"))
    assert catalog.listings == 1
    lines.clear()
    catalog.add(make_tool("b"))
    await asyncio.sleep(0)
    assert lines == [notification(CHANGED)] * 5
    assert catalog.listings == 2


def test_short_messages_that_nobody_reads_take_little_memory() -> None:
    stream = EventStream("0")
    tracemalloc.start()
    try:
        for _ in range(1_000):
            stream.send(notification(CHANGED))
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
