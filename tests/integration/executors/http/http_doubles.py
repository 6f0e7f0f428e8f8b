"""What the tests of HTTP tools share: a call context, a tool, and a server that does as it is reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from toolcrib.egress import Egress
from toolcrib.errors import TimedOut, ToolcribError
from toolcrib.executors.http.executor import HttpExecutor
from toolcrib.spec import (
    Call,
    CallClient,
    CallEvent,
    HttpExec,
    Network,
    Outcome,
    Permissions,
    SecretSpec,
    Tool,
)

SECRET = "s3cr3t/+ value"


@dataclass
class Attempt:
    """A call context as the call path would give it."""

    secrets: Mapping[str, str] = field(default_factory=lambda: {"KEY": SECRET})
    redactor: Any = None
    attempt: int = 1
    limit_ms: int = 30_000
    remaining: float = 30.0
    tool: str = "t"
    caller: str = "local"
    variables: dict[str, Any] | None = None
    run_id: str | None = "run-1"
    session_id: str | None = None
    call_id: str | None = None
    client: CallClient | None = None
    is_followed: bool = False
    created: tuple[str, ...] = ()

    def timed_out(self) -> ToolcribError:
        """Not asked for by HTTP tools."""
        return TimedOut()

    def identify(self) -> str:
        """Not asked for by HTTP tools."""
        return "0"

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Nobody listens."""

    def chunk(self, text: str) -> None:
        """Nobody listens."""

    def relay(self, event: CallEvent) -> None:
        """Nobody listens."""


def schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {} for name in names}}


def a_tool(port: int, path: str = "/", **config: Any) -> Tool:
    """A tool with arguments a, b, c and the secret KEY that calls a local server."""
    more = {name: config.pop(name) for name in ("output", "retry", "input_schema") if name in config}
    settings_ = {"method": "GET", "url": f"http://127.0.0.1:{port}{path}", **config}
    permissions = Permissions(network=Network("hosts", (f"127.0.0.1:{port}",)), secrets=(SecretSpec("KEY"),))
    return Tool(
        "t",
        "d",
        "http",
        more.pop("input_schema", schema("a", "b", "c")),
        HttpExec(**settings_),
        permissions=permissions,
        **more,
    )


@dataclass
class Server:
    """A local server that keeps what it got and gives what it is reported to."""

    port: int
    egress: Egress
    got: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answer: Callable[[web.Request], web.StreamResponse] = lambda _: web.json_response({"ok": True})

    async def run(self, tool: Tool, ctx: Attempt | None = None, **arguments: Any) -> Outcome:
        """One attempt of `tool`."""
        return await HttpExecutor(tool, self.egress).run(Call("t", arguments), ctx or Attempt())

    async def call(self, path: str = "/", ctx: Attempt | None = None, **arguments: Any) -> Outcome:
        """One attempt of a plain GET tool."""
        return await self.run(a_tool(self.port, path), ctx, **arguments)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """Answer with JSON from now on."""
        text = value if isinstance(value, str) else json.dumps(value)
        self.answer = lambda _: web.Response(
            text=text, status=status, headers=headers, content_type="application/json"
        )
