"""The routes about a whole project, over HTTP: approvals, audit, secrets, policy, trust, the machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, Reply, http_server
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.bundles.archive import export_bundle
from toolcrib.guard import Ledger, Tokens
from toolcrib.spec.identifier import new_id
from toolcrib.state import PROJECT, SqliteDatabase, Vault
from toolcrib.state.outgoing.outbox import ChannelMessages

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("admin") / "project")
    crib.write("data", "x")
    for name in ("look", "asks"):
        more = {"approval": {"required": True, "reason": "It looks."}} if name == "asks" else {}
        properties = {"path": {"type": "string"}, "note": {"type": "string"}}
        read = {"fs": {"read": ["data"]}}
        crib.tool(name, "file", {"action": "read", "path": "${path}"}, properties, permissions=read, **more)
    permissions = {"network": {"allow": ["api.example.com"]}, "secrets": {"SHOP_KEY": {"type": "string"}}}
    request = {"url": "https://api.example.com/", "headers": {"Key": "${SHOP_KEY}"}}
    crib.tool("shop", "http", request, permissions=permissions)
    rules = [{"name": "no-shop", "effect": "deny", "tools": ["shop"], "callers": ["token:*", "local"]}]
    crib.write(".toolcrib/config.yml", json.dumps({"policy": {"rules": rules}}))
    with http_server(crib.root, env={"SHOP_KEY": ""}) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: HttpServerProcess) -> dict[str, str]:
    """The headers of the person's browser."""
    return server.log_in(server.login)


def ask(server: HttpServerProcess, token: str = "") -> str:
    """Make a call that waits for a person; return the id of its approval."""
    reply = server.send(
        "POST", "/tools/invoke/asks", {"args": {"path": "data", "note": new_id()}}, token=token
    )
    assert (reply.status, reply.json.get("status")) == (202, "awaiting_approval"), reply.body
    found = server.send("GET", f"/tools/calls/{reply.json['callId']}", token=token).json["approvalId"]
    assert isinstance(found, str)
    return found


def decide(
    server: HttpServerProcess, approval: str, what: str, session: dict[str, str], **more: Any
) -> Reply:
    seal = server.send("GET", f"/approvals/{approval}").json["seal"]
    body = {"seal": seal, **more}
    return server.send("POST", f"/approvals/{approval}/{what}", body, session, token=None)


def ended(server: HttpServerProcess, approval: str) -> dict[str, Any]:
    """The call of an approval, once it has ended."""
    call = server.send("GET", f"/approvals/{approval}").json["callId"]
    end = time.monotonic() + 100
    while time.monotonic() < end:
        found: dict[str, Any] = server.send("GET", f"/tools/calls/{call}").json
        if found["endedAt"] is not None:
            return found
        time.sleep(0.02)
    raise AssertionError("the call has not ended")


def test_a_person_approves_a_call_at_the_page_and_it_runs(
    server: HttpServerProcess, session: dict[str, str]
) -> None:
    approval = ask(server)
    waiting = server.send("GET", "/approvals?status=pending").json["approvals"]
    assert [one["id"] for one in waiting] == [approval]
    assert (waiting[0]["tool"], waiting[0]["arguments"]["path"]) == ("asks", "data")
    assert server.send("GET", f"/approvals/{approval}").json["facts"]
    done = decide(server, approval, "approve", session, note="fine")
    assert (done.status, done.json["status"], done.json["note"]) == (200, "approved", "fine")
    assert ended(server, approval)["result"]["ok"] is True
    assert decide(server, approval, "approve", session).code == "conflict"
    line = server.send("GET", "/audit?event=TOOL_APPROVED&tool=asks").json["lines"][0]
    assert line["fields"]["channel"] == "page"


def test_a_person_denies_a_call_at_the_page(server: HttpServerProcess, session: dict[str, str]) -> None:
    approval = ask(server)
    assert decide(server, approval, "deny", session, note="not today").json["status"] == "denied"
    result = ended(server, approval)["result"]
    assert (result["ok"], result["error"]["code"]) == (False, "approval_denied")
    assert "not today" in json.dumps(result["error"])


def test_a_decision_is_about_what_was_shown(server: HttpServerProcess, session: dict[str, str]) -> None:
    approval = ask(server)
    path = f"/approvals/{approval}/approve"
    assert server.send("POST", path, {}, session, token=None).code == "missing_field"
    assert server.send("POST", path, {"seal": "0" * 64}, session, token=None).status in (400, 403, 409)
    assert decide(server, approval, "approve", session, arguments={"path": 1}).code == "invalid_input"
    assert server.send("GET", f"/approvals/{approval}").json["status"] == "pending"
    assert decide(server, approval, "deny", session).status == 200


def test_a_token_decides_for_others_only(server: HttpServerProcess, session: dict[str, str]) -> None:
    caller = server.create_token("caller", "invoke", "approve")
    approval = ask(server, token=caller)
    seal = server.send("GET", f"/approvals/{approval}").json["seal"]
    path = f"/approvals/{approval}/approve"
    own = server.send("POST", path, {"seal": seal}, token=caller)
    assert (own.status, own.code) == (403, "denied")
    same_owner = server.send("POST", path, {"seal": seal})
    assert (same_owner.status, same_owner.code) == (403, "denied")
    reader = server.create_token("looks", "read", "invoke")
    for method, at, body in (("GET", "/approvals", None), ("POST", path, {"seal": seal})):
        assert server.send(method, at, body, token=reader).status == 403
    other = server.create_token("other-tools", "approve", tools=["look"])
    assert server.send("GET", "/approvals", token=other).json["approvals"] == []
    assert server.send("GET", f"/approvals/{approval}", token=other).status == 404
    assert decide(server, approval, "deny", session).status == 200


def test_decisions_in_force_are_listed_and_revoked(
    server: HttpServerProcess, session: dict[str, str]
) -> None:
    """An approval that lasts lets the same call run, until it is revoked; tokens cannot revoke denials."""
    caller = server.create_token("often", "invoke", "read")
    body = {"args": {"path": "data", "note": "often"}}

    def status() -> int:
        return server.send("POST", "/tools/invoke/asks", body, token=caller).status

    asked = server.send("POST", "/tools/invoke/asks", body, token=caller).json["callId"]
    lasting = server.send("GET", f"/tools/calls/{asked}", token=caller).json["approvalId"]
    assert decide(server, lasting, "approve", session, scope="arguments").status == 200
    # Before the approval is revoked: a call that has not run by then asks once more.
    assert ended(server, lasting)["result"]["ok"] is True
    denied = ask(server)
    assert decide(server, denied, "deny", session).status == 200
    assert status() == 200

    grants = server.send("GET", "/grants?pageSize=1").json
    assert [(one["id"], one["answer"]) for one in grants["grants"]] == [(denied, "denied")]
    page = server.send("GET", f"/grants?pageSize=256&pageToken={grants['nextPageToken']}").json["grants"]
    assert [(one["answer"], one["scope"], one["tool"]) for one in page if one["id"] == lasting] == [
        ("approved", "arguments", "asks")
    ]
    other = server.create_token("of-other-tools", "approve", tools=["look"])
    assert server.send("GET", "/grants", token=other).json["grants"] == []
    assert server.send("DELETE", f"/grants/{lasting}", token=other).code == "not_found"
    for method, path in (("GET", "/grants"), ("DELETE", f"/grants/{lasting}")):
        assert server.send(method, path, token=caller).status == 403
    assert status() == 200

    assert server.send("DELETE", f"/grants/{lasting}").json["state"] == "revoked"
    assert (status(), server.send("DELETE", f"/grants/{lasting}").code) == (202, "not_found")
    (again,) = server.send("GET", "/approvals?status=pending").json["approvals"]
    assert decide(server, again["id"], "deny", session).status == 200
    assert server.send("DELETE", f"/grants/{denied}").code == "denied"
    assert server.send("DELETE", f"/grants/{denied}", headers=session, token=None).status == 200
    line = server.send("GET", "/audit?event=APPROVAL_REVOKED&tool=asks").json["lines"][0]
    assert (line["fields"]["approval"], line["fields"]["channel"]) == (denied, "page")


def test_approvals_come_in_pages(server: HttpServerProcess, session: dict[str, str]) -> None:
    made = [ask(server) for _ in range(3)]
    first = server.send("GET", "/approvals?status=pending&pageSize=2").json
    rest = server.send("GET", f"/approvals?status=pending&pageSize=2&pageToken={first['nextPageToken']}").json
    assert [one["id"] for one in first["approvals"] + rest["approvals"]] == made[::-1]
    assert rest["nextPageToken"] is None
    for one in made:
        decide(server, one, "deny", session)


def test_the_audit_log_is_searched_and_verified(server: HttpServerProcess) -> None:
    for _ in range(3):
        server.send("POST", "/tools/invoke/look", {"args": {"path": "data"}})
    first = server.send("GET", "/audit?tool=look&event=TOOL_EXECUTED&pageSize=2").json
    rest = server.send(
        "GET", f"/audit?tool=look&event=TOOL_EXECUTED&pageSize=2&pageToken={first['nextPageToken']}"
    ).json
    numbers = [line["seq"] for line in first["lines"] + rest["lines"]]
    assert (len(numbers), numbers) == (3, sorted(numbers, reverse=True))
    assert server.send("GET", "/audit?since=2999-01-01T00:00:00Z").json["lines"] == []
    assert server.send("GET", "/audit?since=yesterday").code == "invalid_input"
    exported = server.send("GET", "/audit/export?tool=look&event=TOOL_EXECUTED")
    assert exported.headers["content-disposition"] == 'attachment; filename="audit.jsonl"'
    lines = [json.loads(one) for one in exported.body.splitlines()]
    assert len(lines) == 3
    assert lines[:2] == first["lines"]
    verdict = server.send("GET", "/audit/verify").json
    assert (verdict["ok"], verdict["problem"]) == (True, None)


def test_secrets_are_shown_without_their_values(server: HttpServerProcess) -> None:
    found = server.send("GET", "/secrets").json
    (need,) = found["secrets"]
    assert (found["ok"], need["name"], need["state"]) == (False, "SHOP_KEY", "missing")
    assert need["hosts"] == ["api.example.com"]


def test_the_policy_is_shown_and_explained(server: HttpServerProcess) -> None:
    server.create_token("buyer", "invoke")
    assert [rule["name"] for rule in server.send("GET", "/policy").json["rules"]] == ["no-shop"]
    body = {"tool": "shop", "caller": "token:buyer"}
    denied = server.send("POST", "/policy/explain", body).json
    assert (denied["effect"], denied["rule"]) == ("deny", "no-shop")
    assert server.send("POST", "/policy/explain", {"tool": "shop"}).json["effect"] == "allow"
    assert server.send("POST", "/policy/explain", {"tool": "sop"}).code == "tool_not_found"
    assert server.send("POST", "/policy/explain", {"tool": "shop", "caller": "token:no"}).status == 404


def test_trust_and_the_machine_are_shown(server: HttpServerProcess) -> None:
    found = server.send("GET", "/trust").json
    assert found["accepted"] is True
    assert {one["name"]: one["waits"] for one in found["tools"]} == dict.fromkeys(
        ("look", "asks", "shop"), False
    )
    assert server.send("GET", "/trust?waits=true").json["tools"] == []
    first = server.send("GET", "/trust?pageSize=2").json
    rest = server.send("GET", f"/trust?pageSize=2&pageToken={first['nextPageToken']}").json
    assert [one["name"] for page in (first, rest) for one in page["tools"]] == ["asks", "look", "shop"]
    assert rest["nextPageToken"] is None
    other = server.send("GET", f"/trust?waits=true&pageToken={first['nextPageToken']}")
    assert other.code == "invalid_input"
    machine = server.send("GET", "/doctor").json
    assert machine["level"] in ("full+cgroup", "full", "landlock", "none")
    assert machine["mechanisms"]


def test_all_of_it_needs_admin(server: HttpServerProcess) -> None:
    token = server.create_token("most", "read", "invoke", "approve")
    for path in ("/audit", "/audit/verify", "/secrets", "/policy", "/trust", "/doctor"):
        assert server.send("GET", path, token=token).status == 403, path
    assert server.send("POST", "/policy/explain", {"tool": "shop"}, token=token).status == 403


MANIFEST = """\
name: words
description: Count the words of a text.
kind: python
version: 1
inputs: {schema: {type: object, properties: {text: {type: string, description: A text.}}, required: [text]}}
exec: {python: {module: words, function: count, args: ["${text}"]}}
"""


def test_a_text_is_linted_with_positions(server: HttpServerProcess) -> None:
    reader = server.create_token("linter", "read")
    assert server.send("POST", "/lint", {"text": MANIFEST}, token=reader).json["diagnostics"] == []
    found = server.send("POST", "/lint", {"text": MANIFEST.replace("python", "phyton")}, token=reader).json
    assert found["errors"] >= 1
    first = found["diagnostics"][0]
    assert (first["line"], first["severity"], first["path"]) == (3, "error", "manifest.yml")
    assert server.send("POST", "/lint", {"text": "a: [", "name": "x.yml"}).json["errors"] == 1
    assert server.send("POST", "/lint", {"text": MANIFEST, "format": "foo"}).code == "invalid_input"
    project = server.send("GET", "/lint").json
    assert project["errors"] == 0


def test_a_text_is_converted_with_its_losses(server: HttpServerProcess) -> None:
    record = {
        "slug": "weather",
        "version": "v1",
        "displayName": "Weather",
        "type": "http",
        "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "impl": {"urlTemplate": "https://api.example.com/?q=${city}"},
    }
    body = {"text": json.dumps(record), "name": "tool.json", "to": "native"}
    (made,) = server.send("POST", "/convert", body).json["tools"]
    assert (made["name"], "api.example.com" in made["text"]) == ("weather", True)
    assert server.send("POST", "/convert", {**body, "to": "foo"}).code == "invalid_input"
    assert server.send("POST", "/convert", {**body, "only": "foo"}).code == "not_found"
    assert server.send("POST", "/convert", {**body, "text": "{"}).code == "invalid_manifest"


def makers(server: HttpServerProcess) -> dict[str, str]:
    ledger = Ledger(Vault(server.root, server.data))
    try:
        return dict(ledger.makers())
    finally:
        ledger.close()


def test_an_openapi_document_is_imported(server: HttpServerProcess) -> None:
    operation = {
        "operationId": "get_pet",
        "summary": "Get a pet.",
        "responses": {"200": {"description": "A pet."}},
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example.com"}],
        "paths": {"/pet": {"get": operation}},
    }
    body = {"text": json.dumps(document)}
    assert server.send("POST", "/import/openapi", body).json["written"] == []
    made = server.send("POST", "/import/openapi", {**body, "write": True}).json
    assert (made["tools"], len(made["written"])) == (1, 1)
    assert (server.root / ".toolcrib/tools/get_pet/tool.yml").exists()
    assert makers(server)["get_pet"].startswith("token:admin-")
    assert server.send("POST", "/import/openapi", {**body, "write": True}).code == "conflict"
    assert server.send("POST", "/import/openapi", {"text": "{}"}).code == "invalid_manifest"
    tools, outside = server.root / ".toolcrib/tools", server.root.parent / "outside"
    tools.rename(outside)
    tools.symlink_to(outside)
    assert server.send("POST", "/import/openapi", {**body, "prefix": "b_", "write": True}).code == "conflict"
    assert not (outside / "b_get_pet").exists()


def test_a_bundle_is_exported_and_imported(server: HttpServerProcess, tmp_path: Path) -> None:
    bundle = new_id()
    path = f"/tools/bundles/{bundle}"
    server.send("PUT", path, {"slug": "zipped"})
    tool = {"type": "go", "displayName": "F", "impl": {"goFunc": "f"}}
    server.send("PUT", f"{path}/tools/f/version/1", tool)
    archive = server.send("GET", f"{path}/export")
    assert (archive.status, archive.headers["Content-Type"]) == (200, "application/zip")
    headers = {"Content-Type": "application/zip"}
    again = server.send("POST", "/tools/import", archive.body, headers)
    assert (again.status, again.json["changes"]) == (200, False)
    dry = server.send("POST", "/tools/import?onConflict=new-id&dryRun=true", archive.body, headers).json
    assert dry["changes"] is True
    copy = server.send("POST", "/tools/import?onConflict=new-id", archive.body, headers).json
    assert copy["bundleID"] != bundle
    assert server.send("GET", f"/tools/bundles/{copy['bundleID']}").json["isEnabled"] is False
    assert server.send("GET", f"/tools/bundles/{copy['bundleID']}/tools/f/version/1").status == 200
    # What a token imports counts as made by an agent, as what it puts: a person sees it before it runs.
    assert {"zipped/f@1", f"{copy['bundleID']}/f@1"} <= set(makers(server))
    elsewhere, other = Store(tmp_path), new_id()
    elsewhere.put_bundle(other, BundleBody(slug="boxed"))
    web = {"urlTemplate": "https://api.example.com/g"}
    elsewhere.put_tool(other, "g", "1", ToolBody(display_name="G", type="http", impl=web))
    boxed = export_bundle(elsewhere, other)
    assert server.send("POST", "/tools/import?enable=true", boxed, headers).json["isEnabled"] is True
    assert server.send("GET", f"/tools?bundleIDs={other}").json["tools"][0]["name"] == "boxed/g@1"
    assert "boxed/g@1" in makers(server)
    assert server.send("POST", "/tools/import", b"PK", headers).code == "invalid_archive"
    assert server.send("POST", "/tools/import", archive.body[:-30], headers).code == "invalid_archive"


def test_calls_are_counted_and_tools_too(server: HttpServerProcess) -> None:
    bundle = new_id()
    path = f"/tools/bundles/{bundle}"
    server.send("PUT", path, {"slug": "counted"})
    web = {"urlTemplate": "https://api.example.com/f"}
    tool = {"type": "http", "displayName": "F", "tags": ["x"], "impl": web}
    server.send("PUT", f"{path}/tools/f/version/1", tool)
    server.send("PUT", f"{path}/tools/g/version/1", {**tool, "tags": ["x", "y"], "isEnabled": False})
    facets = f"/tools/facets?bundleIDs={bundle}"
    assert server.send("GET", facets).json == {
        "total": 1,
        "tags": {"x": 1},
        "kinds": {"http": 1},
        "types": {"http": 1},
        "sources": {"user": 1},
        "bundles": {bundle: 1},
        "availability": {"available": 1},
        "touches": {"network": 1},
        "disabled": 1,
    }
    assert server.send("GET", f"{facets}&includeDisabled=true").json["tags"] == {"x": 2, "y": 1}
    usage = f"{path}/tools/f/version/1/usage"
    none: dict[str, Any] = {"callCount": 0, "failureCount": 0, "lastCalledAt": None, "hours": []}
    assert server.send("GET", usage).json == none
    server.send("POST", "/tools/invoke/counted%2Ff@1", {"args": {}})
    name = server.send("GET", f"/tools?bundleIDs={bundle}").json["tools"][0]["name"]
    server.send("POST", f"/tools/invoke/{quote(name, safe='')}", {"args": {}})
    assert server.send("GET", f"{usage}?since=2020-01-01T00:00:00Z").status == 200
    assert server.send("GET", f"{usage}?since=x").code == "invalid_input"


def test_a_person_trusts_a_tool_as_it_was_shown(server: HttpServerProcess, session: dict[str, str]) -> None:
    def waits() -> dict[str, str]:
        return {one["name"]: one["digest"] for one in server.send("GET", "/trust?waits=true").json["tools"]}

    def trust(**tools: str) -> Reply:
        return server.send("POST", "/trust", {"tools": tools}, session, token=None)

    ledger = Ledger(Vault(server.root, server.data))
    ledger.revoke("tool:shop", "project")
    ledger.close()
    digest = waits()["shop"]
    assert server.send("POST", "/trust", {"tools": {"shop": digest}}).code == "denied"
    assert trust(shop=digest[::-1]).code == "conflict"
    assert trust(shop=digest, nothing=digest).code == "tool_not_found"
    assert "shop" in waits()
    assert trust(shop=digest).status == 204
    assert "shop" not in waits()


def test_a_token_does_not_become_the_person_by_a_login_link(server: HttpServerProcess) -> None:
    token = server.create_token("climber", "admin")
    session = server.log_in(server.send("POST", "/login", token=token).json["path"])
    assert server.send("GET", "/session", headers=session, token=None).json["caller"] == "token:climber"
    done = decide(server, ask(server, token), "approve", session)
    assert (done.status, "made this call" in done.json["error"]["message"]) == (403, True), done.body
    tokens = Tokens(Vault(server.root, server.data))
    tokens.revoke("climber")
    tokens.close()
    assert server.send("GET", "/session", headers=session, token=None).status == 401


def test_a_person_creates_a_token_that_is_shown_once_and_revokes_it(
    server: HttpServerProcess, session: dict[str, str]
) -> None:
    def send(method: str, path: str, body: Any = None) -> Reply:
        return server.send(method, path, body, session, token=None)

    wanted = {"name": "page-made", "scopes": ["read"], "tools": ["look"], "expiresInS": 600}
    assert server.send("POST", "/tokens", wanted).code == "denied"
    made = send("POST", "/tokens", wanted)
    assert (made.status, made.json["tools"]) == (201, ["look"])
    token = made.json["token"]
    assert server.send("GET", "/session", token=token).status == 200
    listed = send("GET", "/tokens")
    assert token.encode() not in listed.body
    (one,) = (one for one in listed.json["tokens"] if one["name"] == "page-made")
    assert one["expires"] > one["created"]
    assert send("POST", "/tokens", wanted).code == "conflict"
    assert send("POST", "/tokens", {**wanted, "name": "b", "scopes": ["all"]}).status == 400
    assert send("DELETE", "/tokens/page-made").status == 204
    assert server.send("GET", "/session", token=token).code == "invalid_token"
    assert send("DELETE", "/tokens/page-made").code == "not_found"


def test_settings_are_shown_as_they_are_written(server: HttpServerProcess) -> None:
    found = {one["key"]: one for one in server.send("GET", "/settings").json["settings"]}
    assert found["policy.rules"]["value"][0]["name"] == "no-shop"
    assert found["limits.concurrency"] == {"key": "limits.concurrency", "value": None, "waits": None}


def test_usage_is_totalled_by_tool_and_day(server: HttpServerProcess) -> None:
    for path in ("data", "data", "none"):
        server.send("POST", "/tools/invoke/look", {"args": {"path": path}})
    (used,) = (one for one in server.send("GET", "/tools/usage").json["tools"] if one["name"] == "look")
    days = used["days"]
    assert (sum(day["calls"] for day in days) >= 3, sum(day["failures"] for day in days) >= 1) == (True, True)
    assert 0 < days[-1]["p50Ms"] <= days[-1]["p95Ms"]
    address = f"/tools/bundles/{used['bundleID']}/tools/{used['slug']}/version/{used['version']}"
    assert server.send("GET", address).json["slug"] == "look"
    other = server.create_token("no-usage", "read", tools=["other"])
    assert server.send("GET", "/tools/usage", token=other).json["tools"] == []


def test_messages_to_people_are_listed_asked_for_and_sent_again(server: HttpServerProcess) -> None:
    origin = Vault(server.root, server.data).origin()
    queue = ChannelMessages(SqliteDatabase(server.root / ".toolcrib/state.db", PROJECT, origin=origin))
    one, two = (queue.queue({"channel": "slack", "text": text}) for text in ("first", "second"))
    queue.settle([(one, "dead", "channel_not_found", b"{}")])
    page = server.send("GET", "/messages?state=dead").json
    assert [(found["id"], found["error"]) for found in page["messages"]] == [(one, "channel_not_found")]
    assert server.send("GET", f"/messages/{two}").json["state"] == "queued"
    new = server.send("POST", f"/messages/{one}/retry").json["id"]
    assert server.send("GET", f"/messages/{new}").json["data"]["text"] == "first"
    assert server.send("POST", f"/messages/{two}/retry").code == "conflict"
    assert server.send("GET", f"/messages/{one}").json["state"] == "retried"
