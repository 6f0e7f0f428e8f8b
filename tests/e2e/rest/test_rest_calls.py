"""Calls over REST, at real server processes: results, refusals, events, approvals, cancelling, retries."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.commands import complete
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from toolcrib.guard import Tokens
from toolcrib.state import Vault

SERVER = ("-m", "tests.e2e.rest.rest_server")
Event = tuple[str, str, dict[str, Any]]
"""Id, kind and data."""


@contextmanager
def serving(crib: Crib) -> Iterator[HttpServerProcess]:
    with http_server(crib.root, program=SERVER) as server:
        yield server


@pytest.fixture(scope="module")
def crib(tmp_path_factory: pytest.TempPathFactory) -> Crib:
    return make_crib(tmp_path_factory.mktemp("calls"))


def make_crib(folder: Path) -> Crib:
    crib = Crib(folder / "project")
    crib.write("data", "x")
    look: dict[str, Any] = {"action": "read", "path": "data"}
    fs = {"fs": {"read": ["data"]}}
    note = {"note": {"type": "string", "description": "Any."}}
    crib.tool("ask", "file", look, note, permissions=fs, approval={"required": True, "reason": "it is dear"})
    crib.tool("rare", "file", look, permissions=fs, limits={"calls_per_minute": 1})
    return crib


@pytest.fixture(scope="module")
def server(crib: Crib) -> Iterator[HttpServerProcess]:
    with serving(crib) as running:
        yield running


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@asynccontextmanager
async def client(server: HttpServerProcess, token: str = "") -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {token or server.token}"}
    async with aiohttp.ClientSession(server.address, headers=headers) as session:
        yield session


def exists(path: Path) -> bool:
    return path.exists()


def let_go(mark: Path) -> None:
    """Let the calls of `hold` end that wait for this file."""
    mark.touch()


async def until(path: Path) -> None:
    async with asyncio.timeout(100):
        while not exists(path):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)


async def ended(session: aiohttp.ClientSession, call: str) -> dict[str, Any]:
    """The call, once it has ended."""
    async with asyncio.timeout(100):
        while True:
            async with session.get(f"/tools/calls/{call}") as reply:
                found: dict[str, Any] = await reply.json()
            if found["endedAt"] is not None:
                return found
            await asyncio.sleep(0.01)


async def events_of(reply: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    assert reply.status == 200
    assert reply.content_type == "text/event-stream"
    async for block in blocks(reply):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])


async def blocks(reply: aiohttp.ClientResponse) -> AsyncIterator[str]:
    text = b""
    async for part in reply.content.iter_any():
        *whole, text = (text + part).split(b"\n\n")
        for block in whole:
            yield block.decode()


# -- results and refusals ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "dotted_name"])
def test_a_call_by_name_returns_the_value(server: HttpServerProcess, name: str) -> None:
    reply = server.send("POST", f"/tools/invoke/{name}", {"args": {"a": 1, "b": 2}})
    assert (reply.status, reply.json) == (200, {"ok": True, "value": 3})
    assert reply.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("name", "code"), [("fail", "tool_failed"), ("discard", "invalid_input")])
def test_a_tool_that_ran_and_failed_is_no_error_of_the_request(
    server: HttpServerProcess, name: str, code: str
) -> None:
    reply = server.send("POST", f"/tools/invoke/{name}", {})
    assert (reply.status, reply.json["ok"], reply.json["error"]["code"]) == (200, False, code)


@pytest.mark.parametrize(
    ("name", "args", "accept", "status", "code"),
    [
        ("add", {"a": "x", "c": 1}, "*/*", 400, "invalid_input"),
        ("add", {"a": "x", "c": 1}, "text/event-stream", 400, "invalid_input"),
        ("nothing", {}, "*/*", 404, "tool_not_found"),
        ("nothing", {}, "text/event-stream", 404, "tool_not_found"),
        ("reach", {}, "*/*", 403, "host_not_allowed"),
    ],
)
def test_a_refused_call_is_an_error_of_the_request(
    server: HttpServerProcess, name: str, args: dict[str, Any], accept: str, status: int, code: str
) -> None:
    reply = server.send("POST", f"/tools/invoke/{name}", {"args": args}, {"Accept": accept})
    assert (reply.status, reply.code) == (status, code)
    if code == "invalid_input":
        assert {one["path"] for one in reply.json["error"]["violations"]} == {"$.a", "$.b", "$.c"}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"args": []}', b'{"args": {}, "more": 1}', b'{"args": {}, "args": {}}']
)
def test_a_body_of_another_form_is_refused(server: HttpServerProcess, body: bytes) -> None:
    reply = server.send("POST", "/tools/invoke/add", body, {"Content-Type": "application/json"})
    assert (reply.status, reply.code) == (400, "invalid_input")


def test_a_call_too_many_says_when_to_come_again(server: HttpServerProcess) -> None:
    first, second = (server.send("POST", "/tools/invoke/rare", {}) for _ in range(2))
    assert first.json["value"] == "x"
    assert (second.status, second.code) == (429, "rate_limited")
    assert 1 <= int(second.headers["Retry-After"]) <= 60


def test_a_token_calls_its_own_tools_alone(server: HttpServerProcess) -> None:
    reader = server.create_token("reads", "read")
    narrow = server.create_token("narrow", "invoke", tools=["count*"])
    assert server.send("POST", "/tools/invoke/add", {"args": {"a": 1, "b": 2}}, token=reader).status == 403
    refused = server.send("POST", "/tools/invoke/add", {"args": {"a": 1, "b": 2}}, token=narrow)
    assert (refused.status, refused.code) == (401, "invalid_token")
    assert server.send("POST", "/tools/invoke/count_up", {"args": {"to": 1}}, token=narrow).json["ok"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("add", b'{"args":{"a":1,"b":2}}'),
        ("add", b' {\n"args" : {"a": 1, "b": 2} } \n'),
        ("add", b'{"args":{"a":1,"a":1,"b":2}}'),
        ("add", b'{"args":{"a":1,"b":99999999999999999999}}'),
        ("add", b'{"args":{"a":"x"}}'),
        ("add", b'{"args":[]}'),
        ("add", b'{"args":{"a":1,"b":2},"args":{"a":1,"b":3}}'),
        ("add", b'{"args":{"a":1,"b":2},"\\u0061rgs":{"a":1,"b":3}}'),
        ("add", b'{"args":{"a":1,"b":2}} {}'),
        ("add", b'{"args":{"a":1,"b":2}'),
        ("add", b'{"args":{},"\xff":1}'),
        ("add", b'{"args":{"a":' + b"[" * 9000 + b"]" * 9000 + b"}}"),
        ("add", b""),
        ("fail", b'{"args":{}}'),
        ("nothing", b'{"args":{}}'),
        ("a%2Fb", b'{"args":{}}'),
        ("", b'{"args":{}}'),
    ],
)
def test_the_short_way_answers_as_the_long_one(server: HttpServerProcess, name: str, body: bytes) -> None:
    """A header that is not usual makes the request go the long way."""
    short, long = (
        server.send("POST", f"/tools/invoke/{name}", body, {"Content-Type": "application/json", **more})
        for more in ({}, {"X-Unusual": "1"})
    )
    assert (short.status, short.body) == (long.status, long.body)
    assert {key.lower() for key in short.headers} == {key.lower() for key in long.headers}


def test_a_token_that_was_revoked_calls_nothing(server: HttpServerProcess) -> None:
    token = server.create_token("brief", "invoke")
    body = {"args": {"a": 1, "b": 2}}
    assert [server.send("POST", "/tools/invoke/add", body, token=token).status for _ in range(2)] == [
        200,
        200,
    ]
    tokens = Tokens(Vault(server.root, server.data))
    tokens.revoke("brief")
    tokens.close()
    reply = server.send("POST", "/tools/invoke/add", body, token=token)
    assert (reply.status, reply.code) == (401, "invalid_token")
    assert reply.headers["WWW-Authenticate"] == 'Bearer realm="toolcrib"'


async def test_many_clients_get_their_own_results(server: HttpServerProcess) -> None:
    async with client(server) as session:

        async def work(number: int) -> None:
            for step in range(50):
                body = {"args": {"a": number, "b": step}}
                async with session.post("/tools/invoke/add", json=body) as reply:
                    assert await reply.json() == {"ok": True, "value": number + step}

        await asyncio.gather(*(work(number) for number in range(16)))


# -- events --------------------------------------------------------------------------------------


async def test_a_call_is_followed_by_server_sent_events(server: HttpServerProcess) -> None:
    headers = {"Accept": "text/event-stream"}
    async with client(server) as session:
        body = {"args": {"to": 2}}
        async with session.post("/tools/invoke/count_up", json=body, headers=headers) as reply:
            found = [event async for event in events_of(reply)]
        assert [(number, kind) for number, kind, _ in found] == [
            ("1", "started"),
            ("2", "progress"),
            ("3", "chunk"),
            ("4", "progress"),
            ("5", "chunk"),
            ("6", "result"),
        ]
        call = found[0][2]["callId"]
        assert found[1][2] == {
            "callId": call, "tool": "count_up", "done": 1.0, "total": 2.0, "message": "counting"
        }  # fmt: skip
        assert [data["text"] for _, kind, data in found if kind == "chunk"] == ["1 ", "2 "]
        assert found[-1][2] == {"ok": True, "value": "counted"}
        again: list[Event] = []
        for after in ("0", "4"):
            resumed = {"Last-Event-ID": after}
            async with session.get(f"/tools/calls/{call}/events", headers=resumed) as reply:
                again = [event async for event in events_of(reply)]
            assert again == found[int(after) :]
        async with session.post("/tools/invoke/name_file", json={}, headers=headers) as reply:
            named = [data async for _, _, data in events_of(reply)]
        assert (named[1]["message"], named[2]["text"]) == ("?.txt", "?.txt")
        async with session.get(f"/tools/calls/{call}/events", headers={"Last-Event-ID": "6"}) as reply:
            assert reply.status == 204
        async with session.get(f"/tools/calls/{call}/events", headers={"Last-Event-ID": "x"}) as reply:
            assert reply.status == 400


async def test_a_failed_call_ends_its_stream_with_the_error(server: HttpServerProcess) -> None:
    async with client(server) as session:
        headers = {"Accept": "text/event-stream"}
        async with session.post("/tools/invoke/fail", json={}, headers=headers) as reply:
            *_, (_, kind, data) = [event async for event in events_of(reply)]
    assert (kind, data["ok"], data["error"]["code"]) == ("result", False, "tool_failed")


async def test_who_comes_late_is_told_of_what_is_missing(server: HttpServerProcess) -> None:
    async with client(server) as session:
        body, prefer = {"args": {"to": 2_000}}, {"Prefer": "respond-async"}
        async with session.post("/tools/invoke/count_up", json=body, headers=prefer) as reply:
            assert reply.status == 202
            call = (await reply.json())["callId"]
        assert (await ended(session, call))["result"] == {"ok": True, "value": "counted"}
        async with session.get(f"/tools/calls/{call}/events") as reply:
            found = [event async for event in events_of(reply)]
    first, *_, last = found
    assert first[2]["missed"] == int(first[0]) - 1 > 0
    assert len(found) == 1_001
    assert (last[0], last[1]) == ("4002", "result")


async def test_a_client_that_leaves_its_stream_does_not_cancel_the_call(
    server: HttpServerProcess, mark: Path
) -> None:
    async with client(server) as session:
        body, headers = {"args": {"mark": str(mark)}}, {"Accept": "text/event-stream"}
        reply = await session.post("/tools/invoke/hold", json=body, headers=headers)
        events = events_of(reply)
        call = (await anext(events))[2]["callId"]
        reply.close()
        await until(mark.with_name("mark.begun"))
        async with session.get(f"/tools/calls/{call}/events") as follower:
            found = events_of(follower)
            assert [(await anext(found))[1] for _ in range(2)] == ["started", "chunk"]
            let_go(mark)
            assert (await anext(found))[2] == {"ok": True, "value": "held"}
    assert not mark.with_name("mark.cancelled").exists()


async def test_a_reader_that_stops_reading_slows_no_call_and_is_told_what_it_missed(
    server: HttpServerProcess,
) -> None:
    body = b'{"args":{"to":3000,"size":1000}}'
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4_096)
    writer.write(
        b"POST /tools/invoke/count_up HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Accept: text/event-stream\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (server.token.encode(), len(body), body)
    )
    head = await reader.readuntil(b'"callId":"')
    call = (await reader.readuntil(b'"'))[:-1].decode()
    assert b" 200 OK" in head
    async with client(server) as session:
        assert (await ended(session, call))["status"] == "ok"
    rest = await reader.read(1)
    while part := await reader.read(1_000_000):
        rest += part
    writer.close()
    assert b'"missed":' in rest
    assert b"event: result\n" in rest
    assert rest.count(b"event: chunk") < 3_000


async def test_followers_that_leave_leave_nothing_behind(server: HttpServerProcess, mark: Path) -> None:
    async with client(server) as session:
        body, prefer = {"args": {"mark": str(mark)}}, {"Prefer": "respond-async"}
        async with session.post("/tools/invoke/hold", json=body, headers=prefer) as reply:
            call = (await reply.json())["callId"]
        await until(mark.with_name("mark.begun"))
        before = descriptors(server)
        for _ in range(2):
            followers = [await session.get(f"/tools/calls/{call}/events") for _ in range(20)]
            for follower in followers:
                assert (await anext(events_of(follower)))[1] == "started"
            assert descriptors(server) >= before + 19
            for follower in followers:
                follower.close()
            async with asyncio.timeout(100):
                while descriptors(server) > before + 1:  # noqa: ASYNC110 - another process closes them
                    await asyncio.sleep(0.01)
        let_go(mark)
        assert (await ended(session, call))["status"] == "ok"


def descriptors(server: HttpServerProcess) -> int:
    """How many files and connections the server has open."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def test_a_stream_ends_when_its_token_is_revoked(server: HttpServerProcess, mark: Path) -> None:
    token = server.create_token("follows", "invoke")
    async with client(server, token) as session:
        body, headers = {"args": {"mark": str(mark)}}, {"Accept": "text/event-stream"}
        async with session.post("/tools/invoke/hold", json=body, headers=headers) as reply:
            events = events_of(reply)
            assert [(await anext(events))[1] for _ in range(2)] == ["started", "chunk"]
            tokens = Tokens(Vault(server.root, server.data))
            tokens.revoke("follows")
            tokens.close()
            let_go(mark)
            assert [event async for event in events] == []


# -- calls that take long ------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", ["respond-async", "wait=0", "respond-async, wait=0"])
async def test_a_long_call_is_answered_with_its_id(
    server: HttpServerProcess, mark: Path, prefer: str
) -> None:
    async with client(server) as session:
        body = {"args": {"mark": str(mark)}}
        async with session.post("/tools/invoke/hold", json=body, headers={"Prefer": prefer}) as reply:
            pending = await reply.json()
            assert (reply.status, pending["status"]) == (202, "running")
            location = reply.headers["Location"]
        assert location == f"/tools/calls/{pending['callId']}"
        async with session.get("/tools/calls?status=running") as reply:
            assert pending["callId"] in [one["id"] for one in (await reply.json())["calls"]]
        let_go(mark)
        call = await ended(session, pending["callId"])
        assert (call["status"], call["result"]) == ("ok", {"ok": True, "value": "held"})
        assert (call["tool"], call["caller"]) == ("hold", f"token:admin-{server.port}")


async def test_a_call_is_cancelled_by_delete(server: HttpServerProcess, mark: Path) -> None:
    async with client(server) as session:
        body, prefer = {"args": {"mark": str(mark)}}, {"Prefer": "respond-async"}
        async with session.post("/tools/invoke/hold", json=body, headers=prefer) as reply:
            call = (await reply.json())["callId"]
        await until(mark.with_name("mark.begun"))
        async with session.get(f"/tools/calls/{call}/events") as follower:
            for _ in range(2):  # the second time it has ended already
                async with session.delete(f"/tools/calls/{call}") as reply:
                    found = await reply.json()
                    assert (reply.status, found["status"]) == (200, "cancelled")
                    assert found["result"]["error"]["code"] == "cancelled"
            assert [event[1] async for event in events_of(follower)] == ["started", "chunk", "result"]
    await until(mark.with_name("mark.cancelled"))


@pytest.mark.parametrize("key", ["", "a-key"])
async def test_a_client_that_leaves_cancels_its_call_unless_it_can_ask_again(
    server: HttpServerProcess, mark: Path, key: str
) -> None:
    body = {"args": {"mark": str(mark)}}
    headers = {"Idempotency-Key": key} if key else {}
    async with client(server) as session:
        leaving = asyncio.ensure_future(session.post("/tools/invoke/hold", json=body, headers=headers))
        await until(mark.with_name("mark.begun"))
        leaving.cancel()
        if not key:
            await until(mark.with_name("mark.cancelled"))
            return
        let_go(mark)
        async with session.post("/tools/invoke/hold", json=body, headers=headers) as reply:
            assert await reply.json() == {"ok": True, "value": "held"}
    assert mark.with_name("mark.runs").read_text() == "x\n"


async def test_a_token_sees_its_own_calls_and_an_administrator_all(
    server: HttpServerProcess, mark: Path
) -> None:
    mine, other = (server.create_token(name, "invoke") for name in ("mine", "other"))
    async with client(server, mine) as session:
        body, prefer = {"args": {"mark": str(mark)}}, {"Prefer": "respond-async"}
        async with session.post("/tools/invoke/hold", json=body, headers=prefer) as reply:
            call = (await reply.json())["callId"]
    for token, status in ((mine, 200), (other, 404), (server.token, 200)):
        assert server.send("GET", f"/tools/calls/{call}", token=token).status == status
        listed = server.send("GET", "/tools/calls?pageSize=256", token=token).json["calls"]
        assert (call in [one["id"] for one in listed]) == (status == 200)
    for method, path in (("DELETE", ""), ("GET", "/events")):
        assert server.send(method, f"/tools/calls/{call}{path}", token=other).status == 404
    let_go(mark)


# -- approvals -----------------------------------------------------------------------------------


async def test_a_call_runs_once_a_person_has_approved_it_in_another_process(
    crib: Crib, server: HttpServerProcess
) -> None:
    async with client(server) as session:
        async with session.post("/tools/invoke/ask", json={"args": {"note": "one"}}) as reply:
            pending = await reply.json()
            assert (reply.status, pending["status"]) == (202, "awaiting_approval")
        path = f"/tools/calls/{pending['callId']}"
        async with session.get(path) as reply:
            call = await reply.json()
        assert (call["status"], call["reason"]) == ("awaiting_approval", "it is dear")
        await decide(crib, "approve", call["approvalId"])
        found = await ended(session, call["id"])
        assert (found["status"], found["result"]) == ("ok", {"ok": True, "value": "x"})
        async with session.get(f"{path}/events") as reply:
            assert [kind async for _, kind, _ in events_of(reply)] == ["started", "approval", "result"]


async def test_a_repetition_of_a_call_that_waits_is_that_call(crib: Crib, server: HttpServerProcess) -> None:
    async with client(server) as session:
        ids = []
        for note, status in (("keyed", 202), ("keyed", 202), ("other", 409)):
            body, headers = {"args": {"note": note}}, {"Idempotency-Key": "ask"}
            async with session.post("/tools/invoke/ask", json=body, headers=headers) as reply:
                assert reply.status == status
                ids.append((await reply.json()).get("callId"))
        assert ids == [ids[0], ids[0], None]
        async with session.get(f"/tools/calls/{ids[0]}") as reply:
            approval = (await reply.json())["approvalId"]
        await decide(crib, "approve", approval)
        assert (await ended(session, ids[0]))["result"] == {"ok": True, "value": "x"}


async def test_a_client_may_wait_for_the_decision(crib: Crib, server: HttpServerProcess) -> None:
    async with client(server) as session:
        for decision, status in (("approve", 200), ("deny", 403)):
            body = {"args": {"note": decision}}
            waiting = asyncio.ensure_future(
                session.post("/tools/invoke/ask", json=body, headers={"Prefer": "wait=30"})
            )
            call = await awaiting(session)
            await decide(crib, decision, call["approvalId"])
            async with await waiting as reply:
                assert reply.status == status


async def awaiting(session: aiohttp.ClientSession) -> dict[str, Any]:
    """The call that waits for a person, once there is one."""
    async with asyncio.timeout(100):
        while True:
            async with session.get("/tools/calls?status=awaiting_approval") as reply:
                calls: list[dict[str, Any]] = (await reply.json())["calls"]
            if calls:
                return calls[0]
            await asyncio.sleep(0.01)


async def decide(crib: Crib, decision: str, approval: str) -> None:
    """What a person does, in another process than the server's."""
    code = (
        "import sys; from pathlib import Path; from toolcrib import Project;"
        "p = Project.open(sys.argv[1], data=Path(sys.argv[1] + '-data'));"
        "getattr(p.approval_service, sys.argv[2])(sys.argv[3], 'ann')"
    )
    await asyncio.to_thread(
        complete, [sys.executable, "-c", code, str(crib.root), decision, approval], check=True
    )


# -- several servers -----------------------------------------------------------------------------


async def test_retries_at_two_servers_run_a_call_once(
    crib: Crib, server: HttpServerProcess, mark: Path
) -> None:
    body = {"args": {"mark": str(mark)}}
    with serving(crib) as second:
        token = server.create_token("retries", "invoke")
        async with client(server, token) as one, client(second, token) as two:
            for key in ("first", "second"):
                headers = {"Idempotency-Key": key}
                posts = [
                    asyncio.ensure_future(session.post("/tools/invoke/hold", json=body, headers=headers))
                    for session in (one, two) * 4
                ]
                await until(mark.with_name("mark.begun"))
                let_go(mark)
                for reply in await asyncio.gather(*posts):
                    assert (reply.status, await reply.json()) == (200, {"ok": True, "value": "held"})
            other = {"args": {"mark": str(mark.with_name("other"))}}
            headers = {"Idempotency-Key": "first"}
            async with two.post("/tools/invoke/hold", json=other, headers=headers) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (409, "idempotency_conflict")
    assert mark.with_name("mark.runs").read_text() == "x\n" * 2


async def test_calls_that_still_run_when_the_server_stops_are_cancelled(mark: Path) -> None:
    crib = make_crib(mark.parent)  # Another server of the same project could take the call.
    with serving(crib) as server:
        async with client(server) as session:
            body, prefer = {"args": {"mark": str(mark)}}, {"Prefer": "respond-async"}
            async with session.post("/tools/invoke/hold", json=body, headers=prefer) as reply:
                call = (await reply.json())["callId"]
            await until(mark.with_name("mark.begun"))
            async with session.get(f"/tools/calls/{call}/events") as follower:
                assert (await anext(events_of(follower)))[1] == "started"
                server.process.terminate()
                await asyncio.to_thread(server.process.wait, 100)
    assert mark.with_name("mark.cancelled").exists()
    assert crib.last().event == "TOOL_EXECUTED"
    assert crib.last().fields["status"] == "interrupted"
