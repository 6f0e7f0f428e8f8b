"""What a mounted server asks and says during a call reaches the client that made the call, and no other."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import mcp_types
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client import Client as McpClient

from tests.crib import Crib
from tests.mcp_servers import RAW, Served, mount, trust_offered, write
from toolcrib.errors import CapabilityMissing, InputRequired
from toolcrib.project import Project
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.serve.mcp.connection import Connection
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.spec import Call, CallSession, Result
from toolcrib.spec.calls.client import require_capabilities

pytestmark = pytest.mark.timeout(120)

ASKING = RAW + textwrap.dedent("""
    def called(message):
        said = {"level": "info", "data": "asking"}
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": said})
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = {"message": "Who?", "requestedSchema": form}
        send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": asked})
        answer = json.loads(sys.stdin.readline())
        while answer.get("id") != "q":
            answer = json.loads(sys.stdin.readline())
        text = answer["result"]["content"]["name"] if "result" in answer else answer["error"]["message"]
        return {"content": [{"type": "text", "text": text}]}
    main()
""")


class Client:
    """A client that answers at once, as one of a session does."""

    protocol = "2025-11-25"
    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}}}
    state = None
    session: CallSession | None

    def __init__(self, responses: Mapping[str, Any] | None = None) -> None:
        self.session = None if self.protocol == "2026-07-28" else CallSession()
        self.responses: Mapping[str, Any] = responses or {}
        self.heard: list[Any] = []

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Answer with a name."""
        return {key: self.answer(one) for key, one in requests.items()}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert request["params"]["message"] == "Who?"
        return {"action": "accept", "content": {"name": "Ann"}}

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Keep it."""
        self.heard.append((method, params["data"]))


class LaterClient(Client):
    """A client of 2026-07-28: it brings its answers with its next request."""

    protocol = "2026-07-28"

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """End the round where an answer is missing."""
        if missing := {key: dict(one) for key, one in requests.items() if key not in self.responses}:
            raise InputRequired(details={"requests": missing, "state": None})
        return {key: self.responses[key] for key in requests}


async def call(project: Project, client: Client | None) -> Result:
    return await project.invoke(Call("raw__hello", {}, client=client))


async def test_a_server_of_a_session_asks_the_client_of_the_call(crib: Crib) -> None:
    mount(crib, "raw", ASKING)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        client = Client()
        assert (await call(project, client)).unwrap() == "Ann"
        assert client.heard == [("notifications/message", "asking")]
        assert "there is no client to ask" in (await call(project, None)).unwrap()


async def test_a_client_that_answers_later_has_the_call_made_again(crib: Crib) -> None:
    mount(crib, "raw", ASKING)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        first = (await call(project, LaterClient())).error
        assert isinstance(first, InputRequired)
        ((key, request),) = first.details["requests"].items()
        assert request["method"] == "elicitation/create"
        answers = {key: {"action": "accept", "content": {"name": "Ben"}}}
        assert (await call(project, LaterClient(answers))).unwrap() == "Ben"


class Outside(Served):
    """A server that asks outside of its calls, on a stream of the session that it takes time to open."""

    def __init__(self) -> None:
        asked: dict[bytes, asyncio.Queue[Any]] = {}
        """Session with an open stream to its questions."""
        answers: asyncio.Queue[Any] = asyncio.Queue()
        about = {"serverInfo": {"name": "outside", "version": "1"}, "capabilities": {"tools": {}}}
        results = {
            "initialize": {"protocolVersion": "2025-11-25", **about},
            "tools/list": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]},
        }

        async def called(session: bytes) -> str:
            if session not in asked:
                return "nobody hears"
            params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            asked[session].put_nowait({"id": "q", "method": "elicitation/create", "params": params})
            return str((await answers.get())["content"]["name"])

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                return
            message = json.loads((await receive())["body"] or b"{}")
            method = message.get("method")
            session = dict(scope["headers"]).get(b"mcp-session-id", b"")
            status, kind, reply = 202, b"application/json", dict[str, Any]()
            if scope["method"] == "GET":
                await asyncio.sleep(1)
                asked[session] = asyncio.Queue()
                status, kind = 200, b"text/event-stream"
            elif "result" in message:
                answers.put_nowait(message["result"])
            elif method == "tools/call":
                reply = {"result": {"content": [{"type": "text", "text": await called(session)}]}}
            elif method in results:
                reply = {"result": results[method]}
            elif "id" in message:
                reply = {"error": {"code": -32601, "message": "Method not found"}}
            headers = [(b"content-type", kind), (b"mcp-session-id", session or uuid.uuid4().hex.encode())]
            if reply:
                status, reply = 200, {"jsonrpc": "2.0", "id": message["id"], **reply}
            await send({"type": "http.response.start", "status": status, "headers": headers})
            data = json.dumps(reply) if reply else ""
            if scope["method"] == "GET":
                data = "data: " + json.dumps({"jsonrpc": "2.0", **await asked[session].get()}) + "\n\n"
            await send({"type": "http.response.body", "body": data.encode()})

        super().__init__(app)


async def test_a_server_may_ask_outside_of_the_call_from_the_first_call_on(crib: Crib) -> None:
    remote = Outside()
    remote.start()
    write(crib, {"raw": {"url": f"http://127.0.0.1:{remote.port}/mcp"}})
    try:
        async with crib.open() as project:
            assert project.servers is not None
            await project.servers.ready(60)
            assert (await call(project, Client())).unwrap() == "Ann"
    finally:
        await asyncio.to_thread(remote.stop)


NAMING = ASKING.replace(
    'return {"content": [{"type": "text", "text": text}]}',
    'return {"content": [{"type": "text", "text": f"{text} {process} {announced}"}]}',
).replace(
    "\nmain()",
    """
def answer(message, usual=answer):
    global announced
    if message["method"] == "initialize":
        announced = sorted(message["params"]["capabilities"])
    return usual(message)
main()""",
)


async def test_each_session_has_its_own_process_of_a_server_that_asks(crib: Crib) -> None:
    """Calls of two clients side by side: the server asks each, and sees what each announced."""
    mount(crib, "raw", "import os\nprocess = os.urandom(8).hex()\n" + NAMING)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        assert "there is no client to ask" in (await call(project, None)).unwrap()
        ann, ben = Client(), Client()
        ben.capabilities = {"elicitation": {}, "roots": {}}
        results = [*await asyncio.gather(call(project, ann), call(project, ben)), await call(project, ann)]
        named = [str(result.unwrap()).split(" ", 2) for result in results]
        assert [one[0] for one in named] == ["Ann", "Ann", "Ann"]
        assert [one[2] for one in named] == ["['elicitation']", "['elicitation', 'roots']", "['elicitation']"]
        assert named[0][1] == named[2][1] != named[1][1]
        assert ann.session is not None
        ann.session.end()
        await asyncio.sleep(0)
        assert str((await call(project, ann)).unwrap()).split(" ")[1] not in [one[1] for one in named]


LEAKING = (
    ASKING.replace('"asking"', 'os.environ["KEY"]')
    .replace('"Who?"', 'os.environ["KEY"]')
    .replace(
        '"Say hello.", "inputSchema": {',
        '"Say " + os.environ["KEY"], "inputSchema": {"title": os.environ["KEY"], ',
    )
)


async def test_secrets_in_what_a_server_says_and_asks_are_masked(crib: Crib) -> None:
    crib.secrets = {"KEY": "s3cr3t-value"}
    mount(crib, "raw", LEAKING, env={"KEY": "${KEY}"})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        tool = project.get("raw__hello")
        assert (tool.description, tool.input_schema["title"]) == ("Say ***KEY***", "***KEY***")
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        connection = Connection(McpCatalog(project), lines.put_nowait, ServerSettings.of_project(project))
        begin = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {}}
        for method, params in (("initialize", begin), ("tools/call", {"name": "raw__hello"})):
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            connection.receive(json.dumps(message).encode())
        _, said, asked = [json.loads(await asyncio.wait_for(lines.get(), 100)) for _ in range(3)]
        assert (said["params"]["data"], asked["params"]["message"]) == ("***KEY***", "***KEY***")
        await connection.drain(0)


INSISTING = (
    ASKING.replace('"id": "q"', '"id": number')
    .replace(
        '    send({"jsonrpc": "2.0", "id": number',
        '    for number in range(1, 66): send({"jsonrpc": "2.0", "id": number',
    )
    .replace('!= "q"', "!= 65")
)


async def test_a_server_has_a_bounded_number_of_open_questions(crib: Crib) -> None:
    class Silent(Client):
        async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
            """Never answer."""
            return await asyncio.Event().wait()  # type: ignore[return-value]

    mount(crib, "raw", INSISTING)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        assert (await call(project, Silent())).unwrap() == "64 questions have no answer yet"


NEEDS_URL = RAW.replace(
    '{"code": -32601, "message": "Method not found"}',
    '{"code": -32042, "message": "log in first", "data": {"elicitations": [{"url": "https://a.example/"}]}}',
) + textwrap.dedent("""
    def called(message):
        return None
    main()
""")


async def test_an_address_to_visit_first_reaches_the_client(crib: Crib) -> None:
    mount(crib, "raw", NEEDS_URL)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        connection = Connection(McpCatalog(project), lines.put_nowait)

        async def ask(method: str, params: Any) -> Any:
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            connection.receive(json.dumps(message).encode())
            return json.loads(await asyncio.wait_for(lines.get(), 100))

        await ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        answer = await ask("tools/call", {"name": "raw__hello"})
        assert answer["error"]["code"] == -32042
        assert answer["error"]["data"] == {"elicitations": [{"url": "https://a.example/"}]}
        await connection.drain(1)


@pytest.mark.parametrize(
    ("offered", "mode", "fits"),
    [
        ({}, "form", True),
        ({"form": {}}, "url", False),
        ({"url": {}}, "form", False),
        ({"url": {}}, "url", True),
    ],
)
def test_a_client_is_asked_only_in_a_mode_that_it_has(offered: Any, mode: str, fits: bool) -> None:
    request = {"method": "elicitation/create", "params": {"mode": mode, "message": "Who?"}}
    with nullcontext() if fits else pytest.raises(CapabilityMissing):
        require_capabilities({"elicitation": offered}, {"q": request})


COMPLETING = """
from mcp.server.mcpserver import MCPServer
from mcp_types import Completion

server = MCPServer("completing")

@server.prompt()
def review(language: str, framework: str) -> str:
    "Review code."
    return f"Review {language} with {framework}"

@server.resource("repo://{owner}/{name}")
def repo(owner: str, name: str) -> str:
    "A repository."
    return owner + name

@server.completion()
async def complete(ref, argument, context):
    if argument.name == "owner":
        return Completion(values=["ann", "ben"], total=7, has_more=True)
    given = context.arguments.get("language", "") if context and context.arguments else ""
    return Completion(values=[f"{argument.value}-{given}"])

server.run()
"""


def served(crib: Crib) -> StdioServerParameters:
    command = ["-m", "toolcrib", "serve", "--stdio", "--root", str(crib.root)]
    return StdioServerParameters(command=sys.executable, args=command, env={**os.environ})


async def mounted(client: McpClient) -> None:
    """Wait until the server has listed what it offers: a call of a tool that it may have waits for that."""
    with pytest.raises(MCPError):
        await client.call_tool("raw__nothing", {})


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_arguments_are_completed_by_the_server_they_belong_to(crib: Crib, mode: Any) -> None:
    mount(crib, "raw", COMPLETING)
    await trust_offered(crib.root)
    async with McpClient(served(crib), mode=mode) as client:
        await mounted(client)
        prompt = mcp_types.PromptReference(name="raw__review")
        found = await client.complete(prompt, {"name": "framework", "value": "d"}, {"language": "py"})
        assert found.completion.values == ["d-py"]
        template = mcp_types.ResourceTemplateReference(uri="repo://{owner}/{name}")
        found = await client.complete(template, {"name": "owner", "value": ""})
        assert found.completion == mcp_types.Completion(values=["ann", "ben"], total=7, has_more=True)


TEMPLATES = RAW + textwrap.dedent("""
    templates = ["repo://{owner}/{+path}", "notes://all{?word,limit}", "tree://top{/parts*}", "odd://{1a}"]
    def answer(message, usual=answer):
        if message["method"] == "initialize":
            made = usual(message)
            return {**made, "capabilities": {"tools": {}, "resources": {}}}
        if message["method"] == "resources/list":
            return {"resources": []}
        if message["method"] == "resources/templates/list":
            named = [{"uriTemplate": one, "name": "t"} for one in (*templates, "bad://{a}/{a}", "bad://{a")]
            return {"resourceTemplates": named}
        if message["method"] == "resources/read":
            uri = message["params"]["uri"]
            return {"contents": [{"uri": uri, "text": f"content of {uri}"}]}
        return usual(message)
    main()
""")


async def test_resource_templates_have_every_form_of_their_standard(crib: Crib) -> None:
    mount(crib, "raw", TEMPLATES)
    await trust_offered(crib.root)
    async with McpClient(served(crib)) as client:
        await mounted(client)
        listed = (await client.list_resource_templates()).resource_templates
        uris = ["repo://{owner}/{+path}", "notes://all{?word,limit}", "tree://top{/parts*}", "odd://{1a}"]
        assert [one.uri_template for one in listed if "://tools/" not in one.uri_template] == uris
        for uri in (
            "repo://ann/src/main.py",
            "notes://all?limit=3",
            "notes://all",
            "tree://top/a/b%2Fc",
            "odd://x",
        ):
            (found,) = (await client.read_resource(uri)).contents
            assert found.text == f"content of {uri}"  # type: ignore[union-attr]


BY_URL = RAW + textwrap.dedent("""
    def answer(message, usual=answer):
        if message["method"] == "initialize":
            made = usual(message)
            return {**made, "capabilities": {"tools": {}, "prompts": {}}}
        if message["method"] == "prompts/list":
            return {"prompts": [{"name": "hi"}]}
        return usual(message)

    def called(message):
        asked = {"mode": "url", "message": "Log in", "url": "https://a.example/", "elicitationId": "e-1"}
        send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": asked})
        answer = json.loads(sys.stdin.readline())
        while answer.get("id") != "q":
            answer = json.loads(sys.stdin.readline())
        for name in ("e-1", "e-1", "e-2"):
            done = {"elicitationId": name}
            send({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": done})
        return {"content": [{"type": "text", "text": json.dumps(answer.get("result", answer.get("error")))}]}
    main()
""")


async def test_elicitation_by_url_and_its_end_reach_the_client(crib: Crib) -> None:
    mount(crib, "raw", BY_URL.replace('"Method not found"', '"no such prompt", "data": {"why": "gone"}'))
    await trust_offered(crib.root)
    asked, completed = [], []

    async def elicit(_: Any, params: Any) -> mcp_types.ElicitResult:
        asked.append(params)
        return mcp_types.ElicitResult(action="accept")

    async def hear(message: Any) -> None:
        if isinstance(message, mcp_types.ElicitCompleteNotification):
            completed.append(message.params.elicitation_id)

    options: Any = {"mode": "legacy", "elicitation_callback": elicit, "message_handler": hear}
    async with McpClient(served(crib), **options) as client:
        result = await client.call_tool("raw__hello", {})
        assert json.loads(result.content[0].text) == {"action": "accept"}  # type: ignore[union-attr]
        (params,) = asked
        assert (params.mode, params.url, params.elicitation_id) == ("url", "https://a.example/", "e-1")
        assert completed == ["e-1"], "once, and none that is of no call"
        with pytest.raises(MCPError, match="no such prompt") as refused:
            await client.get_prompt("raw__hi")
        assert (refused.value.code, refused.value.data) == (-32601, {"why": "gone"})
