"""The official SDK's example server before version 2, and tools that ask in a session what the suite of
2026-07-28 expects as `input_required`: `PYTHONPATH=EXAMPLE python sdk_sessions.py PORT`.
"""

# mypy: ignore-errors
# It runs with an older SDK than the one that types are checked against.
import sys

import anyio
import mcp.types as types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.prompts import Prompt
from mcp_everything_server.server import mcp as example
from pydantic import BaseModel

server: FastMCP = example


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Topic(BaseModel):
    context: str


async def sampled(ctx: Context, text: str) -> str:
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    answer = await ctx.session.create_message(messages=[said], max_tokens=100)
    return getattr(answer.content, "text", "")


async def named(ctx: Context) -> str:
    answer = await ctx.elicit("What is your name?", Name)
    return answer.data.name if answer.action == "accept" else ""


@server.tool()
async def test_input_required_result_elicitation(ctx: Context) -> str:
    return f"Hello, {await named(ctx)}!"


@server.tool()
async def test_input_required_result_sampling(ctx: Context) -> str:
    return await sampled(ctx, "What is the capital of France?")


@server.tool()
async def test_input_required_result_list_roots(ctx: Context) -> str:
    return f"Found {len((await ctx.session.list_roots()).roots)} root(s)"


@server.tool()
async def test_input_required_result_multi_round(ctx: Context) -> str:
    name = await named(ctx)
    answer = await ctx.elicit("What is your favorite color?", Color)
    return f"{name} likes {answer.data.color if answer.action == 'accept' else 'nothing'}"


@server.tool()
async def test_input_required_result_capabilities(ctx: Context) -> str:
    def offered(**capability: object) -> bool:
        return ctx.session.check_client_capability(types.ClientCapabilities(**capability))

    if offered(sampling=types.SamplingCapability()):
        return await sampled(ctx, "Hello")
    return await named(ctx) if offered(elicitation=types.ElicitationCapability()) else "nothing to ask"


@server.prompt()
async def test_input_required_result_prompt(ctx: Context) -> str:
    answer = await ctx.elicit("What context should the prompt use?", Topic)
    return f"Use this: {answer.data.context if answer.action == 'accept' else ''}"


@server.tool()
async def test_missing_capability(ctx: Context) -> str:
    return await sampled(ctx, "Hello")


@server.tool()
async def test_streaming_elicitation(ctx: Context) -> str:
    await ctx.report_progress(50, 100)
    return "Streaming complete"


@server.tool()
async def test_logging_tool(ctx: Context) -> str:
    await ctx.info("a message")
    return "logged"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    server.add_tool(lambda: "made", name=f"made_{len(await server.list_tools())}")
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    name = f"made_{len(await server.list_prompts())}"
    server.add_prompt(Prompt.from_function(lambda: "made", name=name))
    await ctx.session.send_prompt_list_changed()
    return "changed"


if __name__ == "__main__":
    server.settings.port = int(sys.argv[1])
    anyio.run(server.run_streamable_http_async)
