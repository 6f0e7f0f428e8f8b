"""Calls over HTTP that outlive the server."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.rest.test_rest_calls import awaiting, client, decide, events_of, make_crib, serving, until
from tests.e2e.rest.test_rest_invoke import READS
from toolcrib.spec.identifier import made_at, new_id
from toolcrib.spec.moment import written


async def test_a_call_answered_with_202_survives_the_server(tmp_path: Path) -> None:
    crib, mark = make_crib(tmp_path), tmp_path / "mark"
    body, prefer = {"args": {"mark": str(mark)}}, {"Prefer": "respond-async"}
    with serving(crib) as server:
        async with client(server) as session:
            lost = await accepted(session, "hold", body, prefer)
            await until(mark.with_name("mark.begun"))
            async with session.get("/workers") as reply:
                (worker,) = (await reply.json())["workers"]
            assert (worker["kind"], {"ask", "hold"} <= set(worker["tools"])) == ("embedded", True)
            async with session.get("/queue") as reply:
                assert await reply.json() == {"ready": 0, "running": 1, "waiting": 0, "tools": []}
            first = await accepted(session, "ask", {"args": {"note": "1"}}, prefer)
            second = await accepted(session, "ask", {"args": {"note": "2"}}, {})
            await until_status(session, second, "awaiting_approval")
            crib.write("notes.txt", "noted")
            bundle = f"/tools/bundles/{new_id()}"
            tool = {"type": "native", "impl": {"manifest": READS}}
            for path, put in ((bundle, {"slug": "shop"}), (f"{bundle}/tools/read-notes/version/v1", tool)):
                async with session.put(path, json=put) as reply:
                    assert reply.status == 201, await reply.text()
            third = await accepted(session, "shop_read-notes__v1", {"args": {}}, {})
            server.process.kill()
            server.process.wait()
    with serving(crib) as server:
        async with client(server) as session:
            found = await until_status(session, lost, "error")
            assert "unknown" in found["result"]["error"]["message"]
            for call in (first, second, third):
                waits = await until_status(session, call, "awaiting_approval")
                await decide(crib, "approve", waits["approvalId"])
                assert (await until_status(session, call, "ok"))["result"]["ok"]
            async with session.get("/tools/calls?pageSize=3") as reply:
                page = await reply.json()
            assert [one["id"] for one in page["calls"]] == [third, second, first]
            async with session.get(f"/tools/calls?pageToken={page['nextPageToken']}") as reply:
                assert [one["id"] for one in (await reply.json())["calls"]] == [lost]


@pytest.mark.parametrize("ends", [False, True], ids=["runs", "ends"])
async def test_other_calls_go_on_while_one_waits_for_the_store(tmp_path: Path, ends: bool) -> None:
    crib, mark = make_crib(tmp_path), tmp_path / "mark"
    with serving(crib) as server:
        async with client(server) as session:
            sums, body = {"args": {"a": 1, "b": 2}}, {"args": {"mark": str(mark)}}
            async with session.post(
                "/tools/invoke/add", json=sums, headers={"Prefer": "respond-async"}
            ) as reply:
                if reply.status == 202:
                    await until_status(session, (await reply.json())["callId"], "ok")
            # The store is open now.
            prefer = {"Prefer": "wait=1"}
            kept = asyncio.create_task(accepted(session, "hold", body, prefer))
            await until(mark.with_name("mark.begun"))
            (database,) = crib.root.rglob("state.db")
            with closing(sqlite3.connect(database, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                # If these were answered only after the server has given up, the other would not be stored.
                enough = time.monotonic() + 1.5
                while time.monotonic() < enough:
                    await asyncio.sleep(0.1)
                    async with session.post("/tools/invoke/add", json=sums) as reply:
                        assert reply.status == 200
                if ends:
                    mark.touch()
                    await until(mark.with_name("mark.runs"))
                other.execute("ROLLBACK")
            await kept
            if not ends:
                async with session.get("/queue") as reply:
                    assert (await reply.json())["running"] == 1
                async with session.get(f"/tools/calls/{kept.result()}") as reply:
                    call = await reply.json()
                made, (attempt,) = made_at(call["id"]), call["history"]["attempts"]
                assert made is not None
                assert call["beganAt"] == attempt["beganAt"] == written(made), "not when it was stored"
                mark.touch()
            await until_status(session, kept.result(), "ok")


async def test_a_stream_goes_on_at_the_next_server(tmp_path: Path) -> None:
    crib, mark = make_crib(tmp_path), tmp_path / "mark"
    prefer = {"Prefer": "respond-async"}
    with serving(crib) as server:
        async with client(server) as session:
            lost = await accepted(session, "hold", {"args": {"mark": str(mark)}}, prefer)
            asks = await accepted(session, "ask", {"args": {"note": "1"}}, prefer)
            seen = {
                call: await number_of(session, call, kind)
                for call, kind in ((lost, "chunk"), (asks, "approval"))
            }
            server.process.kill()
            server.process.wait()
    with serving(crib) as server:
        async with client(server) as session:
            await until_status(session, lost, "error")
            async with session.get(f"/tools/calls/{lost}/events", headers=after(seen[lost])) as reply:
                assert [kind async for _, kind, _ in events_of(reply)] == ["result"]
            waits = await until_status(session, asks, "awaiting_approval")
            async with session.get(f"/tools/calls/{asks}/events", headers=after(seen[asks])) as reply:
                await decide(crib, "approve", waits["approvalId"])
                found = [event async for event in events_of(reply)]
            assert [kind for _, kind, _ in found] == ["started", "result"]
            assert "missed" not in found[0][2]
            async with session.get(f"/tools/calls/{asks}/events", headers=after(found[0][0])) as reply:
                assert [kind async for _, kind, _ in events_of(reply)] == ["result"]
            async with session.get(f"/tools/calls/{asks}/events", headers=after(found[1][0])) as reply:
                assert reply.status == 204


async def test_each_request_has_an_answer_when_the_server_stops(tmp_path: Path) -> None:
    crib, mark = make_crib(tmp_path), tmp_path / "mark"
    with serving(crib) as server:
        async with client(server) as session:

            async def call(tool: str, args: dict[str, Any], **headers: str) -> tuple[int, Any]:
                path = f"/tools/invoke/{tool}"
                async with session.post(path, json={"args": args}, headers=headers) as reply:
                    return reply.status, await reply.json()

            holds = asyncio.create_task(call("hold", {"mark": str(mark)}))
            asks = asyncio.create_task(call("ask", {"note": "stop"}, Prefer="wait=600"))
            await until(mark.with_name("mark.begun"))
            await awaiting(session)
            server.process.terminate()
            status, pending = await asks
            assert (status, pending["status"]) == (202, "awaiting_approval")
            status, result = await holds
            assert (status, result["error"]["code"]) == (200, "cancelled")
            await asyncio.to_thread(server.process.wait, 100)
    with serving(crib) as server:
        found = server.send("GET", f"/tools/calls/{pending['callId']}").json
        assert found["status"] == "awaiting_approval"


async def test_the_log_never_ends_a_call_that_goes_on(tmp_path: Path) -> None:
    crib, mark = make_crib(tmp_path), tmp_path / "mark"

    def logged(call: str) -> list[tuple[str, str]]:
        found = [(line.event, line.fields) for line in crib.audit()]
        return [(event, fields["status"]) for event, fields in found if fields.get("call") == call]

    with serving(crib) as server:
        async with client(server) as session:
            waits = [
                await accepted(session, "ask", {"args": {"note": prefer}}, {"Prefer": prefer})
                for prefer in ("wait=1", "wait=0", "handling=strict")
            ]
            runs = await accepted(session, "hold", {"args": {"mark": str(mark)}}, {"Prefer": "wait=1"})
            for call in waits:
                shown = await until_status(session, call, "awaiting_approval")
                assert logged(call) == [("TOOL_WAITS", "pending")]
                await decide(crib, "approve", shown["approvalId"])
                assert (await until_status(session, call, "ok"))["result"]["ok"]
                assert logged(call) == [("TOOL_WAITS", "pending"), ("TOOL_EXECUTED", "success")]
            server.process.terminate()
            await asyncio.to_thread(server.process.wait, 100)
    assert logged(runs) == [("TOOL_EXECUTED", "interrupted")]


async def number_of(session: aiohttp.ClientSession, call: str, kind: str) -> str:
    """Follow a call up to an event of this kind, and return its number."""
    async with session.get(f"/tools/calls/{call}/events") as reply:
        return await anext(number async for number, found, _ in events_of(reply) if found == kind)


def after(number: str) -> dict[str, str]:
    return {"Last-Event-ID": number}


async def accepted(session: aiohttp.ClientSession, tool: str, body: Any, headers: dict[str, str]) -> str:
    """Make a call that is answered with 202, and return its id."""
    async with session.post(f"/tools/invoke/{tool}", json=body, headers=headers) as reply:
        assert reply.status == 202, await reply.text()
        return str((await reply.json())["callId"])


async def until_status(session: aiohttp.ClientSession, call: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(100):
        while True:
            async with session.get(f"/tools/calls/{call}") as reply:
                found: dict[str, Any] = await reply.json()
            if found["status"] == status:
                return found
            await asyncio.sleep(0.05)
