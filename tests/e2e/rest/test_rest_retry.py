"""A call over HTTP with its history, and its retry, on both databases."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.commands import run
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server

LATER = {"Prefer": "respond-async"}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite"
    return str(request.getfixturevalue("postgres").url(f"test_{uuid.uuid4().hex}"))


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("retry") / "project")
    permissions = {"fs": {"read": ["."]}}
    exec_ = {"entrypoint": "cat", "args": ["${path}"]}
    crib.tool(
        "show",
        "command",
        exec_,
        {"path": {"type": "string"}},
        permissions=permissions,
        retry={"max_attempts": 2},
        outputs={"format": "text"},
    )
    with http_server(crib.root, env={"DATABASE_URL": database}) as running:
        yield running


def accepted(server: HttpServerProcess, path: str, token: str = "") -> str:
    reply = server.send("POST", "/tools/invoke/show", {"args": {"path": path}}, LATER, token=token)
    assert reply.status == 202, reply.body
    return str(reply.json["callId"])


def until(server: HttpServerProcess, call: str, is_so: Callable[[Any], bool], token: str = "") -> Any:
    deadline = time.monotonic() + 100
    while not is_so(found := server.send("GET", f"/tools/calls/{call}", token=token).json):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def has_failed(call: Any) -> bool:
    return bool(call["status"] == "error")


def test_a_failed_call_is_retried_and_its_history_has_every_attempt(server: HttpServerProcess) -> None:
    call = accepted(server, "later.txt")
    failed = until(server, call, has_failed)
    attempts = failed["history"]["attempts"]
    assert [one["ending"] for one in attempts] == ["retry", "failed"]
    assert all("later.txt" in one["reason"] and one["beganAt"] <= one["endedAt"] for one in attempts)
    kinds = ["submitted", "claimed", "retry", "claimed", "failed"]
    assert [one["kind"] for one in failed["history"]["changes"]] == kinds

    (server.root / "later.txt").write_text("here")
    again = server.send("POST", f"/tools/calls/{call}/retry")
    assert (again.status, again.json["id"]) == (200, call), again.body
    done = until(server, call, lambda one: one["status"] == "ok")
    assert done["result"] == {"ok": True, "value": "here"}
    assert [one["ending"] for one in done["history"]["attempts"]] == ["retry", "failed", "done"]
    assert [one["kind"] for one in done["history"]["changes"]] == [*kinds, "retried", "claimed", "done"]
    assert all("history" not in one for one in server.send("GET", "/tools/calls").json["calls"])

    twice = server.send("POST", f"/tools/calls/{call}/retry")
    assert (twice.status, twice.code) == (409, "conflict")


def test_a_retry_by_another_process_is_seen(server: HttpServerProcess, database: str) -> None:
    call = accepted(server, "second.txt")
    until(server, call, has_failed)
    (server.root / "second.txt").write_text("here")
    env = {**os.environ, "TOOLCRIB_DATA": str(server.data), "DATABASE_URL": database}
    retried = run(["calls", "retry", call], server.root, env)
    assert retried.returncode == 0, retried.stderr
    until(server, call, lambda one: one["status"] == "ok")
    (listed,) = [one for one in server.send("GET", "/tools/calls").json["calls"] if one["id"] == call]
    assert listed["status"] == "ok"


def test_who_may_retry_a_call(server: HttpServerProcess) -> None:
    maker, reader = server.create_token("maker", "invoke", "read"), server.create_token("reader", "read")
    other = server.create_token("other", "invoke", "read")
    call = accepted(server, "missing.txt", maker)
    until(server, call, has_failed, maker)
    path = f"/tools/calls/{call}/retry"
    assert server.send("POST", path, token=None).status == 401
    assert server.send("POST", path, token=reader).status == 403
    assert server.send("POST", path, token=other).status == 404
    admin = server.send("POST", path)
    assert (admin.status, admin.code) == (403, "denied"), "it would act as its maker"
    assert server.send("POST", path, token=maker).status == 200
    assert until(server, call, has_failed, maker)["history"]["changes"][-1]["kind"] == "failed"


def test_a_call_that_its_client_waited_for_is_not_in_the_store(server: HttpServerProcess) -> None:
    body = {"args": {"path": "no.txt"}}
    assert not server.send("POST", "/tools/invoke/show", body, {"Prefer": "wait=30"}).json["ok"]
    (call,) = [
        one for one in server.send("GET", "/tools/calls").json["calls"] if "no.txt" in str(one["result"])
    ]
    assert "history" not in server.send("GET", f"/tools/calls/{call['id']}").json
    again = server.send("POST", f"/tools/calls/{call['id']}/retry")
    assert (again.status, again.code) == (409, "conflict")
    assert "Make the call again" in again.json["error"]["hint"]
