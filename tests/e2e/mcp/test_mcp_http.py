"""MCP over streamable HTTP: a server process, plain requests, both protocols, sessions, refusals."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.http_server import HttpServerProcess, Reply, http_server
from tests.integration.sandbox.ground import eventually
from toolcrib.guard import Tokens
from toolcrib.state import Vault

V = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
META = {f"{V}protocolVersion": MODERN, f"{V}clientCapabilities": {}, f"{V}clientInfo": {"name": "test"}}
BOTH = {"Accept": "application/json, text/event-stream"}
BEGIN = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    root = tmp_path_factory.mktemp("mcp") / "project"
    (root / ".toolcrib").mkdir(parents=True)
    with http_server(root, program=("-m", "tests.e2e.rest.rest_server")) as running:
        yield running


def post(server: HttpServerProcess, message: Any, headers: Any = None, **options: Any) -> Reply:
    return server.send("POST", "/mcp", message, {**BOTH, **(headers or {})}, **options)


def modern(server: HttpServerProcess, method: str, params: Any = None, **options: Any) -> Reply:
    params = {"_meta": META, **(params or {})}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **options.pop("headers", {})}
    if "name" in params:
        headers.setdefault("Mcp-Name", params["name"])
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return post(server, message, headers, **options)


class Session:
    """A session, usually of 2025-11-25."""

    def __init__(self, server: HttpServerProcess, token: str = "", version: str = "2025-11-25") -> None:
        self.server, self.token = server, token
        begun = post(server, self.message("initialize", {**BEGIN, "protocolVersion": version}), token=token)
        assert begun.status == 200, begun.body
        self.id = begun.headers["Mcp-Session-Id"]
        self.headers = {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": version}

    @staticmethod
    def message(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}

    def ask(self, method: str, params: Any = None, **options: Any) -> Reply:
        return post(
            self.server, self.message(method, params), self.headers, **{"token": self.token, **options}
        )

    def send(self, verb: str, headers: Any = None, **options: Any) -> Reply:
        accept = {"Accept": "text/event-stream"}
        return self.server.send(verb, "/mcp", None, {**self.headers, **accept, **(headers or {})}, **options)


def events(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream: id and message."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), json.loads(fields["data"] or "null")))
    return found


def test_a_request_stands_alone(server: HttpServerProcess) -> None:
    found = modern(server, "server/discover")
    assert found.status == 200
    assert found.json["result"]["supportedVersions"] == [MODERN]
    names = [tool["name"] for tool in modern(server, "tools/list").json["result"]["tools"]]
    assert "add" in names
    called = modern(server, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert called.json["id"] == 7
    assert called.json["result"]["content"] == [{"type": "text", "text": "3"}]
    assert called.headers["Content-Type"] == "application/json"


def test_headers_and_message_agree(server: HttpServerProcess) -> None:
    for headers in (
        {"Mcp-Method": "tools/call"},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"Mcp-Method": "TOOLS/LIST"},
    ):
        refused = modern(server, "tools/list", headers=headers)
        assert (refused.status, refused.json["error"]["code"]) == (400, -32020), headers
        assert refused.json["id"] == 7
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    refused = modern(server, "tools/call", call, headers={"Mcp-Name": "other"})
    assert (refused.status, refused.json["error"]["code"]) == (400, -32020)
    encoded = modern(server, "tools/call", call, headers={"Mcp-Name": "=?base64?YWRk?="})
    assert encoded.json["result"]["isError"] is False
    bad = {f"{V}protocolVersion": "v9", f"{V}clientCapabilities": {}}
    unknown = modern(server, "tools/list", {"_meta": bad}, headers={"MCP-Protocol-Version": "v9"})
    assert (unknown.status, unknown.json["error"]["code"]) == (400, -32022)
    assert unknown.json["error"]["data"] == {"supported": [MODERN], "requested": "v9"}
    missing = modern(server, "initialize", BEGIN)
    assert (missing.status, missing.json["error"]["code"]) == (404, -32601)


def test_progress_makes_the_answer_a_stream(server: HttpServerProcess) -> None:
    meta = {"_meta": {**META, "progressToken": "p"}}
    got = modern(server, "tools/call", {"name": "count_up", "arguments": {"to": 3}, **meta})
    assert got.headers["Content-Type"] == "text/event-stream"
    *progress, (_, last) = events(got.body)
    assert [message["params"]["progress"] for _, message in progress] == [1, 2, 3]
    assert last["result"]["content"][0]["text"] == "counted"


def test_a_session_from_its_beginning_to_its_end(server: HttpServerProcess) -> None:
    session = Session(server)
    assert len(session.id) >= 40
    ready = post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session.headers)
    assert (ready.status, ready.body) == (202, b"")
    assert session.ask("ping").json == {"jsonrpc": "2.0", "id": 1, "result": {}}
    called = session.ask("tools/call", {"name": "add", "arguments": {"a": 20, "b": 22}})
    assert called.json["result"]["structuredContent"] == {"result": 42}
    assert session.send("DELETE").status == 204
    assert session.ask("ping").status == 404
    assert session.send("DELETE").status == 404


def test_a_call_is_told_that_its_session_was_ended(server: HttpServerProcess, tmp_path: Path) -> None:
    session, mark = Session(server), tmp_path / "mark"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(session.ask, "tools/call", {"name": "hold", "arguments": {"mark": str(mark)}})
        assert eventually((tmp_path / "mark.begun").exists)
        assert session.send("DELETE").status == 204
        assert "the session was ended" in answer.result(30).body.decode()


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_a_client_of_an_older_version_gets_no_event_without_data(
    server: HttpServerProcess, version: str
) -> None:
    session = Session(server, version=version)
    params = {"name": "count_up", "arguments": {"to": 3}, "_meta": {"progressToken": 5}}
    got = events(session.ask("tools/call", params).body)
    assert [message["params"]["progress"] for _, message in got[:3]] == [1, 2, 3]
    again = session.send("GET", {"Last-Event-ID": got[1][0]})
    assert events(again.body) == got[2:]


def test_a_client_reads_on_after_the_event_it_saw_last(server: HttpServerProcess) -> None:
    session = Session(server)
    params = {"name": "count_up", "arguments": {"to": 3}, "_meta": {"progressToken": 5}}
    got = events(session.ask("tools/call", params).body)
    assert got[0][1] is None  # The first event has an id and no data.
    assert [message["params"]["progress"] for _, message in got[1:4]] == [1, 2, 3]
    again = session.send("GET", {"Last-Event-ID": got[2][0]})
    assert events(again.body) == got[3:]
    assert session.send("GET", {"Last-Event-ID": "99-1"}).status == 400


def test_a_session_belongs_to_the_token_that_began_it(server: HttpServerProcess) -> None:
    one = server.create_token("one", "invoke", tools=("add",))
    other = server.create_token("other", "invoke")
    session = Session(server, one)
    assert [tool["name"] for tool in session.ask("tools/list").json["result"]["tools"]] == ["add"]
    assert session.ask("ping", token=other).status == 404
    assert session.send("DELETE", token=other).status == 404
    assert session.ask("ping").status == 200
    call = {"name": "count_up", "arguments": {"to": 1}}
    assert modern(server, "tools/call", call, token=one).json["result"]["isError"] is True


def test_requests_without_a_token_and_from_other_sites_are_refused(server: HttpServerProcess) -> None:
    refused = modern(server, "tools/list", token=None)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert modern(server, "tools/list", token="tc_wrong").status == 401
    assert modern(server, "tools/list", headers={"Host": "evil.example"}).status == 403
    for origin in ("http://evil.example", "http://["):
        assert modern(server, "tools/list", headers={"Origin": origin}).status == 403
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert modern(server, "tools/list", headers=own).status == 200


def test_unfit_requests_are_refused(server: HttpServerProcess) -> None:
    session = Session(server)
    assert post(server, b"{", session.headers).json["error"]["code"] == -32700
    assert post(server, b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', session.headers).status == 400
    assert post(server, [session.message("ping")], session.headers).status == 400
    assert post(server, session.message("ping"), {"Content-Type": "text/plain"}).status == 415
    assert post(server, session.message("ping"), {"Content-Encoding": "gzip"}).status == 415
    assert post(server, session.message("ping")).status == 400
    assert post(server, session.message("ping"), {"Mcp-Session-Id": "unknown"}).status == 404
    assert session.ask("no/method").json["error"]["code"] == -32601
    wrong = server.send("PUT", "/mcp", {})
    assert (wrong.status, wrong.headers["Allow"]) == (405, "DELETE, GET, POST")
    assert post(server, b" " * (17 << 20)).status == 413
    large = {**BEGIN, "capabilities": {"experimental": {"x": {"y": "z" * 70_000}}}}
    assert post(server, session.message("initialize", large)).status == 413


def test_a_message_of_another_type_is_refused_whatever_came_before_it(tmp_path: Path) -> None:
    (tmp_path / "project" / ".toolcrib").mkdir(parents=True)
    with http_server(tmp_path / "project", program=("-m", "tests.e2e.rest.rest_server")) as new:
        connection = http.client.HTTPConnection("127.0.0.1", new.port, timeout=30)
        for _ in range(2):
            for content_type, accept, status in (
                (None, None, 415),
                ("text/plain", BOTH["Accept"], 415),
                ("application/json", "text/html", 400),
                ("application/json", BOTH["Accept"], 200),
            ):
                named = {"Content-Type": content_type, "Accept": accept}
                headers = {name: text for name, text in named.items() if text is not None}
                body = json.dumps(Session.message("initialize", BEGIN))
                connection.request("POST", "/mcp", body, {"Authorization": f"Bearer {new.token}", **headers})
                answer = connection.getresponse()
                assert (answer.status, answer.read() != b"") == (status, True), named
        connection.close()


def test_a_call_ends_when_the_client_of_2026_leaves(server: HttpServerProcess, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = {"name": "hold", "arguments": {"mark": str(mark)}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    headers = {"Mcp-Method": "tools/call", "Mcp-Name": "hold", "MCP-Protocol-Version": MODERN}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    token = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    connection.request("POST", "/mcp", body, {**BOTH, **headers, **token})
    wait_for(mark.with_name("mark.begun"))
    connection.close()
    wait_for(mark.with_name("mark.cancelled"))


def test_an_open_stream_ends_with_its_token(server: HttpServerProcess) -> None:
    token = server.create_token("brief", "read")
    params = {"_meta": META, "notifications": {"toolsListChanged": True}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
    headers = {"Mcp-Method": "subscriptions/listen", "MCP-Protocol-Version": MODERN, **BOTH}
    sent = {**headers, "Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/mcp", body, sent)
    stream = connection.getresponse()
    assert b"acknowledged" in stream.readline() + stream.readline()
    tokens = Tokens(Vault(server.root, server.data))
    tokens.revoke("brief")
    tokens.close()
    stream.read()  # It ends.
    connection.close()


def test_a_revoked_token_lists_and_calls_nothing_more(server: HttpServerProcess) -> None:
    token = server.create_token("gone", "invoke")
    session, call = Session(server, token), {"name": "add", "arguments": {"a": 1, "b": 2}}
    assert "tools" in session.ask("tools/list").json["result"]
    assert "tools" in modern(server, "tools/list", token=token).json["result"]
    tokens = Tokens(Vault(server.root, server.data))
    tokens.revoke("gone")
    tokens.close()
    for refused in (session.ask("tools/list"), modern(server, "tools/list", token=token)):
        assert refused.json["error"]["data"]["error"]["code"] == "invalid_token"
    for refused in (session.ask("tools/call", call), modern(server, "tools/call", call, token=token)):
        assert refused.json["result"]["structuredContent"]["error"]["code"] == "invalid_token"


def wait_for(path: Path) -> None:
    from time import monotonic, sleep

    end = monotonic() + 100
    while not path.exists():
        assert monotonic() < end, f"{path.name} did not come"
        sleep(0.01)


def test_the_address_may_name_the_host_whose_rules_a_list_keeps(server: HttpServerProcess) -> None:
    headers = {**BOTH, "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": META}}
    lists = {}
    for query in ("", "?for=gemini-json"):
        found = server.send("POST", f"/mcp{query}", message, headers).json["result"]["tools"]
        lists[query] = {tool["name"]: tool["inputSchema"] for tool in found}
    assert lists[""].keys() == lists["?for=gemini-json"].keys()
    assert lists[""] != lists["?for=gemini-json"]
    refused = server.send("POST", "/mcp?for=nobody", message, headers)
    assert refused.status == 400
    assert "Known: claude-code" in str(refused.json)
