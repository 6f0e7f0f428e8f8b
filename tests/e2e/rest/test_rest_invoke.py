"""Calls of tools in bundles, over HTTP at a real server that calls another real server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, Reply, http_server
from tests.patience import patient
from toolcrib import Project
from toolcrib.builtin.names import NAMES
from toolcrib.spec.identifier import new_id

CITY = {
    "type": "object",
    "required": ["city"],
    "properties": {"city": {"type": "string", "maxLength": 9, "description": "City."}},
    "additionalProperties": False,
}
MARK = {
    "type": "object",
    "required": ["mark"],
    "properties": {"mark": {"type": "string", "description": "M."}},
}


class Weather(ThreadingHTTPServer):
    """A server that answers each request with its path, as JSON; 500 for what contains `fail`."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Weather

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        body = json.dumps({"path": self.path}).encode()
        self.send_response(500 if "fail" in self.path else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def weather() -> Iterator[Weather]:
    with Weather() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("invoke") / "project")
    crib.write(".toolcrib/config.yml", json.dumps({"security": {"allowed_hosts": ["127.0.0.1"]}}))
    with http_server(crib.root, program=("-m", "tests.e2e.rest.rest_server")) as running:
        yield running


@dataclass(slots=True)
class Bundle:
    """A bundle of its own, and its tools."""

    server: HttpServerProcess
    id: str

    @property
    def path(self) -> str:
        return f"/tools/bundles/{self.id}"

    def put(self, slug: str, body: dict[str, Any], *, trusted: bool = True) -> None:
        """Put version v1 of a tool, and trust it as a person does in another process."""
        reply = self.server.send("PUT", f"{self.path}/tools/{slug}/version/v1", {"displayName": "x", **body})
        assert reply.status == 201, reply.body
        if trusted:
            asyncio.run(self.trust(slug))

    async def trust(self, slug: str) -> None:
        async with Project.open(self.server.root, data=self.server.data) as project:
            project.trust.trust(project.get(project.bundles.name(self.id, slug, "v1")), "ann")

    def invoke(self, slug: str, args: dict[str, Any] | None = None, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"{self.path}/tools/{slug}/version/v1/invoke"
        return self.server.send("POST", path, {"args": args or {}}, named)


READS = """\
name: read_notes
description: Read the notes.
kind: file
version: v1
exec: {file: {action: read, path: notes.txt}}
permissions: {fs: {read: [notes.txt], write: []}}
"""


@pytest.fixture
def bundle(server: HttpServerProcess) -> Bundle:
    made = Bundle(server, new_id())
    slug = f"shop-{made.id[-12:]}"
    assert server.send("PUT", made.path, {"slug": slug, "displayName": "Shop"}).status == 201
    return made


def http_tool(address: str, path: str = "/${city}") -> dict[str, Any]:
    return {"type": "http", "argSchema": CITY, "impl": {"urlTemplate": f"{address}{path}"}}


def test_an_http_tool_returns_its_value(bundle: Bundle, weather: Weather) -> None:
    bundle.put("weather", http_tool(weather.address))
    reply = bundle.invoke("weather", {"city": "Bern"})
    assert (reply.status, reply.json) == (200, {"ok": True, "value": {"path": "/Bern"}})


def test_a_dry_run_sends_nothing(bundle: Bundle, weather: Weather) -> None:
    bundle.put("weather", http_tool(weather.address, "/dry/${city}"))
    path = f"{bundle.path}/tools/weather/version/v1/invoke"
    for prefer in ("wait=10", "respond-async"):
        body = {"args": {"city": "Bern"}, "dryRun": True}
        reply = bundle.server.send("POST", path, body, {"Prefer": prefer})
        assert (reply.status, reply.json["ok"]) == (200, True)
        assert reply.json["value"]["would"]["url"] == f"{weather.address}/dry/Bern"
    assert not [path for path in weather.paths if path.startswith("/dry")]


def test_a_server_that_fails_is_a_result_and_no_error_of_the_request(
    bundle: Bundle, weather: Weather
) -> None:
    tool = http_tool(weather.address, "/fail/${city}")
    bundle.put("weather", tool)
    reply = bundle.invoke("weather", {"city": "Bern"})
    assert (reply.status, reply.json["ok"], reply.json["error"]["code"]) == (200, False, "http_failed")
    tool["impl"]["errorMode"] = "empty"
    bundle.put("empty", tool)
    assert bundle.invoke("empty", {"city": "Bern"}).json["meta"]["status"] == 500


def test_every_violation_is_reported_and_nothing_is_sent(bundle: Bundle, weather: Weather) -> None:
    bundle.put("weather", http_tool(weather.address, "/never/${city}"))
    reply = bundle.invoke("weather", {"city": "much too long", "when": "now"})
    assert (reply.status, reply.code) == (400, "invalid_input")
    assert {one["path"] for one in reply.json["error"]["violations"]} == {"$.city", "$.when"}
    assert not [path for path in weather.paths if path.startswith("/never")]


def test_a_host_that_the_project_does_not_allow_is_refused(bundle: Bundle) -> None:
    bundle.put("weather", http_tool("https://api.example.com"))
    reply = bundle.invoke("weather", {"city": "Bern"})
    assert (reply.status, reply.code) == (403, "host_not_allowed")


def test_a_tool_nobody_has_trusted_waits_for_a_person(bundle: Bundle, weather: Weather) -> None:
    bundle.put("weather", http_tool(weather.address, "/waits/${city}"), trusted=False)
    reply = bundle.invoke("weather", {"city": "Bern"})
    assert (reply.status, reply.json["status"]) == (202, "awaiting_approval")
    assert not [path for path in weather.paths if path.startswith("/waits")]
    server = bundle.server
    found = server.send("GET", "/trust?waits=true").json["tools"]
    (mine,) = [one for one in found if bundle.id[-12:] in one["name"]]
    assert (mine["status"], weather.address in mine["diff"]) == ("new", True)
    by_name = f"/trust?name={quote(mine['name'], safe='')}"
    assert server.send("GET", by_name).json["tools"] == [mine]
    given = {"tools": {mine["name"]: mine["digest"]}}
    session = server.log_in(server.person_link())
    assert server.send("POST", "/trust", given, session, token=None).status == 204
    assert mine not in server.send("GET", "/trust?waits=true").json["tools"]
    assert server.send("GET", f"{by_name}&waits=true").json["tools"] == []
    server.send("GET", f"/tools/calls/{reply.json['callId']}/events")  # Until its end.
    assert "/waits/Bern" in weather.paths


def test_disabled_deleted_and_missing_tools_are_refused(bundle: Bundle, weather: Weather) -> None:
    bundle.put("weather", http_tool(weather.address))
    tool = f"{bundle.path}/tools/weather/version/v1"
    switch = {"isEnabled": False}
    assert bundle.server.send("PATCH", tool, switch).status == 200
    reply = bundle.invoke("weather", {"city": "Bern"})
    assert (reply.status, reply.code) == (409, "tool_disabled")
    assert bundle.server.send("PATCH", bundle.path, switch).status == 200
    reply = bundle.invoke("weather", {"city": "Bern"})
    assert (reply.status, reply.code) == (409, "bundle_disabled")
    assert bundle.server.send("PATCH", bundle.path, {"isEnabled": True}).status == 200
    assert bundle.server.send("DELETE", tool).status == 204
    assert bundle.invoke("weather", {"city": "Bern"}).status == 404
    assert Bundle(bundle.server, new_id()).invoke("weather").status == 404
    assert Bundle(bundle.server, "x").invoke("weather").code == "invalid_id"
    assert bundle.server.send("DELETE", bundle.path).status == 202
    assert bundle.invoke("weather", {"city": "Bern"}).code == "bundle_deleting"


def test_a_function_of_the_program_reports_as_it_runs(bundle: Bundle, tmp_path: Path) -> None:
    bundle.put("hold", {"type": "go", "argSchema": MARK, "impl": {"goFunc": "Hold"}})
    mark = tmp_path / "mark"
    mark.touch()
    reply = bundle.invoke("hold", {"mark": str(mark)}, Accept="text/event-stream")
    kinds = [line.removeprefix("event: ") for line in reply.body.decode().splitlines() if "event: " in line]
    assert kinds == ["started", "chunk", "result"]
    bundle.put("gone", {"type": "go", "impl": {"goFunc": "Nowhere"}})
    missing = bundle.invoke("gone")
    assert (missing.status, missing.code) == (503, "tool_unavailable")


def test_a_call_with_a_key_is_sent_once(bundle: Bundle, weather: Weather) -> None:
    bundle.put("weather", http_tool(weather.address, "/once/${city}"))
    replies = [bundle.invoke("weather", {"city": "Bern"}, Idempotency_Key="k") for _ in range(3)]
    assert {reply.body for reply in replies} == {b'{"ok":true,"value":{"path":"/once/Bern"}}'}
    assert weather.paths.count("/once/Bern") == 1


def test_a_tool_put_by_a_token_needs_approval_until_a_person_has_trusted_it(bundle: Bundle) -> None:
    tool = {"type": "native", "impl": {"manifest": READS}}
    (bundle.server.root / "notes.txt").write_text("noted")
    bundle.put("read-notes", tool, trusted=False)
    asked = bundle.invoke("read-notes")
    assert asked.status == 202, asked.body
    assert ", which the agent token:admin-" in json.dumps(
        bundle.server.send("GET", f"/tools/calls/{asked.json['callId']}").json
    )
    asyncio.run(bundle.trust("read-notes"))
    assert bundle.invoke("read-notes").status == 200


# -- the bundles of sources --------------------------------------------------------------------------

Source = tuple[Bundle, str, str]
"""A bundle, the address of one of its tools below it, and the error of its changes."""


@pytest.fixture(params=["project", "builtin"])
def source(request: pytest.FixtureRequest, server: HttpServerProcess) -> Iterator[Source]:
    bundles = server.send("GET", "/tools/bundles?pageSize=256").json["bundles"]
    (found,) = [Bundle(server, one["id"]) for one in bundles if one["source"] == request.param]
    own = request.param == "project"
    path = "/tools/add/version/1" if own else "/tools/list-files/version/v1"
    server.send("PATCH", found.path + path, {"isEnabled": True})
    yield found, path, "bundle_read_only" if own else "builtin_read_only"
    for one in ("", path):
        server.send("PATCH", found.path + one, {"isEnabled": True})


def test_a_tool_of_a_source_is_read_and_called_as_any_other(source: Source) -> None:
    bundle, path, _ = source
    send, slug = bundle.server.send, path.split("/")[2]
    record = send("GET", bundle.path + path).json
    built_in = record["source"] == "builtin"
    assert (record["isBuiltIn"], record["type"], record["availability"]) == (built_in, "go", "available")
    assert send("GET", bundle.path).json["isBuiltIn"] is built_in
    listed = send("GET", f"/tools?bundleIDs={bundle.id}&recommendedPageSize=256").json["tools"]
    assert slug in [tool["slug"] for tool in listed]
    assert slug in [
        one["slug"] for one in send("GET", f"/tools/search?q={slug}&bundleIDs={bundle.id}").json["tools"]
    ]
    args = {"path": "."} if built_in else {"a": 2, "b": 3}
    done = send("POST", f"{bundle.path}{path}/invoke", {"args": args}).json
    assert done["ok"], done
    assert send("POST", f"/tools/invoke/{record['name']}", {"args": args}).json == done
    outside = send("POST", f"{bundle.path}{path}/invoke", {"args": {"path": "/etc", "a": "x"}}).json
    assert not outside.get("ok")
    assert send("GET", bundle.path + path).json["callCount"] >= 2
    assert send("GET", f"{bundle.path}{path}/usage").json["callCount"] >= 2


def test_a_source_can_only_be_switched(source: Source) -> None:
    bundle, path, code = source
    go = {"type": "go", "displayName": "x", "impl": {"goFunc": "Sum"}}
    for method, at, body in (
        ("PUT", "", {"slug": "mine"}),
        ("PATCH", "", {"isEnabled": False, "slug": "mine"}),
        ("DELETE", "", None),
        ("PUT", path, go),
        ("PUT", "/tools/new/version/v1", go),
        ("PATCH", path, {"isEnabled": False, "description": "mine"}),
        ("DELETE", path, None),
        ("GET", "/export", None),
    ):
        reply = bundle.server.send(method, bundle.path + at, body)
        assert (reply.status, reply.code) == (403, code), (method, at)


@pytest.mark.parametrize("whole", [False, True])
def test_the_switch_of_a_source_counts_at_every_interface_and_is_kept(source: Source, whole: bool) -> None:
    bundle, path, _ = source
    server, at = bundle.server, bundle.path if whole else bundle.path + path
    name, tag = server.send("GET", bundle.path + path).json["name"], server.send("GET", at).headers["etag"]
    reply = server.send("PATCH", at, {"isEnabled": False}, {"If-Match": tag})
    assert (reply.status, reply.json["isEnabled"]) == (200, False)
    assert server.send("PATCH", at, {"isEnabled": False}, {"If-Match": tag}).status == 412
    code = "bundle_disabled" if whole else "tool_disabled"
    refused = [
        server.send("POST", f"{bundle.path}{path}/invoke", {"args": {}}),
        server.send("POST", f"/tools/invoke/{name}", {"args": {}}),
    ]
    assert [(one.status, one.code) for one in refused] == [(409, code)] * 2
    listed = server.send("GET", "/tools?recommendedPageSize=256").json["tools"]
    assert name not in [one["name"] for one in listed]
    with http_server(server.root, program=("-m", "tests.e2e.rest.rest_server")) as later:
        assert later.send("GET", at).json["isEnabled"] is False
        assert later.send("POST", f"/tools/invoke/{name}", {"args": {}}).code == code
        assert server.send("PATCH", at, {"isEnabled": True}).status == 200
        args = {"a": 1, "b": 1} if name == "add" else {}
        deadline = time.monotonic() + patient(20)
        while not later.send("POST", f"/tools/invoke/{name}", {"args": args}).json.get("ok"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    event = f"{'BUNDLE' if whole else 'TOOL'}_DISABLED"
    (line, *_) = server.send("GET", f"/audit?event={event}").json["lines"]
    assert line["fields"]["caller"].startswith("token:")


def test_the_built_in_tools_are_a_bundle(server: HttpServerProcess) -> None:
    query = "/tools?sources=builtin&includeDisabled=true&recommendedPageSize=256"
    listed = server.send("GET", query).json["tools"]
    assert {tool["displayName"] for tool in listed} == {*NAMES}
    assert {tool["bundle"] for tool in listed} == {"builtin"}
    assert {tool["version"] for tool in listed} == {"v1"}


# -- a slow client -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/tools/invoke/add", "/tools/bundles/018faf50-b7b6-7a01-9a05-a22a6e0af101"])
@pytest.mark.parametrize("sent", [b"", b'{"args"'])
def test_a_body_that_does_not_come_is_given_up(tmp_path: Path, path: str, sent: bytes) -> None:
    crib = Crib(tmp_path / "project")
    program = ("-m", "tests.e2e.rest.rest_server")
    with http_server(crib.root, "--body-s", "1", program=program) as server:
        assert server.send("POST", "/tools/invoke/add", {"args": {"a": 1, "b": 2}}).status == 200
        method = "POST" if "invoke" in path else "PUT"
        with socket.create_connection(("127.0.0.1", server.port), timeout=patient(20)) as client:
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
                f"Authorization: Bearer {server.token}\r\nContent-Type: application/json\r\n"
                "Content-Length: 100\r\n\r\n"
            )
            client.sendall(head.encode() + sent)
            answer = b"".join(iter(lambda: client.recv(65_536), b""))  # the server closes the connection
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"slow_request"' in answer
        assert server.send("POST", "/tools/invoke/add", {"args": {"a": 1, "b": 2}}).status == 200
