"""The stream of all changes and the counts of what waits, against a server in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.crib import Crib
from tests.e2e.rest.test_rest_calls import blocks, client
from tests.http_server import HttpServerProcess, http_server

TOPICS = ["catalogue", "approvals", "runs", "calls", "audit"]
AGENT = {"name": "quick", "model": "scripted", "script": [{"text": "done"}]}


@pytest.fixture(scope="module")
def crib(tmp_path_factory: pytest.TempPathFactory) -> Crib:
    crib = Crib(tmp_path_factory.mktemp("events") / "project")
    crib.write("data", "x")
    crib.write(".toolcrib/agents/quick.yml", json.dumps(AGENT))
    fs = {"fs": {"read": ["data"]}}
    crib.tool("look", "file", {"action": "read", "path": "data"}, permissions=fs)
    more: dict[str, Any] = {"approval": {"required": True, "reason": "It looks."}, "permissions": fs}
    crib.tool("ask", "file", {"action": "read", "path": "data"}, **more)
    return crib


@pytest.fixture(scope="module")
def server(crib: Crib) -> Iterator[HttpServerProcess]:
    with http_server(crib.root) as running:
        yield running


class Stream:
    """The stream as one client reads it."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        assert (reply.status, reply.content_type) == (200, "text/event-stream")
        self._blocks, self.last = blocks(reply), ""

    async def batch(self) -> list[str]:
        """The topics up to the next id."""
        found: list[str] = []
        async with asyncio.timeout(100):
            async for block in self._blocks:
                fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
                if fields:
                    assert json.loads(fields["data"]) == {"topic": fields["event"]}
                    found.append(fields["event"])
                if "id" in fields:
                    self.last = fields["id"]
                    return found
        raise AssertionError("the stream has ended")

    async def until(self, topics: Sequence[str]) -> None:
        """Read until each of these topics has come."""
        left = set(topics)
        while left:
            left -= set(await self.batch())


@asynccontextmanager
async def following(session: aiohttp.ClientSession, after: str = "") -> AsyncIterator[Stream]:
    headers: Mapping[str, str] = {"Last-Event-ID": after} if after else {}
    async with session.get("/events", headers=headers) as reply:
        yield Stream(reply)


async def post(session: aiohttp.ClientSession, path: str, body: Any) -> Any:
    async with session.post(path, json=body) as reply:
        return await reply.json()


async def test_each_change_is_an_event_of_its_topic_and_nothing_is_missed_in_between(
    crib: Crib, server: HttpServerProcess
) -> None:
    async with client(server) as session:
        async with following(session) as stream:
            assert await stream.batch() == TOPICS
            await post(session, "/tools/invoke/look", {"args": {}})
            await stream.until(["calls", "audit"])
            await post(session, "/tools/invoke/ask", {"args": {}})
            await stream.until(["approvals", "calls"])
            await post(session, "/runs", {"agent": "quick", "prompt": "go"})
            await stream.until(["runs"])
            crib.tool("new", "file", {"action": "read", "path": "data"})
            await stream.until(["catalogue"])
        async with following(session, stream.last) as again:
            await post(session, "/tools/invoke/look", {"args": {}})
            await again.until(["audit"])
            last = again.last
        crib.tool("newer", "file", {"action": "read", "path": "data"})
        async with following(session, last) as resumed:
            await resumed.until(["catalogue"])
        async with following(session, "no-such-id") as fresh:
            assert await fresh.batch() == TOPICS


async def test_a_token_gets_the_topics_that_it_may_read(server: HttpServerProcess) -> None:
    async with (
        client(server, server.create_token("reads", "read")) as session,
        session.get("/events") as reply,
    ):
        assert await Stream(reply).batch() == ["catalogue", "runs", "calls"]


def test_counts_are_those_of_what_the_client_may_see(server: HttpServerProcess) -> None:
    token = server.create_token("counts", "read", "invoke")
    mine = server.send("GET", "/counts", token=token).json
    assert mine["approvals"] is None
    assert set(mine["runs"].values()) == set(mine["calls"].values()) == {0}
    before = server.send("GET", "/counts").json
    reply = server.send("POST", "/tools/invoke/ask", {"args": {}}, {"Prefer": "respond-async"}, token=token)
    assert reply.status == 202
    server.send("POST", "/tools/calls", {"calls": [{"tool": "look", "delayS": 600}] * 3}, token=token)
    assert server.send("GET", "/counts", token=token).json["calls"]["ready"] >= 3
    after = server.send("GET", "/counts").json
    assert after["calls"]["ready"] - before["calls"]["ready"] >= 3
    assert sum(after["runs"].values()) >= 1
