"""No door runs what another refuses: generated policies and arguments, brought to each door its own way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.guard.policy.policed import policed
from toolcrib import Toolset
from toolcrib.cli.arguments import parse_arguments
from toolcrib.guard import Condition, Effect, Policy, Rule, Rules
from toolcrib.serve.mcp import Connection, ServerSettings
from toolcrib.spec import Call

CALLER = "mcp:agent"
Arguments = dict[str, Any]
RAN: list[Arguments] = []


def crib(policy: Policy) -> Toolset:
    tools = Toolset(controls=policed(policy))

    @tools.tool(isolation="inline")
    def scan(path: str = "/etc", count: int = 1, tags: list[str] | None = None, extra: Any = None) -> str:
        RAN.append({"path": path, "count": count, "tags": tags, "extra": extra})
        return "ran"

    return tools


def by_python(tools: Toolset, arguments: Arguments) -> str:
    return invoke(tools, arguments)


def by_text(tools: Toolset, arguments: Arguments) -> str:
    return invoke(tools, json.dumps(arguments))


def by_bytes(tools: Toolset, arguments: Arguments) -> str:
    escaped = json.dumps(dict(reversed(arguments.items())), indent=1)
    return invoke(tools, escaped.replace("path", "\\u0070ath").encode())


def by_command_line(tools: Toolset, arguments: Arguments) -> str:
    words = [
        f"{key}={value}" if isinstance(value, str) else f"{key}:={json.dumps(value)}"
        for key, value in arguments.items()
    ]
    return invoke(tools, parse_arguments(words))


def invoke(tools: Toolset, arguments: Any) -> str:
    result = asyncio.run(tools.invoke(Call("scan", arguments, caller=CALLER)))
    return "ok" if result.error is None else result.error.code


def by_mcp(tools: Toolset, arguments: Arguments) -> str:
    return asyncio.run(_by_mcp(tools, arguments))


async def _by_mcp(tools: Toolset, arguments: Arguments) -> str:
    lines: asyncio.Queue[Any] = asyncio.Queue()
    server = ServerSettings(name="crib", version="1")
    connection = Connection(tools, lambda line: lines.put_nowait(orjson.loads(line)), server)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "scan", "arguments": arguments, "_meta": meta}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    connection.receive(json.dumps(request).encode())
    result = (await asyncio.wait_for(lines.get(), 100))["result"]
    if not result.get("isError"):
        return "ok"
    code: str = result["structuredContent"]["error"]["code"]
    return code


DOORS: list[Callable[[Toolset, Arguments], str]] = [by_python, by_text, by_bytes, by_command_line, by_mcp]

_CONDITIONS: list[dict[str, Any]] = [
    {"properties": {"path": {"pattern": "^/etc"}}, "required": ["path"]},
    {"properties": {"path": {"const": "é"}}, "required": ["path"]},
    {"properties": {"count": {"const": 7}}, "required": ["count"]},
    {"properties": {"count": {"minimum": 3}}},
    {"properties": {"tags": {"contains": {"const": "x"}, "type": "array"}}, "required": ["tags"]},
    {"properties": {"extra": {"enum": [5, "5", None]}}},
    {"properties": {"extra": {"type": "object", "required": ["a"]}}, "required": ["extra"]},
    {"not": {"required": ["tags"]}},
    {"maxProperties": 2},
]
_RULES = st.lists(
    st.builds(
        Rule,
        name=st.just("r"),
        effect=st.sampled_from(["deny", "ask", "allow"]),
        tools=st.sampled_from([None, ("scan",), ("s*",), ("Scan",)]),
        callers=st.sampled_from([None, ("mcp:*",), ("cli",), ("mcp:agent",)]),
        when=st.sampled_from([None, *map(Condition, _CONDITIONS)]),
    ),
    max_size=5,
)
_VALUES = st.one_of(
    st.sampled_from(
        ["/etc/x", "src", "é", "e\u0301", "7", "", "a\u202eb", "</script>", "${path}", "\x1b[2J"]
    ),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([7, 7.0, 3.5, True, None, [], ["x"], {"a": 1}, {"a": {"path": "/etc"}}]),
)
_ARGUMENTS = st.dictionaries(st.sampled_from(["path", "count", "tags", "extra", "Path", "unknown"]), _VALUES)


@pytest.mark.timeout(120)
@settings(max_examples=150)
@given(_RULES, st.sampled_from(["deny", "ask", "allow"]), _ARGUMENTS)
def test_no_door_runs_what_another_refuses(rules: list[Rule], default: Effect, arguments: Arguments) -> None:
    policy = Policy(Rules(default, tuple(rules)))
    tools = crib(policy)
    outcomes = {}
    for door in DOORS:
        RAN.clear()
        outcomes[door.__name__] = (door(tools, arguments), list(RAN))
    assert len({json.dumps(outcome) for outcome in outcomes.values()}) == 1, outcomes
    code, ran = outcomes["by_python"]
    assert bool(ran) is (code == "ok")
    if ran:  # what the tool saw is what the policy allows
        assert policy.decide(tools.get("scan"), CALLER, ran[0]).effect == "allow"
