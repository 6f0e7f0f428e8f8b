"""Golden snapshots of the MCP server, as test_golden.py has them of the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden.crib import GoldenCrib, Session, mcp
from tests.golden.shop import files
from tests.golden.store import golden

# Each test makes many calls one after the other, also on a machine that is busy.
pytestmark = [pytest.mark.usefixtures("kernel"), pytest.mark.timeout(300)]

TOOLSET = [sys.executable, "-m", "tests.e2e.mcp.mcp_stdio_server", "5"]
BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "0"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
BAD = [
    b"garbage",
    b"\xff\xfe",
    b"{}",
    b"[]",
    b"7",
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
]


@pytest.fixture
def crib(tmp_path: Path) -> GoldenCrib:
    return GoldenCrib(tmp_path)


@pytest.fixture
def shop(crib: GoldenCrib) -> GoldenCrib:
    crib.write(files())
    return crib


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def begin(session: Session) -> dict[str, Any]:
    """Begin a session of 2025-11-25."""
    answer = session.case("initialize", BEGIN)
    session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer


def calls(session: Session, *asked: dict[str, Any]) -> list[dict[str, Any]]:
    return [session.case("tools/call", one) for one in asked]


def test_lines_that_are_no_requests(crib: GoldenCrib) -> None:
    with mcp(crib, TOOLSET) as session:
        before = [session.bad(line) for line in BAD]
        begun = begin(session)
        after = [session.bad(line) for line in BAD if b"tools/list" not in line]
        wrong = [
            session.case("tools/lists"),
            session.case("resources/list"),
            session.case("prompts/list"),
            session.case("logging/setLevel", {"level": "info"}),
            session.case("tools/call"),
            session.case("tools/call", {"name": 5}),
            session.case("tools/call", {"name": "add", "arguments": [1]}),
            session.case("tools/call", call("ad", a=1)),
            session.case("tools/list", {"cursor": "nonsense"}),
            session.case("tools/list", {"cursor": 5}),
            session.case("ping"),
            session.case("initialize", BEGIN),
        ]
    golden("mcp_bad", {"before": before, "begun": begun, "after": after, "wrong": wrong})


VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "1999-01-01"]


def test_every_way_to_begin(crib: GoldenCrib) -> None:
    cases: dict[str, Any] = {}
    for version in VERSIONS:
        with mcp(crib, TOOLSET) as session:
            cases[version] = [session.case("initialize", BEGIN | {"protocolVersion": version})]
            session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            cases[version] += calls(session, call("describe_point", x=1, y=2), call("add", a=1, b=2))
            listed = session.ask("tools/list")["result"]["tools"]
            cases[version].append(session.normal(listed[:2]))
            cases[version].append(session.bad(b'[{"jsonrpc":"2.0","id":"batch","method":"ping"}]'))
    with mcp(crib, TOOLSET) as session:
        cases["2026-07-28"] = [
            session.case("server/discover", {"_meta": ENVELOPE}),
            session.case("tools/list", {"_meta": ENVELOPE}),
            *calls(
                session,
                call("add", a=1, b=2) | {"_meta": ENVELOPE},
                call("ad") | {"_meta": ENVELOPE},
                call("steps", number=2) | {"_meta": ENVELOPE | {"progressToken": "p"}},
            ),
            session.case("tools/list", {"_meta": ENVELOPE | {next(iter(ENVELOPE)): "2030-01-01"}}),
            session.case("tools/list", {"_meta": {next(iter(ENVELOPE)): "2026-07-28"}}),
        ]
    golden("mcp_versions", cases)


def test_lists_and_calls_of_a_toolset(crib: GoldenCrib) -> None:
    with mcp(crib, TOOLSET, PAGE="7") as session:
        begin(session)
        pages, cursor = [session.ask("tools/list")], None
        while cursor := pages[-1]["result"].get("nextCursor"):
            pages.append(session.ask("tools/list", {"cursor": cursor}))
        cases = calls(
            session,
            call("add", a=2, b=3),
            call("add", a="two", c=1),
            call("describe_point", x=1, y=2),
            call("count", to=3),
            call("break_promise"),
            call("fail", reason="the disk is full"),
            call("give_up"),
            call("steps", number=2),
            call("steps", number=2) | {"_meta": {"progressToken": 7}},
            call("shout", text="loud"),
        )
        cut = session.ask("tools/call", call("big", size=60_000))["result"]
        cut["content"][0]["text"] = f"{len(cut['content'][0]['text']) // 10_000} times 10,000 characters"
        cases.append(session.normal(cut))
    golden("mcp_toolset", {"pages": [session.normal(page) for page in pages], "calls": cases})


HELLO = {
    "description": "Say hello",
    "kind": "command",
    "version": 1,
    "exec": {"command": {"entrypoint": "echo", "args": ["hello"]}},
    "outputs": {"format": "text"},
}


def made(name: str, **more: Any) -> dict[str, Any]:
    return call("tool_create", name=name, definition=HELLO | more)


CALLS = [
    call("greet"),
    call("greet", who="Ann"),
    call("greet", who=5),
    call("greet", whom="Ann"),
    call("count", n=3),
    call("count", n=10),
    call("describe", n=3),
    call("stock"),
    call("note", line="milk"),
    call("rows", name="Ann"),
    call("both", n=3),
    call("fail"),
    call("crash"),
    call("promise", n=1),
    call("slow"),
    call("absent"),
    call("broken_step"),
    call("keyed"),
    call("denied_file", path="/etc/hostname"),
    call("closed"),
    call("asked"),
    call("pay", amount=1),
    call("pay", amount=9),
    call("gret"),
]
META = [
    call("tools_list"),
    call("tools_list", offset=1, limit=2),
    call("tools_list", limit=0),
    call("tools_search", query="greet"),
    call("tools_search", query="cuont", limit=1),
    call("tools_search", query="zzzz"),
    call("tools_search", query=""),
    call("tool_call", name="greet", arguments={"who": "Ann"}),
    call("tool_call", name="count", arguments={"n": 3}),
    call("tool_call", name="greet", arguments={"whom": 1}),
    call("tool_call", name="gret"),
    call("tool_call", name="closed"),
    call("tool_call", name="pay", arguments={"amount": 1}),
    call("tool_call", name="fail"),
    call("tool_call", name="tool_call"),
    made("../x"),
    made("tool_call"),
    made("greet"),
    made("odd", kind="comand"),
    made("far", permissions={"network": True, "secrets": {"KEY": {"type": "string"}}}),
    made("hello"),
    made("hello"),
    call("tool_call", name="hello"),
    call("hello"),
]


def test_calls_of_a_project_and_what_the_log_says_of_them(shop: GoldenCrib) -> None:
    with mcp(shop) as session:
        begun = begin(session)
        listed = session.case("tools/list")
        cases = calls(session, *CALLS)
    golden("mcp_project", {"begun": begun, "listed": listed, "calls": cases})
    golden("mcp_project_events", shop.events())


def test_meta_tools(shop: GoldenCrib) -> None:
    with mcp(shop) as session:
        begin(session)
        cases = calls(session, *META)
        changes = session.await_change()
        names = [tool["name"] for tool in session.ask("tools/list")["result"]["tools"]]
    golden("mcp_meta", {"calls": cases, "names": names, "changed": changes > 0})
    golden("mcp_meta_events", shop.events())
