"""Other frameworks, each called through its public API as its users call it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.setting import find, reason_of

Function = Callable[..., Any]


@dataclass(frozen=True)
class Peer:
    """One framework with its tools registered."""

    name: str
    call: Callable[[str, str], Awaitable[Any]]
    """Takes a tool's name and the JSON text of its arguments."""
    refused: Callable[[Any], bool]
    """Returns True if the result of a call says that it was refused; a refusal may also be raised."""


def open_mcp(functions: Sequence[Function], _loop: asyncio.AbstractEventLoop) -> Peer:
    """The MCP SDK's server, without a wire."""
    loads = find("orjson", "loads")
    server = find("mcp.server", "MCPServer")("bench")
    for function in functions:
        server.add_tool(function)

    async def call(name: str, arguments: str) -> Any:
        return await server.call_tool(name, loads(arguments))

    return Peer("mcp MCPServer.call_tool", call, lambda result: bool(getattr(result, "is_error", False)))


def open_pydantic_ai(functions: Sequence[Function], loop: asyncio.AbstractEventLoop) -> Peer:
    """The tool manager that pydantic-ai's agent loop calls through."""
    toolset = find("pydantic_ai", "FunctionToolset")()
    for function in functions:
        toolset.add_function(function)
    model = find("pydantic_ai.models.test", "TestModel")()
    usage = find("pydantic_ai.usage", "RunUsage")()
    step = find("pydantic_ai", "RunContext")(deps=None, model=model, usage=usage)
    manager = loop.run_until_complete(
        find("pydantic_ai.tool_manager", "ToolManager")(toolset).for_run_step(step)
    )
    part = find("pydantic_ai.messages", "ToolCallPart")

    async def call(name: str, arguments: str) -> Any:
        return await manager.handle_call(part(name, arguments))

    return Peer("pydantic-ai ToolManager.handle_call", call, lambda _: False)


def open_openai_agents(functions: Sequence[Function], _loop: asyncio.AbstractEventLoop) -> Peer:
    """The function tools of the OpenAI agents SDK."""
    make, context = find("agents", "function_tool"), find("agents.tool_context", "ToolContext")
    tools = {function.__name__: make(function, strict_mode=False) for function in functions}

    async def call(name: str, arguments: str) -> Any:
        about = context(None, tool_name=name, tool_call_id="1", tool_arguments=arguments)
        return await tools[name].on_invoke_tool(about, arguments)

    return Peer(
        "openai-agents on_invoke_tool",
        call,
        lambda result: isinstance(result, str) and result.startswith("An error occurred"),
    )


def open_anthropic(functions: Sequence[Function], _loop: asyncio.AbstractEventLoop) -> Peer:
    """The function tools of Anthropic's SDK, which its tool runner calls."""
    make, loads = find("anthropic", "beta_async_tool"), find("orjson", "loads")
    tools = {}
    for function in functions:

        async def text(*args: Any, run: Any = function, **kwargs: Any) -> str:
            found = run(*args, **kwargs)
            return str(await found if inspect.isawaitable(found) else found)

        tools[function.__name__] = make(functools.wraps(function)(text))

    async def call(name: str, arguments: str) -> Any:
        return await tools[name].call(loads(arguments))

    return Peer("anthropic beta_async_tool.call", call, lambda _: False)


OPENERS: dict[str, Callable[[Sequence[Function], asyncio.AbstractEventLoop], Peer]] = {
    "mcp": open_mcp,
    "pydantic-ai": open_pydantic_ai,
    "openai-agents": open_openai_agents,
    "anthropic": open_anthropic,
}


def quieten() -> None:
    """Keep the peers' logs off the terminal and their traces at home."""
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    logging.disable(logging.CRITICAL)


def open_peers(
    functions: Sequence[Function], loop: asyncio.AbstractEventLoop
) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are there with these tools, and why others are not."""
    quieten()
    found: list[Peer] = []
    missing: dict[str, str] = {}
    for name, opener in OPENERS.items():
        try:
            found.append(opener(functions, loop))
        except Exception as error:
            missing[name] = reason_of(error)
    return found, missing


def registrars() -> dict[str, Callable[[Sequence[Function]], Any]]:
    """Return by name what registers functions in each peer, into something new each time."""
    quieten()

    def mcp(functions: Sequence[Function]) -> None:
        server = find("mcp.server", "MCPServer")("bench")
        for function in functions:
            server.add_tool(function)

    def pydantic_ai(functions: Sequence[Function]) -> None:
        toolset = find("pydantic_ai", "FunctionToolset")()
        for function in functions:
            toolset.add_function(function)

    def openai_agents(functions: Sequence[Function]) -> None:
        make = find("agents", "function_tool")
        for function in functions:
            make(function)

    return {
        "mcp MCPServer.add_tool": mcp,
        "pydantic-ai FunctionToolset.add_function": pydantic_ai,
        "openai-agents function_tool": openai_agents,
    }
