"""The fixture of the public conformance suite: `python -m tests.conformance.server --root ROOT --data DATA`.

The suite cannot send a token, so every request gets that of the environment.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib import Content, Context, McpForms, Project, Toolset
from toolcrib.errors import InputRequired
from toolcrib.serve.http import open_socket, serve_app
from toolcrib.serve.process import run_until_end
from toolcrib.serve.rest import rest_app

IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
PROMPT = McpForms(listed=False, prompt=True)
tools = Toolset()


def resource(uri: str, mime_type: str) -> McpForms:
    return McpForms(listed=False, resource=uri, mime_type=mime_type)


def form(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int = 100) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


NAME = form("What is your name?", name={"type": "string"})
CONFIRM = form("Please confirm", ok={"type": "boolean"})
ROOTS = {"method": "roots/list", "params": {}}


# --- content


@tools.tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tools.tool
def test_image_content() -> Content:
    """Return an image."""
    return Content.image(IMAGE)


@tools.tool
def test_audio_content() -> Content:
    """Return a sound."""
    return Content.audio(SOUND)


@tools.tool
def test_embedded_resource() -> Content:
    """Return a resource."""
    return Content.resource("test://embedded-resource", "This is an embedded resource content.", "text/plain")


@tools.tool
def test_multiple_content_types() -> list[Content | str]:
    """Return blocks of several kinds."""
    mixed = Content.resource("test://mixed-content-resource", '{"test": "data"}', "application/json")
    return ["Multiple content types test:", Content.image(IMAGE), mixed]


@tools.tool
def test_error_handling() -> None:
    """Fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


# --- messages on the way


@tools.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log, and end."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", text)
        await asyncio.sleep(0.05)
    return "logged"


@tools.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log once."""
    ctx.log("info", "a message")
    return "logged"


@tools.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "done"


@tools.tool
async def test_reconnection() -> str:
    """Take a moment."""
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully."


@tools.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress before the answer."""
    ctx.progress(50, 100)
    return "Streaming complete"


# --- requests to the client


async def ask(ctx: Context, **requests: Any) -> dict[str, Any]:
    assert ctx.client is not None
    return await ctx.client.ask(requests)


@tools.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = (await ask(ctx, answer=sample(prompt)))["answer"]
    return f"LLM response: {answer['content']['text']}"


@tools.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the client's user."""
    answer = (await ask(ctx, answer=form(message, response={"type": "string"})))["answer"]
    return f"User response: action={answer['action']}, content={answer.get('content')}"


@tools.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with defaults."""
    asked = form(
        "Please review and update the form fields with defaults",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    answer = (await ask(ctx, answer=asked))["answer"]
    return f"Elicitation completed: action={answer['action']}, content={answer.get('content')}"


@tools.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask for a choice, in every form of it."""
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    asked = form(
        "Please select options from the enum fields",
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    answer = (await ask(ctx, answer=asked))["answer"]
    return f"Elicitation completed: action={answer['action']}, content={answer.get('content')}"


@tools.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need sampling."""
    await ask(ctx, answer=sample("Hello"))
    return "Success"


# --- several rounds


def text_of(answer: Any, field: str) -> Any:
    return answer.get("content", {}).get(field)


@tools.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    return f"Hello, {text_of((await ask(ctx, user_name=NAME))['user_name'], 'name')}!"


@tools.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask a model."""
    found = await ask(ctx, capital_question=sample("What is the capital of France?"))
    return f"Sampling result: {text_of(found['capital_question'], 'text')}"


@tools.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    return f"Found {len((await ask(ctx, client_roots=ROOTS))['client_roots']['roots'])} root(s)"


async def stateful(ctx: Context, state: str, **requests: Any) -> bool:
    """Ask with a state of the tool's own; True once the client has answered with it."""
    assert ctx.client is not None
    if ctx.client.state == state and requests.keys() <= ctx.client.responses.keys():
        return True
    raise InputRequired(details={"requests": requests, "state": state})


@tools.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask, and keep a state."""
    await stateful(ctx, "request-state", confirm=CONFIRM)
    return "state-ok: requestState validated"


@tools.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, and keep a state that nobody can change."""
    await stateful(ctx, "tamper-test", confirm=CONFIRM)
    return "integrity-ok: state verified"


@tools.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for three things at once."""
    wanted = {"user_name": NAME, "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS}
    await stateful(ctx, "multiple-inputs", **wanted)
    return "complete"


@tools.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice."""
    assert ctx.client is not None
    if not (ctx.client.state or "").startswith("named"):
        await stateful(ctx, "begun", step1=form("Step 1: What is your name?", name={"type": "string"}))
        name = text_of(ctx.client.responses["step1"], "name")
        color = form("Step 2: What is your favorite color?", color={"type": "string"})
        raise InputRequired(details={"requests": {"step2": color}, "state": f"named {name}"})
    answer = ctx.client.responses["step2"]
    return f"{ctx.client.state}, who likes {text_of(answer, 'color')}"


@tools.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only for what the client supports."""
    assert ctx.client is not None
    offered = {"elicitation": ("elicit_input", NAME), "sampling": ("sample_input", sample("Hello"))}
    wanted = dict(offered[name] for name in offered if name in ctx.client.capabilities)
    return f"received {sorted(await ctx.client.ask(wanted))}"


# --- tasks: what takes long becomes one, what must be one is from its beginning

TASK = McpForms(task=True)


@tools.tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tools.tool
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return f"computed {label}"


@tools.tool(mcp=TASK)
async def failing_job() -> None:
    """Fail after a while."""
    await asyncio.sleep(0.2)
    raise RuntimeError("the job failed")


@tools.tool(mcp=TASK)
async def protocol_error_job(ctx: Context) -> str:
    """Need what the suite's client does not have."""
    return str(await ask(ctx, roots=ROOTS))


@tools.tool(mcp=TASK)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before deleting."""
    answer = (await ask(ctx, confirm=form(f"Delete {filename}?", confirm={"type": "boolean"})))["confirm"]
    return f"deleted {filename}" if text_of(answer, "confirm") else "kept"


@tools.tool(mcp=TASK)
async def multi_input(ctx: Context) -> str:
    """Ask for two things at once."""
    return f"done with {sorted(await ask(ctx, first=NAME, second=CONFIRM))}"


@tools.tool
async def test_tool_with_task(ctx: Context) -> str:
    """Ask first, and become a task then."""
    name = text_of((await ask(ctx, user_name=NAME))["user_name"], "name")
    await asyncio.sleep(0.8)
    return f"Hello, {name}!"


# --- prompts and resources


@tools.tool(mcp=PROMPT)
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@tools.tool(mcp=PROMPT)
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Content | str]:  # noqa: N803 - the suite's name
    """A prompt with a resource in it."""
    embedded = Content.resource(resourceUri, "Embedded resource content for testing.", "text/plain")
    return [embedded, "Please process the embedded resource above."]


@tools.tool(mcp=PROMPT)
def test_prompt_with_image() -> list[Content | str]:
    """A prompt with an image."""
    return [Content.image(IMAGE), "Please analyze the image above."]


@tools.tool(mcp=PROMPT)
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks."""
    asked = form("What context should the prompt use?", context={"type": "string"})
    return f"Use this: {text_of((await ask(ctx, user_context=asked))['user_context'], 'context')}"


@tools.tool(mcp=resource("test://static-binary", "image/png"))
def static_binary() -> Content:
    """An image that is a resource."""
    return Content.image(IMAGE)


@tools.tool(mcp=resource("test://watched-resource", "text/plain"))
def watched_resource() -> str:
    """A resource to subscribe to."""
    return "Watched resource content"


@tools.tool(mcp=resource("test://template/{id}/data", "application/json"))
def template_data(id: str) -> dict[str, Any]:  # noqa: A002 - the suite's name
    """Data of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


def with_token(app: ASGIApp, token: str) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]
        await app({**scope, "headers": headers}, receive, send)

    return call


async def main(root: str, data: str) -> int:
    async with Project.open(root, data=Path(data)) as project:
        project.toolset.add_all([tools.bound(tool.name) for tool in tools.tools()])
        made = iter(range(1, 1_000_000))

        def trigger(forms: McpForms) -> str:
            name = f"made_{next(made)}"
            project.toolset.register(name, lambda: "made", description="Made by a test.", mcp=forms)
            return name

        @project.toolset.tool
        async def test_trigger_tool_change() -> str:
            """Add a tool."""
            return trigger(McpForms())

        @project.toolset.tool
        async def test_trigger_prompt_change() -> str:
            """Add a prompt."""
            return trigger(PROMPT)

        await serve(project)
    return 0


async def serve(project: Project) -> None:
    """Serve a project over HTTP until the process is ended, and print the address."""
    listening = open_socket("127.0.0.1", 0)
    closing = asyncio.Event()
    port = listening.getsockname()[1]
    async with rest_app(project, closing=closing) as (app, _):
        print(f"http://127.0.0.1:{port}/mcp", flush=True)
        served = with_token(app, os.environ["CONFORMANCE_TOKEN"])
        await serve_app(served, listening, closing)


if __name__ == "__main__":
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    run_until_end(main(options["--root"], options["--data"]))
