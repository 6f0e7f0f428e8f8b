"""One client's connection: both protocols, what is refused, calls side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.unit.serve.doubles import Answer, MemoryCatalog, make_tool
from toolcrib.errors import ToolFailed
from toolcrib.serve.mcp import Connection, Sender, ServerSettings
from toolcrib.spec import Call, Caller, CallEvent, Result

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a client\n", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Message = dict[str, Any]
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}


class Client:
    """A client of a connection in memory."""

    def __init__(self, answer: Answer | None = None, **settings: Any) -> None:
        self.catalog = MemoryCatalog(make_tool("add"), make_tool("my.tool"), answer=answer)
        self.lines: asyncio.Queue[Any] = asyncio.Queue()
        self.congested = False
        self.sender = Sender()
        self.connection = Connection(
            self.catalog,
            lambda line: self.lines.put_nowait(orjson.loads(line)),
            ServerSettings(name="crib", version="9", **settings),
            congested=lambda: self.congested,
        )
        self._id = 0

    def send(self, message: Any) -> None:
        line = message if isinstance(message, bytes) else orjson.dumps(message)
        self.connection.receive(line, self.sender)

    def post(self, method: str, params: Message | None = None, request_id: Any = None) -> Any:
        self._id += 1
        request_id = self._id if request_id is None else request_id
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})
        return request_id

    def modern(self, method: str, params: Message | None = None, **meta: Any) -> Any:
        return self.post(method, {**(params or {}), "_meta": ENVELOPE | meta})

    def modern_as(self, request_id: Any, method: str, params: Message) -> None:
        self.post(method, {**params, "_meta": ENVELOPE}, request_id)

    def notify(self, method: str, params: Message | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def next(self) -> Message:
        message: Message = await asyncio.wait_for(self.lines.get(), 100)
        return message

    async def ask(self, method: str, params: Message | None = None) -> Message:
        self.post(method, params)
        return await self.next()

    async def quiet(self) -> bool:
        for _ in range(10):
            await asyncio.sleep(0)
        return self.lines.empty()


async def session(client: Client, version: str = "2025-11-25") -> Message:
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "lap/top", "version": "1"},
    }
    answer = await client.ask("initialize", params)
    client.notify("notifications/initialized")
    return answer


def error_of(message: Message) -> int:
    code: int = message["error"]["code"]
    return code


class Barrier:
    """Blocks calls until it is opened, and counts those inside."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0
        self.cancelled = 0

    async def __call__(self, call: Call) -> Result:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1
        return Result("ok", call.arguments)


# --- sessions


async def test_a_session_has_the_version_asked_for_or_the_newest() -> None:
    versions = {v: v for v in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")}
    for wanted, given in {**versions, "2026-07-28": "2025-11-25", "1999-01-01": "2025-11-25"}.items():
        assert (await session(Client(), wanted))["result"] == {
            "protocolVersion": given,
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "crib", "version": "9"},
        }


async def test_instructions_are_passed_on() -> None:
    client = Client(instructions="Be careful.")
    assert (await session(client))["result"]["instructions"] == "Be careful."
    client.modern("server/discover")
    assert (await client.next())["result"]["instructions"] == "Be careful."


async def test_a_session_lists_and_calls() -> None:
    client = Client()
    await session(client)
    listed = (await client.ask("tools/list"))["result"]
    assert [tool["name"] for tool in listed["tools"]] == ["add", "my_tool"]
    assert set(listed) == {"tools"}
    called = (await client.ask("tools/call", {"name": "my_tool", "arguments": {"a": 1}}))["result"]
    assert called["structuredContent"] == {"a": 1}
    assert "resultType" not in called
    assert [(call.tool, call.caller) for call in client.catalog.calls] == [("my.tool", "mcp:lap-top")]


async def test_only_ping_is_allowed_before_initialize() -> None:
    client = Client()
    for method in ("tools/list", "tools/call"):
        assert error_of(await client.ask(method, {"name": "add"})) == -32600
    assert (await client.ask("ping"))["result"] == {}
    assert client.catalog.calls == []


async def test_a_session_begins_once() -> None:
    client = Client()
    await session(client)
    assert error_of(await session(client)) == -32600


async def test_initialize_needs_a_version() -> None:
    assert error_of(await Client().ask("initialize", {"protocolVersion": 3})) == -32602


async def test_an_unsupported_method_is_not_found() -> None:
    client = Client()
    await session(client)
    for method in ("resources/nothing", "nonsense", ""):
        assert error_of(await client.ask(method)) == -32601


# --- the stateless protocol


async def test_discover_names_the_version_and_the_server() -> None:
    client = Client()
    client.modern("server/discover")
    result = (await client.next())["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["resultType"] == "complete"
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "crib", "version": "9"}}


async def test_a_request_with_the_envelope_needs_no_session() -> None:
    client = Client()
    client.modern("tools/list")
    listed = (await client.next())["result"]
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 0, "private")
    client.modern("tools/call", {"name": "add", "arguments": {"a": 1}})
    called = (await client.next())["result"]
    assert called["resultType"] == "complete"
    assert called["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "crib"
    assert client.catalog.calls[0].caller == "mcp:a-client"


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"io.modelcontextprotocol/protocolVersion": "2031-01-01"}, -32022),
        ({"io.modelcontextprotocol/protocolVersion": 3}, -32602),
        ({"io.modelcontextprotocol/clientCapabilities": None}, -32602),
    ],
)
async def test_a_bad_envelope_is_refused(meta: Message, code: int) -> None:
    client = Client()
    client.modern("tools/list", None, **meta)
    answer = await client.next()
    assert error_of(answer) == code
    if code == -32022:
        assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}


async def test_discover_without_an_envelope_says_what_is_missing() -> None:
    answer = await Client().ask("server/discover")
    assert error_of(answer) == -32602
    assert "io.modelcontextprotocol/protocolVersion" in answer["error"]["message"]


async def test_the_stateless_protocol_has_no_ping() -> None:
    client = Client()
    client.modern("ping")
    assert error_of(await client.next()) == -32601


# --- bad messages


@pytest.mark.parametrize(
    ("message", "code", "request_id"),
    [
        (b"not json", -32700, None),
        (b"[1,", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b"3", -32600, None),
        (b'{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}', -32600, 6),
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, -32600, 5),
        ({"jsonrpc": "2.0", "id": 5}, -32600, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": 3}, -32600, 5),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, -32600, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 5, "method": "ping", "params": [1]}, -32602, 5),
    ],
)
async def test_bad_messages_are_refused_and_the_next_is_served(
    message: Any, code: int, request_id: Any
) -> None:
    client = Client()
    client.send(message)
    answer = await client.next()
    assert error_of(answer) == code
    assert answer["id"] == request_id
    assert (await client.ask("ping"))["result"] == {}


async def test_a_malformed_call_is_refused() -> None:
    client = Client()
    await session(client)
    malformed: list[Message] = [{}, {"name": 3}, {"name": "add", "arguments": [1]}]
    for params in malformed:
        assert error_of(await client.ask("tools/call", params)) == -32602
    assert client.catalog.calls == []


async def test_notifications_and_answers_get_no_answer() -> None:
    client = Client()
    await session(client)
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/whatever"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add"}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
        {"jsonrpc": "2.0", "id": 3, "error": {}},
    ):
        client.send(message)
    assert await client.quiet()
    assert client.catalog.calls == []


async def test_a_bad_cursor_is_refused() -> None:
    client = Client()
    await session(client)
    for cursor in (3, "nonsense"):
        assert error_of(await client.ask("tools/list", {"cursor": cursor})) == -32602


async def test_pages_follow_each_other() -> None:
    client = Client(page_size=1)
    await session(client)
    first = (await client.ask("tools/list"))["result"]
    second = (await client.ask("tools/list", {"cursor": first["nextCursor"]}))["result"]
    assert [tool["name"] for tool in first["tools"] + second["tools"]] == ["add", "my_tool"]
    assert "nextCursor" not in second


async def test_a_catalog_that_cannot_list_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    await session(client)
    client.catalog.list = [object()]  # type: ignore[list-item] # on purpose
    assert error_of(await client.ask("tools/list")) == -32603
    assert "could not be handled" in caplog.text


# --- batches


async def test_a_batch_is_answered_in_one_piece_where_the_version_knows_batches() -> None:
    client = Client()
    await session(client, "2025-03-26")
    ping = {"jsonrpc": "2.0", "method": "ping"}
    client.send([ping | {"id": 1}, ping, 3, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}])
    answers: Any = await client.next()
    assert [answer["id"] for answer in answers] == [1, None, 2]
    client.send([ping])
    for wrong in (b"[]", [ping] * 1_001):
        client.send(wrong)
        assert error_of(await client.next()) == -32600
    assert await client.quiet()


# --- calls


async def test_an_unknown_tool_is_an_error_of_the_protocol_with_the_error_object() -> None:
    client = Client()
    await session(client)
    answer = await client.ask("tools/call", {"name": "ad"})
    assert error_of(answer) == -32602
    assert answer["error"]["message"] == "there is no tool named 'ad'. Did you mean add?"
    assert answer["error"]["data"]["error"]["code"] == "tool_not_found"
    assert len(client.catalog.calls) == 1  # the catalog has seen, and so recorded, the refusal


async def test_a_failing_tool_is_a_result() -> None:
    async def fail(_: Call) -> Result:
        return Result("error", error=ToolFailed("no"))

    client = Client(fail)
    await session(client)
    result = (await client.ask("tools/call", {"name": "add"}))["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["error"]["message"] == "no"


@pytest.mark.parametrize("error", [RuntimeError("secret"), SystemExit(3), GeneratorExit()])
async def test_a_call_path_that_raises_costs_only_that_call(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def crash(_: Call) -> Result:
        raise error

    client = Client(crash)
    await session(client)
    result = (await client.ask("tools/call", {"name": "add"}))["result"]
    assert result["structuredContent"]["error"]["code"] == "internal"
    assert "secret" not in str(result)
    assert type(error).__name__ in caplog.text
    assert (await client.ask("ping"))["result"] == {}


async def test_an_output_that_is_no_json_is_an_error() -> None:
    async def odd(_: Call) -> Result:
        circle: list[Any] = []
        circle.append(circle)
        return Result("ok", circle)

    client = Client(odd)
    await session(client)
    result = (await client.ask("tools/call", {"name": "add"}))["result"]
    assert result["structuredContent"]["error"]["code"] == "invalid_output"


async def test_calls_run_side_by_side_up_to_the_limit_and_the_rest_waits() -> None:
    barrier = Barrier()
    client = Client(barrier, max_running=3)
    await session(client)
    for _ in range(10):
        client.post("tools/call", {"name": "add"})
    assert (await client.ask("ping"))["result"] == {}
    assert barrier.inside == 3
    barrier.open.set()
    assert len({(await client.next())["id"] for _ in range(10)}) == 10
    assert barrier.most == 3


@pytest.mark.parametrize("limit", [{"max_running": 1, "max_waiting": 2}, {"max_bytes": 3_500}])
async def test_too_many_waiting_calls_are_refused_at_once(limit: dict[str, int]) -> None:
    barrier = Barrier()
    client = Client(barrier, **limit)
    await session(client)
    for _ in range(4):
        client.post("tools/call", {"name": "add", "arguments": {"a": "x" * 1_000}})
    refused = await client.next()
    assert error_of(refused) == -32000
    assert refused["error"]["data"]["error"]["retryable"] is True
    barrier.open.set()
    for _ in range(3):
        assert "result" in await client.next()
    await asyncio.sleep(0)  # A call counts until its task has ended, which is after its answer.
    assert "result" in await client.ask("tools/call", {"name": "add", "arguments": {"a": "x" * 9_000}})


async def test_an_id_in_use_is_refused_and_free_again_later() -> None:
    barrier = Barrier()
    client = Client(barrier)
    await session(client)
    client.post("tools/call", {"name": "add"}, "x")
    client.post("ping", None, "x")
    assert error_of(await client.next()) == -32600
    barrier.open.set()
    assert (await client.next())["result"]["isError"] is False
    client.post("ping", None, "x")
    assert (await client.next()) == {"jsonrpc": "2.0", "id": "x", "result": {}}


async def test_the_ids_1_and_one_are_two() -> None:
    barrier = Barrier()
    client = Client(barrier)
    await session(client)
    client.post("tools/call", {"name": "add"}, 100)
    client.post("tools/call", {"name": "add"}, "100")
    barrier.open.set()
    assert {(await client.next())["id"] for _ in range(2)} == {100, "100"}


async def test_a_cancelled_call_is_cancelled_and_never_answered() -> None:
    barrier = Barrier()
    client = Client(barrier)
    await session(client)
    request_id = client.post("tools/call", {"name": "add"})
    await client.quiet()
    assert barrier.inside == 1
    client.notify("notifications/cancelled", {"requestId": request_id})
    assert await client.quiet()
    assert (barrier.inside, barrier.cancelled) == (0, 1)
    assert (await client.ask("ping"))["result"] == {}


async def test_a_call_cancelled_before_it_began_never_runs_and_gives_its_place_back() -> None:
    barrier = Barrier()
    client = Client(barrier, max_running=1)
    await session(client)
    first = client.post("tools/call", {"name": "add"})
    client.notify("notifications/cancelled", {"requestId": first})
    assert await client.quiet()
    running = client.post("tools/call", {"name": "add"})
    waiting = client.post("tools/call", {"name": "add"})
    await client.quiet()
    client.notify("notifications/cancelled", {"requestId": waiting})
    barrier.open.set()
    assert (await client.next())["id"] == running
    assert await client.quiet()


async def test_a_tool_that_swallows_its_cancellation_is_not_answered_either() -> None:
    async def stubborn(_: Call) -> Result:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return Result("ok", "too late")

    client = Client(stubborn)
    await session(client)
    request_id = client.post("tools/call", {"name": "add"})
    await client.quiet()
    client.notify("notifications/cancelled", {"requestId": request_id})
    assert await client.quiet()


async def test_progress_rises_and_ends_with_the_call() -> None:
    listeners: list[Callable[[CallEvent], None]] = []

    def report(done: float, total: float | None, message: str) -> None:
        listeners[0](CallEvent("progress", "c", "add", "mcp", done=done, total=total, message=message))

    async def work(call: Call) -> Result:
        assert call.on_event is not None
        listeners.append(call.on_event)
        listeners[0](CallEvent("chunk", "c", "add", "mcp", text="a line\nits end\n"))
        report(1, 4, "one")
        report(1, 4, "not risen")
        report(float("nan"), None, "")
        report(2, None, "")
        client.congested = True
        report(3, None, "nobody reads")
        return Result("ok", "done")

    client = Client(work)
    await session(client)
    client.post("tools/call", {"name": "add", "_meta": {"progressToken": "t"}})
    part, first, second, last = [await client.next() for _ in range(4)]
    assert part["params"] == {"progressToken": "t", "progress": 0.000_001, "message": "its end"}
    assert (first["jsonrpc"], first["method"]) == ("2.0", "notifications/progress")
    assert first["params"] == {"progressToken": "t", "progress": 1, "total": 4, "message": "one"}
    assert second["params"] == {"progressToken": "t", "progress": 2}
    assert "result" in last
    client.congested = False
    report(9, None, "too late")
    assert await client.quiet()


async def test_without_a_token_there_is_no_progress() -> None:
    client = Client()
    await session(client)
    for meta in ({}, {"progressToken": None}, {"progressToken": True}, 3):
        await client.ask("tools/call", {"name": "add", "_meta": meta})
    assert [call.on_event for call in client.catalog.calls] == [None] * 4


async def test_drain_lets_calls_end() -> None:
    barrier = Barrier()
    client = Client(barrier, max_running=1)
    await session(client)
    for _ in range(3):
        client.post("tools/call", {"name": "add"})
    barrier.open.set()
    await client.connection.drain(2)
    assert [(await client.next())["result"]["isError"] for _ in range(3)] == [False] * 3


@pytest.mark.parametrize("grace", [0, 0.01])
async def test_drain_cancels_what_does_not_end_and_says_so(grace: float) -> None:
    barrier = Barrier()
    client = Client(barrier, max_running=1)
    await session(client)
    for _ in range(2):
        client.post("tools/call", {"name": "add"})
    await client.connection.drain(grace)
    for _ in range(2):
        result = (await client.next())["result"]
        assert result["structuredContent"]["error"]["code"] == "cancelled"
        assert result["content"][0]["text"] == "Cancelled: the server is shutting down"
    assert barrier.inside == 0


async def test_a_fixed_caller_wins() -> None:
    client = Client()
    client.sender = Sender("mcp:demo")
    await session(client)
    await client.ask("tools/call", {"name": "add"})
    assert client.catalog.calls[0].caller == "mcp:demo"


async def test_a_client_without_a_usable_name_is_just_mcp() -> None:
    client = Client()
    for info in (None, {}, {"name": 3}, {"name": "\n\x00"}, {"name": ""}):
        client.modern("tools/call", {"name": "add"}, **{"io.modelcontextprotocol/clientInfo": info})
        await client.next()
    assert {call.caller for call in client.catalog.calls} == {"mcp"}


async def test_each_caller_gets_the_list_that_it_may_see() -> None:
    client = Client()
    client.catalog.list[0] = replace(client.catalog.list[0], tags=("mcp:stranger",))
    for name, seen in (
        ("friend", ["add", "my_tool"]),
        ("stranger", ["my_tool"]),
        ("friend", ["add", "my_tool"]),
    ):
        client.modern("tools/list", {}, **{"io.modelcontextprotocol/clientInfo": {"name": name}})
        listed = (await client.next())["result"]["tools"]
        assert [tool["name"] for tool in listed] == seen
    assert client.catalog.listings == 2


async def test_names_without_end_keep_no_lists_without_end() -> None:
    client = Client()
    for number in range(20):
        client.modern("tools/list", {}, **{"io.modelcontextprotocol/clientInfo": {"name": f"c{number}"}})
        await client.next()
    assert client.catalog.listings == 20
    client.modern("tools/list", {}, **{"io.modelcontextprotocol/clientInfo": {"name": "c19"}})
    await client.next()
    client.modern("tools/list", {}, **{"io.modelcontextprotocol/clientInfo": {"name": "c0"}})
    await client.next()
    assert client.catalog.listings == 21


async def test_the_identity_of_each_request_goes_with_its_call() -> None:
    identity = Caller("ci", frozenset({"invoke"}))
    client = Client()
    await session(client)
    for sender in (Sender("token:ci", identity), Sender()):
        client.sender = sender
        await client.ask("tools/call", {"name": "add"})
    assert [call.identity for call in client.catalog.calls] == [identity, None]
    assert client.catalog.calls[0].caller == "token:ci"
    made = client.catalog.calls[0].identity
    assert made is not None
    assert made.client == "mcp:lap-top"
