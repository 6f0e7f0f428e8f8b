"""Agents, sessions and runs over REST, against a server in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from toolcrib.guard import Tokens
from toolcrib.state import Vault

AGENT = {
    "name": "counter",
    "description": "Counts.",
    "model": "scripted",
    "tools": ["say"],
    "script": [
        {"calls": [{"tool": "say", "arguments": {"word": "{{prompt}}"}}]},
        {"text": "It said {{result}}"},
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("runs") / "project")
    crib.tool(
        "say",
        "command",
        {"entrypoint": "echo", "args": ["${word}"]},
        {"word": {"type": "string"}},
        outputs={"format": "text"},
    )
    crib.write(".toolcrib/agents/counter.yml", json.dumps(AGENT))
    failing = {**AGENT, "name": "short", "budgets": {"iterations": 1}}
    crib.write(".toolcrib/agents/short.yml", json.dumps(failing))
    crib.write(".toolcrib/agents/broken.yml", "name: broken\nmodel: scripted\nmore: canary-4711\n")
    with http_server(Path(crib.root)) as running:
        yield running


def ended(server: HttpServerProcess, run_id: str, token: str = "") -> Any:
    deadline = time.monotonic() + 100
    while (run := server.send("GET", f"/runs/{run_id}", token=token).json)["state"] not in ("done", "failed"):
        assert time.monotonic() < deadline, run
        time.sleep(0.05)
    return run


def test_a_run_from_its_beginning_to_a_fork(server: HttpServerProcess) -> None:
    assert [agent["name"] for agent in server.send("GET", "/agents").json["agents"]] == ["counter", "short"]
    assert server.send("GET", "/agents/counter").json["tools"] == ["say"]
    assert server.send("GET", "/agents/nobody").status == 404
    session = server.send("POST", "/sessions", {"metadata": {"customer": 3}})
    assert (session.status, session.json["metadata"]) == (201, {"customer": 3})
    body = {"agent": "counter", "prompt": "one", "sessionId": session.json["id"], "variables": {"tenant": 7}}
    begun = server.send("POST", "/runs", body)
    assert begun.status == 201, begun.body
    run_id = begun.json["id"]
    assert begun.headers["location"].endswith(f"/runs/{run_id}")
    run = ended(server, run_id)
    assert (run["answer"], run["variables"]) == ("It said one\n", {"tenant": 7})
    assert [one["id"] for one in server.send("GET", "/runs?agent=counter&state=done").json["runs"]] == [
        run_id
    ]
    assert len(server.send("GET", f"/runs/{run_id}/tree").json["runs"]) == 1
    timeline = server.send("GET", f"/runs/{run_id}/timeline").json
    assert timeline["iterations"][0]["calls"][0]["name"] == "say"
    assert server.send("POST", f"/runs/{run_id}/cancel").status == 409
    assert server.send("POST", f"/runs/{run_id}/retry", {}).status == 409
    other = server.create_token("chief", "admin")  # Its run, so its calls are not those of another caller.
    forked = server.send("POST", f"/runs/{run_id}/fork", {"iteration": 1}, token=other)
    assert (forked.status, forked.json["forkedFromId"], forked.json["caller"]) == (201, run_id, "token:chief")
    assert ended(server, forked.json["id"])["answer"] == "It said one\n"


def test_events_are_streamed_and_resumed(server: HttpServerProcess) -> None:
    run_id = server.send("POST", "/runs", {"agent": "counter", "prompt": "two", "stream": True}).json["id"]
    whole = server.send("GET", f"/runs/{run_id}/events").body.decode()
    kinds = [line.removeprefix("event: ") for line in whole.splitlines() if line.startswith("event: ")]
    assert kinds[0] == "created"
    assert kinds[-2:] == ["answered", "done"]
    numbers = [line.removeprefix("id: ") for line in whole.splitlines() if line.startswith("id: ")]
    rest = server.send("GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": numbers[-2]}).body.decode()
    assert rest.startswith(f"id: {numbers[-1]}\nevent: done\n")
    assert server.send("GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": numbers[-1]}).status == 204
    assert server.send("GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": "x"}).status == 400


def test_a_stream_of_runs_ends_when_its_token_is_revoked(server: HttpServerProcess) -> None:
    token = server.create_token("watches", "admin")
    run_id = server.send("POST", "/runs", {"agent": "counter", "prompt": "before"}).json["id"]
    known = server.send("GET", f"/runs/{run_id}/events").body.decode()
    last = [line.removeprefix("id: ") for line in known.splitlines() if line.startswith("id: ")][-1]
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(
        "GET", "/runs/events", headers={"Authorization": f"Bearer {token}", "Last-Event-ID": last}
    )
    stream = connection.getresponse()
    assert stream.status == 200
    tokens = Tokens(Vault(server.root, server.data))
    tokens.revoke("watches")
    tokens.close()
    server.send("POST", "/runs", {"agent": "counter", "prompt": "after"})
    assert [line for line in stream.read().splitlines() if line and not line.startswith(b":")] == []
    connection.close()


def test_a_token_sees_its_own_runs_and_uses_its_own_tools(server: HttpServerProcess) -> None:
    reader = server.create_token("reader", "read")
    writer = server.create_token("writer", "invoke", tools=["other"])
    begin = {"agent": "counter", "prompt": "three"}
    assert server.send("POST", "/runs", begin, token=reader).status == 403
    mine = server.send("POST", "/runs", begin, token=writer)
    assert mine.status == 201, mine.body
    assert ended(server, mine.json["id"], writer)["answer"] != "It said three\n"
    assert [one["id"] for one in server.send("GET", "/runs", token=writer).json["runs"]] == [mine.json["id"]]
    assert server.send("GET", "/runs", token=reader).json["runs"] == []
    assert server.send("GET", f"/runs/{mine.json['id']}", token=reader).status == 404
    assert server.send("GET", "/runs/events", token=writer).status == 403
    session = server.send("POST", "/sessions", {}).json["id"]
    assert server.send("POST", "/runs", {**begin, "sessionId": session}, token=writer).status == 404


def test_no_token_lets_a_run_of_another_caller_go_on(server: HttpServerProcess) -> None:
    begun = server.send("POST", "/runs", {"agent": "short", "prompt": "four"}).json["id"]
    assert ended(server, begun)["state"] == "failed"
    other = server.create_token("other-chief", "admin", tools=["none"])
    assert server.send("GET", f"/runs/{begun}", token=other).status == 200
    refused = server.send("POST", f"/runs/{begun}/retry", {}, token=other)
    assert refused.status == 403, refused.body
    assert refused.code == "denied"
    assert server.send("GET", f"/runs/{begun}").json["state"] == "failed"
    assert server.send("POST", f"/runs/{begun}/retry", {}).status == 200  # By whoever began it.


def test_what_is_wrong_is_named(server: HttpServerProcess) -> None:
    assert server.send("POST", "/runs", {"agent": "nobody", "prompt": "x"}).status == 404
    assert server.send("POST", "/runs", {"agent": "counter", "prompt": ""}).status == 400
    assert server.send("POST", "/runs", {"agent": "counter", "prompt": "x", "more": 1}).status == 400
    assert server.send("GET", "/runs/none").status == 404
    assert server.send("GET", "/runs?pageToken=zz").status == 400
    wrong = server.send("POST", "/runs", {"agent": "broken", "prompt": "x"})
    assert (wrong.status, wrong.json["error"]["code"]) == (400, "invalid_manifest")
    assert b"canary" not in wrong.body, "a client gets positions, and no lines of files"


def test_runs_are_filtered_and_all_that_match_are_cancelled(server: HttpServerProcess) -> None:
    token = server.create_token("many", "invoke", "read")

    def send(path: str, body: Any) -> Any:
        return server.send("POST", path, body, token=token)

    done = ended(server, send("/runs", {"agent": "counter", "prompt": "x"}).json["id"], token)
    query = "tool=say&state=done&since=2020-01-01T00:00:00Z"
    listed = server.send("GET", f"/runs?{query}", token=token).json["runs"]
    assert [run["id"] for run in listed] == [done["id"]]
    assert server.send("GET", "/runs?until=2020-01-01T00:00:00Z", token=token).json["runs"] == []
    assert server.send("GET", "/runs?caller=cli", token=token).status == 403
    assert send("/runs/retry", {"agent": "short"}).json == {"count": 0, "done": [], "refused": {}}
    failed = ended(server, send("/runs", {"agent": "short", "prompt": "x"}).json["id"], token)
    assert failed["state"] == "failed"
    assert send("/runs/retry", {"agent": "short"}).json["count"] == 1
    assert send("/runs/retry", {"agent": "short", "atMost": 1}).json["done"] == [failed["id"]]
    ended(server, failed["id"], token)
    send("/runs", {"agent": "short", "prompt": "x"})
    assert send("/runs/retry", {"state": "done", "atMost": 9}).json["count"] == 0
    assert send("/runs/cancel", {"agent": "nobody", "atMost": 1}).json["count"] == 0
