"""The routes of tools that are not stored yet, and of who may call a tool, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.crib import SH, Crib
from tests.http_server import HttpServerProcess, Reply, http_server
from tests.patience import wait_for

pytestmark = pytest.mark.usefixtures("kernel")
COMMAND = {"entrypoint": "sh", "args": ["-c", "${c}"], "allow_code": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("drafts") / "project")
    crib.shell("greet", tags=["demo"])
    rules = [{"name": "no-ci", "effect": "deny", "tools": ["greet"], "callers": ["token:ci"]}]
    crib.write(".toolcrib/config.yml", json.dumps({"policy": {"rules": rules}}))
    crib.trust()
    with http_server(crib.root) as running:
        yield running


@pytest.fixture(scope="module")
def person(server: HttpServerProcess) -> dict[str, str]:
    """The headers of the person's browser."""
    return server.log_in(server.person_link())


def manifest(name: str = "drafted", kind: str = "command", block: Any = None, **more: Any) -> str:
    schema = {"type": "object", "properties": SH, "additionalProperties": False}
    definition = {
        "name": name,
        "description": "Runs.",
        "kind": kind,
        "version": 1,
        "inputs": {"schema": schema},
    }
    return json.dumps({**definition, "exec": {kind: block or COMMAND}, "outputs": {"format": "text"}, **more})


def check(server: HttpServerProcess, text: str) -> Any:
    reply = server.send("POST", "/tools/draft", {"text": text})
    assert reply.status == 200, reply.body
    return reply.json


def run(server: HttpServerProcess, text: str, person: dict[str, str] | None, **more: Any) -> Reply:
    body = {"text": text, **more}
    return server.send("POST", "/tools/draft/invoke", body, person, token=None if person else "")


def result_of(server: HttpServerProcess, reply: Reply) -> Any:
    """Return the result of a call, also of one that took longer than its client waited."""
    if reply.status != 202:
        return reply.json
    call = f"/tools/calls/{reply.json['callId']}"
    wait_for(lambda: server.send("GET", call).json["result"] is not None, "the result")
    return server.send("GET", call).json["result"]


def test_a_draft_is_checked_with_the_place_of_each_finding(server: HttpServerProcess) -> None:
    found = check(server, "name: drafted\nkind: command\nversion: 1\nexec:\n  command:\n    entrypont: sh\n")
    assert found["tool"] is None
    assert 6 in [one["line"] for one in found["diagnostics"]]
    found = check(server, manifest(permissions={"fs": {"read": ["notes"]}}))
    assert found["errors"] == 0
    assert (found["tool"]["slug"], found["tool"]["argSchema"]["properties"]) == ("drafted", SH)
    assert "read notes" in found["tool"]["touches"]
    assert found["manifest"]["permissions"] == {"fs": {"read": ["notes"]}}


def test_a_record_of_flexigpt_is_a_draft_too(server: HttpServerProcess) -> None:
    impl = {"urlTemplate": "https://api.example.com/${id}"}
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    record = {
        "type": "http",
        "slug": "get",
        "version": "v1",
        "description": "Gets.",
        "argSchema": schema,
        "impl": impl,
    }
    found = check(server, json.dumps(record))
    assert found["errors"] == 0
    assert (found["tool"]["slug"], found["tool"]["version"], found["tool"]["kind"]) == ("get", "v1", "http")


def test_a_dry_run_of_a_draft_runs_nothing(server: HttpServerProcess) -> None:
    reply = run(server, manifest(), None, args={"c": "touch made"}, dryRun=True)
    assert reply.json["ok"]
    assert "touch made" in json.dumps(reply.json["value"])
    assert not (server.root / "made").exists()
    wrong = run(server, manifest(), None, args={"d": 1}, dryRun=True)
    assert (wrong.status, wrong.code) == (400, "invalid_input")


def test_a_draft_runs_once_a_person_trusts_exactly_it(
    server: HttpServerProcess, person: dict[str, str]
) -> None:
    text = manifest(permissions={"fs": {"write": ["."]}})
    digest = check(server, text)["tool"]["digest"]
    assert run(server, text, person, args={"c": "touch made"}).code == "approval_required"
    changed = manifest(permissions={"fs": {"write": ["."]}}, tags=["other"])
    assert run(server, changed, person, args={"c": "touch made"}, trust=digest).code == "approval_required"
    assert run(server, text, None, args={"c": "touch made"}, trust=digest).code == "denied"
    assert not (server.root / "made").exists()
    reply = run(server, text, person, args={"c": "touch made; echo done"}, trust=digest)
    assert result_of(server, reply) == {"ok": True, "value": "done\n"}
    assert (server.root / "made").exists()
    lines = server.send("GET", "/audit?tool=_draft/drafted@1").json["lines"]
    assert {line["event"] for line in lines} >= {"TOOL_APPROVED", "TOOL_EXECUTED"}
    listed = server.send("GET", "/tools/search?q=drafted").json
    assert listed["total"] == 0


def test_a_watched_run_proposes_the_smallest_permissions(
    server: HttpServerProcess, person: dict[str, str]
) -> None:
    for name in ("data/a", "data/b", "other"):
        (server.root / name).parent.mkdir(exist_ok=True)
        (server.root / name).write_text("x")
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in json.loads(manifest()).items())
    text += "permissions:\n  fs: {read: [data, other]}\n"
    call: Any = {"args": {"c": "cat data/a data/b; echo hello > fresh"}, "watch": True}
    assert run(server, text, person, **call).code == "approval_required"
    call["trust"] = check(server, text)["tool"]["digest"]
    assert run(server, text, None, **call).code == "denied"
    assert run(server, text, person, **call, dryRun=True).code == "usage"
    result = result_of(server, run(server, text, person, **call))
    watched = result["watched"]
    assert not result["ok"]
    assert [(one["permission"], one["words"]) for one in watched["needed"]] == [
        ("fs.read", "read data/a"),
        ("fs.read", "read data/b"),
    ]
    assert [one["words"] for one in watched["missing"]] == ["write ."]
    assert [one["words"] for one in watched["unused"]] == ["read other"]
    observed = watched["observed"]
    assert (observed["reads"], observed["writes"], observed["hosts"]) == (["data/a", "data/b"], ["."], [])
    assert any(one.endswith("/cat") for one in observed["programs"])
    taken = {"text": text, "grants": [*watched["needed"], *watched["missing"]]}
    reply = server.send("POST", "/tools/draft/permissions", taken)
    assert reply.json["text"].startswith(text.partition("permissions:")[0])
    touches = check(server, reply.json["text"])["tool"]["touches"]
    assert [one for one in touches if one.startswith(("read", "write"))] == [
        "read data/a",
        "read data/b",
        "write .",
    ]
    refused = server.send("POST", "/tools/draft/permissions", {**taken, "text": manifest()})
    assert (refused.status, refused.code) == (400, "usage")


def test_a_stored_tool_is_watched_as_it_is(server: HttpServerProcess, person: dict[str, str]) -> None:
    (server.root / "noted").write_text("x")
    body: Any = {"tool": "greet", "args": {"c": "cat noted"}, "watch": True}
    draft = server.send("POST", "/tools/draft", {"tool": "greet"}).json["tool"]
    body["trust"] = draft["digest"]
    reply = server.send("POST", "/tools/draft/invoke", body, person, token=None)
    missing = result_of(server, reply)["watched"]["missing"]
    assert [(one["permission"], one["value"]) for one in missing] == [("fs.read", "noted")]
    # Nothing of it stays: the tool runs as before.
    assert server.send("POST", "/tools/invoke/greet", {"args": {"c": "echo on"}}).json == {
        "ok": True,
        "value": "on\n",
    }
    assert server.send("POST", "/tools/draft", {}).code == "usage"


def test_the_steps_of_a_draft_are_calls_as_any_other(
    server: HttpServerProcess, person: dict[str, str]
) -> None:
    steps = [
        {"id": "first", "tool": "greet", "args": {"c": "${c}"}},
        {"id": "second", "tool": "greet", "args": {"c": "${steps.first.value}"}},
    ]
    text = manifest("two_steps", "composite", {"steps": steps})
    draft = check(server, text)["tool"]
    assert any(one.startswith("greet: ") for one in draft["touches"])
    reply = run(server, text, person, args={"c": "echo echo twice"}, trust=draft["digest"])
    assert result_of(server, reply)["value"] == "twice\n"
    missing = manifest("broken", "composite", {"steps": [{"id": "one", "tool": "nowhere"}]})
    assert "nowhere" in check(server, missing)["tool"]["unavailableBecause"]


def test_a_long_call_of_a_draft_is_followed_and_cancelled(
    server: HttpServerProcess, person: dict[str, str]
) -> None:
    text = manifest()
    digest = check(server, text)["tool"]["digest"]
    reply = run(server, text, person, args={"c": "sleep 600"}, trust=digest)
    assert reply.status == 202
    call = f"/tools/calls/{reply.json['callId']}"
    assert server.send("GET", call).json["tool"] == "_draft/drafted@1"
    assert server.send("DELETE", call).json["status"] == "cancelled"


def test_who_may_call_a_tool(server: HttpServerProcess) -> None:
    for name, tools in (("ci", None), ("other", ["nothing"])):
        server.create_token(name, "invoke", tools=tools)
    found = server.send("GET", "/tools/search?q=greet").json["tools"][0]
    address = f"/tools/bundles/{found['bundleID']}/tools/{found['slug']}/version/{found['version']}/callers"
    reply = server.send("GET", address)
    assert reply.status == 200, reply.body
    callers = {one["caller"]: one for one in reply.json["callers"]}
    assert callers["page"]["effect"] == callers["mcp"]["effect"] == "allow"
    assert "no-ci" in callers["token:ci"]["why"]
    assert {callers["token:ci"]["effect"], callers["token:other"]["effect"]} == {"deny"}
    one = address.removesuffix("/callers")
    assert server.send("PATCH", one, {"isEnabled": False}).status == 200
    assert server.send("GET", address).status == 200
    assert server.send("PATCH", one, {"isEnabled": True}).status == 200


def test_a_command_of_curl_becomes_a_manifest(server: HttpServerProcess) -> None:
    text = "curl -H 'Authorization: Bearer geheim' 'https://api.example.com/find?q=tea'"
    made = server.send("POST", "/import/curl", {"text": text}).json
    assert "geheim" not in made["manifest"]
    assert check(server, made["manifest"])["errors"] == 0
    assert server.send("POST", "/import/curl", {"text": "wget x"}).code == "invalid_manifest"


def test_a_document_is_imported_by_its_address(server: HttpServerProcess) -> None:
    asked = {"url": f"{server.address}/openapi.json", "only": ["list_t*"]}
    report = server.send("POST", "/import/openapi", asked).json
    assert {one["tool"] for one in report["operations"]} >= {"list_tools", "list_tokens"}
    assert report["written"] == []
    missing = server.send("POST", "/import/openapi", {"url": f"{server.address}/nowhere"})
    assert missing.code == "http_failed"
