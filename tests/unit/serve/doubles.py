"""A catalog in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolcrib.errors import ToolNotFound
from toolcrib.spec import Call, Caller, CallEvents, FunctionExec, Output, Result, Tool

Answer = Callable[[Call], Awaitable[Result]]


def make_tool(name: str, **fields: Any) -> Tool:
    described: dict[str, Any] = {
        "description": f"Does {name}.",
        "kind": "function",
        "input_schema": {"type": "object"},
    }
    return Tool(name, config=FunctionExec("m:f"), **(described | fields))


def typed_tool(name: str, schema: dict[str, Any]) -> Tool:
    return make_tool(name, output=Output(schema=schema))


class MemoryCatalog:
    """A catalog of the given tools; `answer` answers every call."""

    def __init__(self, *tools: Tool, answer: Answer | None = None) -> None:
        self.revision = 1
        self.list = list(tools)
        self.calls: list[Call] = []
        self.listings = 0
        self._answer = answer
        self.listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def add(self, *tools: Tool) -> None:
        """Add tools and notify the listeners."""
        for tool in tools:
            self.list.append(tool)
            self.revision += 1
            for listener in self.listeners:
                listener()

    def untrusted(self) -> int:
        return 0

    def tools(self, caller: str = "local", identity: Caller | None = None) -> list[Tool]:
        self.listings += 1
        return [tool for tool in self.list if caller not in tool.tags]

    def listed(
        self, caller: str = "local", identity: Caller | None = None
    ) -> Mapping[str, Tool | memoryview]:
        return {tool.name: tool for tool in self.tools(caller, identity)}

    def get(self, name: str) -> Tool:
        return next(tool for tool in self.list if tool.name == name)

    def subscribe(
        self, caller: str = "local", identity: Caller | None = None, *, size: int = 1_000
    ) -> CallEvents:
        raise NotImplementedError

    async def invoke(self, call: Call) -> Result:
        self.calls.append(call)
        if call.tool not in {tool.name for tool in self.list}:
            error = ToolNotFound(f"there is no tool named {call.tool!r}", hint="Did you mean add?")
            return Result("error", error=error)
        if self._answer is None:
            return Result("ok", call.arguments)
        return await self._answer(call)
