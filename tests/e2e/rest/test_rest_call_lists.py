"""Lists of calls over REST: pages, filters, and what is done to all calls that a filter matches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.rest.test_rest_calls import client, make_crib, serving, until
from tests.http_server import HttpServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    with serving(make_crib(tmp_path_factory.mktemp("lists"))) as running:
        yield running


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def test_calls_are_listed_in_pages(server: HttpServerProcess) -> None:
    token = server.create_token("pages", "invoke")
    calls = [
        server.send(
            "POST",
            "/tools/invoke/count_up",
            {"args": {"to": 1}},
            {"Accept": "text/event-stream"},
            token=token,
        )
        for _ in range(5)
    ]
    assert {call.status for call in calls} == {200}
    found: list[str] = []
    query = "pageSize=2&status=ok"
    page = server.send("GET", f"/tools/calls?{query}", token=token).json
    while True:
        found += [one["id"] for one in page["calls"]]
        if page["nextPageToken"] is None:
            break
        path = f"/tools/calls?{query}&pageToken={page['nextPageToken']}"
        page = server.send("GET", path, token=token).json
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 5
    bad = server.send("GET", "/tools/calls?pageToken=x")
    assert (bad.status, bad.code) == (400, "invalid_input")


def test_an_awaited_call_is_listed_with_its_result(server: HttpServerProcess) -> None:
    token = server.create_token("awaits", "invoke")
    for number in (1, 2):
        server.send("POST", "/tools/invoke/add", {"args": {"a": number, "b": 0}}, token=token)
    server.send("POST", "/tools/invoke/add", {"args": {"a": "x", "b": 0}}, token=token)
    listed = server.send("GET", "/tools/calls?tool=add&caller=token:awaits", token=token).json["calls"]
    assert [one["status"] for one in listed] == ["error", "ok", "ok"]
    assert [one["result"]["value"] for one in listed[1:]] == [2, 1]
    assert listed[0]["result"]["error"]["code"] == "invalid_input"
    since = listed[1]["beganAt"]
    later = server.send("GET", f"/tools/calls?since={since}&status=ok", token=token).json["calls"]
    assert [one["id"] for one in later] == [listed[1]["id"]]
    for none in ("tool=ask", "sessionId=s", "agent=a", "until=2020-01-01T00:00:00Z"):
        assert server.send("GET", f"/tools/calls?{none}", token=token).json["calls"] == []
    refused = server.send("GET", "/tools/calls?caller=cli", token=token)
    assert (refused.status, refused.code) == (403, "denied")


def test_a_list_of_calls_is_stored_whole_and_cancelled_by_a_filter(server: HttpServerProcess) -> None:
    token = server.create_token("lists", "invoke")

    def send(path: str, body: Any) -> Any:
        return server.send("POST", f"/tools/calls{path}", body, token=token)

    call = {"tool": "add", "args": {"a": 1, "b": 2}, "delayS": 3_600}
    bad = send("", {"calls": [call, {"tool": "add", "args": {"a": "x", "b": 2}}]})
    assert (bad.status, bad.code, bad.json["error"]["details"]["index"]) == (400, "invalid_input", 1)
    stored = send("", {"calls": [call] * 20})
    assert (stored.status, len(set(stored.json["callIds"]))) == (200, 20)
    assert send("/cancel", {"tool": "add"}).json == {"count": 20, "done": [], "refused": {}}
    many = send("/cancel", {"tool": "add", "atMost": 19})
    assert (many.status, many.code) == (409, "conflict")
    assert send("/cancel", {"tool": "ask", "atMost": 19}).json["count"] == 0
    assert send("/cancel", {"tool": "add", "atMost": 20}).json["done"] == stored.json["callIds"]
    assert send("/retry", {"status": "cancelled", "atMost": 20}).json["done"] == stored.json["callIds"]


async def test_calls_that_a_client_awaits_are_cancelled_by_a_filter_too(
    server: HttpServerProcess, mark: Path
) -> None:
    async with client(server, server.create_token("awaiting", "invoke")) as session:
        body = {"args": {"mark": str(mark)}}
        held = asyncio.create_task(complete_of(session, body))
        await until(mark.with_name("mark.begun"))
        async with session.post("/tools/calls/cancel", json={"tool": "hold", "atMost": 1}) as reply:
            changed = await reply.json()
        assert (changed["count"], len(changed["done"])) == (1, 1)
        assert (await held)["error"]["code"] == "cancelled"


async def complete_of(session: aiohttp.ClientSession, body: dict[str, Any]) -> Any:
    async with session.post("/tools/invoke/hold", json=body) as reply:
        return await reply.json()
