"""The routes of bundles and tools, over HTTP at a real server: each row of the contract, the seed's rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.e2e.rest.store_rows import BUNDLE, HTTP, ROWS, Row
from tests.http_server import HttpServerProcess, Reply, http_server
from toolcrib.bundles import Store, ToolBody, log_of
from toolcrib.guard.audit.check import verify
from toolcrib.guard.audit.search import AuditQuery, AuditReader
from toolcrib.spec.identifier import new_id

NAMES = "id slug displayName description isEnabled isBuiltIn createdAt modifiedAt softDeletedAt schemaVersion"
FIELDS = {*NAMES.split(), "availability", "unavailableBecause", "source", "toolCount"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("rest") / "project")
    with http_server(crib.root) as running:
        yield running


@pytest.fixture(scope="module")
def store(server: HttpServerProcess) -> Store:
    """The same folder, as another process sees it."""
    return Store(server.data)


@dataclass(slots=True)
class Bundle:
    """One bundle on the server."""

    server: HttpServerProcess
    id: str

    @property
    def path(self) -> str:
        return f"/tools/bundles/{self.id}"

    def tool(self, slug: str = "weather", version: str = "v1") -> str:
        return f"{self.path}/tools/{slug}/version/{version}"

    def send(self, method: str, body: Any = None, **options: Any) -> Reply:
        return self.server.send(method, self.path, body, **options)

    def send_tool(self, method: str, body: Any = None, *names: str, **options: Any) -> Reply:
        return self.server.send(method, self.tool(*names), body, **options)


@pytest.fixture
def bundle(server: HttpServerProcess) -> Bundle:
    made = Bundle(server, new_id())
    assert made.send("PUT", BUNDLE).status == 201
    return made


@pytest.fixture
def full(bundle: Bundle) -> Bundle:
    """A bundle with a tool."""
    assert bundle.send_tool("PUT", HTTP).status == 201
    return bundle


@pytest.fixture
def off(full: Bundle) -> Bundle:
    """A disabled bundle with a tool."""
    assert full.send("PATCH", {"isEnabled": False}).status == 200
    return full


@pytest.fixture
def deleted(bundle: Bundle) -> Bundle:
    assert bundle.send("DELETE").status == 202
    return bundle


@pytest.fixture
def missing(server: HttpServerProcess) -> Bundle:
    return Bundle(server, new_id())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(map(str, row))[:60])
def test_a_row_of_the_table(row: Row, request: pytest.FixtureRequest) -> None:
    there, method, what, body, status, code = row
    one: Bundle = request.getfixturevalue(there)
    path = {"bundle": one.path, "tool": one.tool(), "versions": f"{one.path}/tools/weather/versions"}[what]
    reply = one.server.send(method, path, body)
    assert (reply.status, reply.code) == (status, code), reply.body
    if status == 200:
        again = one.server.send("GET", path)
        assert again.json == reply.json or method == "GET"


@pytest.mark.parametrize(
    "wrong",
    ["x", "018FAF50-B7B6-7A01-9A05-A22A6E0AF101", "018faf50-b7b6-4a01-9a05-a22a6e0af101", "..", "%2e%2e"],
)
def test_an_id_that_is_no_uuid7_is_refused_by_every_route(server: HttpServerProcess, wrong: str) -> None:
    one = Bundle(server, wrong)
    rest: list[tuple[str, Any]] = [("PATCH", {"isEnabled": True}), ("DELETE", None), ("GET", None)]
    for method, body in [("PUT", BUNDLE), *rest]:
        assert one.send(method, body).code == "invalid_id"
    for method, body in [("PUT", HTTP), *rest]:
        assert one.send_tool(method, body).code == "invalid_id"


@pytest.mark.parametrize(
    ("slug", "version", "status"),
    [
        ("%E5%A4%A9" * 64, "%E6%97%A5" * 64, 201),  # 64 Chinese characters each
        ("%E5%A4%A9" * 65, "1", 400),
        ("a", "1" * 65, 400),
        ("a_b", "1", 400),
        ("a%20b", "1", 400),
        ("a.b", "1", 400),
        ("a", "1.2.3", 201),
        ("a", "1_2", 400),
        ("A", "1.2.3", 201),  # another tool than `a`
        ("a%0Ab", "1", 400),
        ("e%CC%81", "1", 400),  # a combining mark
        ("%D9%A3", "%D9%A3", 201),  # an Arabic digit
        ("%C2%B2", "1", 400),  # superscript two is no decimal digit
        ("..", "1", 400),
    ],
)
def test_slugs_and_versions(bundle: Bundle, slug: str, version: str, status: int) -> None:
    reply = bundle.send_tool("PUT", HTTP, slug, version)
    assert reply.status == status
    assert status == 201 or reply.code == "invalid_slug"
    if status == 201:
        assert bundle.send_tool("GET", None, slug, version).json == reply.json


def test_a_bundle_has_our_ids_and_times_and_keeps_its_creation(bundle: Bundle) -> None:
    before = bundle.send("GET").json
    assert set(before) == FIELDS
    assert (before["id"], before["isBuiltIn"], before["softDeletedAt"]) == (bundle.id, False, None)
    after = bundle.send("PUT", {**BUNDLE, "displayName": "New"}).json
    assert after["createdAt"] == before["createdAt"]
    assert (after["modifiedAt"] > before["modifiedAt"], after["displayName"]) == (True, "New")


def test_what_is_read_can_be_written(bundle: Bundle) -> None:
    read = bundle.send("GET").json
    reply = bundle.send("PUT", {**read, "description": "new", "createdAt": "2001-01-01T00:00:00Z"})
    assert (reply.status, reply.json["description"]) == (200, "new")
    assert reply.json["createdAt"] == read["createdAt"]
    tool = bundle.send_tool("PUT", {**HTTP, "tags": ["a"], "isEnabled": False}).json
    reply = bundle.send_tool("PUT", {**tool, "version": "v2", "description": "new"}, "weather", "v2")
    assert (reply.status, reply.json["description"]) == (201, "new")
    same = ("displayName", "tags", "type", "isEnabled", "argSchema", "outputSchema", "impl")
    assert {name: reply.json[name] for name in same} == {name: tool[name] for name in same}
    assert reply.json["toolID"] != tool["toolID"]
    manifest = bundle.send_tool("PUT", MANIFEST.encode(), "word-count", "1", headers=YAML).json
    manifest["impl"]["manifest"] = MANIFEST.replace("version: 1", "version: 2")
    again = bundle.send_tool("PUT", {**manifest, "version": "2"}, "word-count", "2")
    assert (again.status, again.json["impl"]) == (201, manifest["impl"])


def test_a_body_that_names_another_record_than_the_path_is_refused(bundle: Bundle) -> None:
    record = bundle.send("GET").json
    reply = bundle.send("PUT", {**record, "id": new_id()})
    assert (reply.status, reply.code) == (400, "invalid_input")
    other = {"bundleID": new_id(), "slug": "climate", "version": "v2"}
    for names in (["bundleID"], ["slug"], ["version"], ["bundleID", "slug", "version"]):
        reply = bundle.send_tool("PUT", {**HTTP, **{name: other[name] for name in names}})
        assert (reply.status, reply.code) == (400, "invalid_input")
        assert [one["path"] for one in reply.json["error"]["violations"]] == [f"$.{name}" for name in names]
    same = {"bundleID": bundle.id, "slug": "weather", "version": "v1"}
    assert bundle.send_tool("PUT", {**HTTP, **same}).status == 201


def test_a_put_that_is_sent_again_with_its_key_has_the_first_answer(server: HttpServerProcess) -> None:
    one, key = Bundle(server, new_id()), {"Idempotency-Key": new_id()}
    first = one.send("PUT", BUNDLE, headers=key)
    again = one.send("PUT", BUNDLE, headers=key)
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert again.headers["ETag"] == first.headers["ETag"]
    other = one.send("PUT", {**BUNDLE, "description": "other"}, headers=key)
    assert (other.status, other.code) == (409, "idempotency_conflict")
    key = {"Idempotency-Key": new_id()}
    refused = one.send_tool("PUT", {**HTTP, "tags": ["1"]}, headers=key)
    assert refused.code == "invalid_input"
    made = one.send_tool("PUT", HTTP, headers=key)  # A refusal leaves the key free.
    again = one.send_tool("PUT", HTTP, headers=key)
    assert (made.status, again.status, again.body) == (201, 201, made.body)
    assert one.send_tool("PUT", HTTP).code == "conflict"
    assert one.send_tool("PUT", HTTP, "other", "v1", headers=key).code == "idempotency_conflict"
    theirs = server.create_token("another", "admin")
    assert one.send_tool("PUT", HTTP, headers=key, token=theirs).code == "conflict"
    for wrong in ("", "x" * 256, "a\tb"):
        assert one.send("PUT", BUNDLE, headers={"Idempotency-Key": wrong}).code == "invalid_input"


def test_a_change_of_a_bundle_that_was_changed_meanwhile_is_refused(bundle: Bundle) -> None:
    old = bundle.send("GET").headers["ETag"]
    now = bundle.send("PUT", {**BUNDLE, "description": "ours"}, headers={"If-Match": old}).headers["ETag"]
    stale = bundle.send("PUT", {**BUNDLE, "description": "stale"}, headers={"If-Match": old})
    assert (stale.status, stale.code) == (412, "precondition_failed")
    assert bundle.send("GET").json["description"] == "ours"
    assert bundle.send("GET").headers["ETag"] == now


def test_a_record_that_was_cut_off_is_listed_replaced_and_deleted(bundle: Bundle) -> None:
    assert bundle.send_tool("PUT", {**HTTP, "description": "whole"}, "other", "v1").status == 201
    listed = f"/tools?includeDisabled=true&bundleIDs={bundle.id}"

    def broken(path: str = listed) -> dict[str, str]:
        found = pages(bundle.server, path, "tools")
        return {
            one["slug"]: one["unavailableBecause"] for one in found if one["availability"] == "unavailable"
        }

    assert bundle.send_tool("PUT", HTTP).status == 201
    for method, body in (("PUT", HTTP), ("DELETE", None)):
        (file,) = (
            path
            for path in (bundle.server.data / "bundles" / bundle.id / "tools").iterdir()
            if json.loads(path.read_bytes())["slug"] == "weather"
        )
        file.write_bytes(file.read_bytes()[:100])
        assert broken().keys() == {"weather"}
        assert broken(listed.replace("?", "/search?q=weather&")) == broken()
        assert str(bundle.server.data) not in broken()["weather"]
        shown = bundle.send_tool("GET").json
        assert (shown["availability"], shown["unavailableBecause"]) == ("unavailable", broken()["weather"])
        assert bundle.send_tool("PATCH", {"isEnabled": True}).code == "state_unavailable"
        call = bundle.server.send("POST", f"{bundle.tool()}/invoke", {"args": {}})
        assert (call.status, call.code) == (503, "tool_unavailable")
        assert bundle.send_tool(method, body).status in (201, 204)
        assert not broken()
    assert bundle.send_tool("GET", None, "other", "v1").json["description"] == "whole"


def test_a_tool_is_stored_as_it_was_put(bundle: Bundle, store: Store) -> None:
    body: dict[str, Any] = {
        "displayName": "Weather",
        "description": "Fetch the weather.",
        "tags": ["weather"],
        "type": "http",
        "isEnabled": False,
        "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "outputSchema": {"type": "object"},
        "impl": {
            "urlTemplate": "https://api.example.com/?q=${city}",
            "successCodes": [200],
            "timeoutMs": 5e3,
        },
    }
    record = bundle.send_tool("PUT", body).json
    assert {key: record[key] for key in body} == body
    assert record == bundle.send_tool("GET").json
    assert store.tool(bundle.id, "weather", "v1").impl == body["impl"]


MANIFEST = """\
name: word_count   # counts words
description: Count the words of a text.
kind: python
version: 1
inputs: {schema: {type: object, properties: {text: {type: string, description: A text.}}, required: [text]}}
exec: {python: {module: words, function: count}}
"""
YAML = {"Content-Type": "application/yaml"}


def test_a_native_manifest_is_put_by_its_content_type(bundle: Bundle) -> None:
    reply = bundle.send_tool("PUT", MANIFEST.encode(), "word-count", "1", headers=YAML)
    assert (reply.status, reply.json["type"], reply.json["impl"]) == (201, "native", {"manifest": MANIFEST})
    assert reply.json["argSchema"]["required"] == ["text"]
    record = {
        "type": "native",
        "isEnabled": False,
        "impl": {"manifest": MANIFEST.replace("version: 1", "version: 2")},
    }
    assert bundle.send_tool("PUT", record, "word-count", "2").json["isEnabled"] is False
    wrong = bundle.send_tool("PUT", MANIFEST.encode(), "words", "1", headers=YAML)
    assert (wrong.status, wrong.code) == (400, "invalid_input")
    broken = MANIFEST.replace("kind: python", "kind: phyton")
    wrong = bundle.send_tool("PUT", broken.encode(), "word-count", "3", headers=YAML)
    assert (wrong.status, wrong.code) == (400, "invalid_manifest")
    assert wrong.json["error"]["details"]["diagnostics"][0]["line"] == 3
    other = MANIFEST.replace("word_count", "word.count").replace("version: 1", "version: 4")
    assert bundle.send_tool("PUT", other.encode(), "word-count", "4", headers=YAML).code == "conflict"


def test_a_tool_says_if_it_can_be_called_here(bundle: Bundle) -> None:
    assert bundle.send_tool("PUT", HTTP).json["availability"] == "available"
    function = {"type": "go", "displayName": "F", "impl": {"goFunc": "github.com/acme.F"}}
    record = bundle.send_tool("PUT", function, "f", "1").json
    assert record["availability"] == "unavailable"
    assert "github.com/acme.F" in record["unavailableBecause"]
    assert record["isEnabled"] is True
    # It counts as disabled, before anybody is asked about its calls.
    for path in (f"/tools?bundleIDs={bundle.id}", f"/tools/search?q=f&bundleIDs={bundle.id}"):
        assert "f" not in [one["slug"] for one in pages(bundle.server, path, "tools")]
        listed = pages(bundle.server, f"{path}&includeDisabled=true", "tools")
        found = [(one["isEnabled"], one["availability"]) for one in listed if one["slug"] == "f"]
        assert found == [(True, "unavailable")]
    call = bundle.server.send("POST", f"{bundle.tool('f', '1')}/invoke", {"args": {}})
    assert (call.status, call.code) == (503, "tool_unavailable")
    assert "`project.functions.register('F', function)`" in call.json["error"]["hint"]


def test_a_missing_schema_is_the_empty_object(bundle: Bundle) -> None:
    assert bundle.send_tool("PUT", HTTP).json["argSchema"] == {}


def test_a_conflict_leaves_the_stored_bytes(full: Bundle) -> None:
    (file,) = (full.server.data / "bundles" / full.id / "tools").iterdir()
    before = file.read_bytes()
    assert full.send_tool("PUT", {**HTTP, "displayName": "Other"}).status == 409
    assert file.read_bytes() == before


def test_a_deleted_tool_can_be_put_again_and_gets_a_new_id(full: Bundle) -> None:
    before = full.send_tool("GET").json["toolID"]
    assert full.send_tool("DELETE").status == 204
    assert full.send_tool("PUT", HTTP).json["toolID"] != before


def test_a_switch_does_not_count_as_a_change(full: Bundle) -> None:
    before = full.send_tool("GET").json
    after = full.send_tool("PATCH", {"isEnabled": False}).json
    assert after == {**before, "isEnabled": False}


def test_a_deleted_bundle_is_hidden_and_comes_back(full: Bundle) -> None:
    full.send_tool("DELETE")
    assert full.send("DELETE").json["softDeletedAt"] is not None
    assert full.id not in [one["id"] for one in pages(full.server, "/tools/bundles?includeDisabled=true")]
    restored = full.send("PUT", BUNDLE)
    assert (restored.status, restored.json["softDeletedAt"]) == (200, None)


def test_versions_live_side_by_side(bundle: Bundle) -> None:
    for version in ("v1", "v2", "beta"):
        bundle.send_tool("PUT", HTTP, "weather", version)
    found = bundle.server.send("GET", f"{bundle.path}/tools/weather/versions").json["versions"]
    assert [one["version"] for one in found] == ["beta", "v2", "v1"]


# -- pages -------------------------------------------------------------------------------------------


def pages(
    server: HttpServerProcess, path: str, key: str = "bundles", between: Callable[[], object] = lambda: None
) -> list[dict[str, Any]]:
    """Every entry of a list, page by page."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = server.send("GET", f"{path}&pageToken={token}" if token else path).json
        found += page[key]
        token = page["nextPageToken"]
        if token is None:
            return found
        between()


def test_bundles_come_newest_first_each_once_while_they_change(server: HttpServerProcess) -> None:
    made = [Bundle(server, new_id()) for _ in range(7)]
    for one in made:
        one.send("PUT", BUNDLE)
    only = ",".join(one.id for one in made)
    removed = iter([made[6], made[1]])  # one that was listed, and one that was not

    def change() -> None:
        if one := next(removed, None):
            one.send("DELETE")
        Bundle(server, new_id()).send("PUT", BUNDLE)

    found = pages(server, f"/tools/bundles?bundleIDs={only}&pageSize=2", between=change)
    assert [one["id"] for one in found] == [made[number].id for number in (6, 5, 4, 3, 2, 0)]


def test_disabled_bundles_are_listed_if_asked_for(bundle: Bundle) -> None:
    bundle.send("PATCH", {"isEnabled": False})
    path = f"/tools/bundles?bundleIDs={bundle.id}"
    assert bundle.server.send("GET", path).json == {"bundles": [], "nextPageToken": None}
    assert len(bundle.server.send("GET", f"{path}&includeDisabled=true").json["bundles"]) == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("pageToken=x", "invalid_input"),
        ("pageToken=" + "e30", "invalid_input"),
        ("pageToken=%00", "invalid_input"),
        ("pageSize=0", "invalid_input"),
        ("pageSize=257", "invalid_input"),
        ("pageSize=1.5", "invalid_input"),
        ("pageSize=x", "invalid_input"),
        ("includeDisabled=1", "invalid_input"),
        ("bundleIDs=x", "invalid_input"),
        ("pagesize=1", "invalid_input"),
    ],
)
def test_wrong_queries_of_bundles(server: HttpServerProcess, query: str, code: str) -> None:
    reply = server.send("GET", f"/tools/bundles?{query}")
    assert (reply.status, reply.code) == (400, code)


def test_a_page_token_is_bound_to_its_filters(server: HttpServerProcess) -> None:
    ids = [new_id() for _ in range(3)]
    for one in ids:
        Bundle(server, one).send("PUT", BUNDLE)
    token = server.send("GET", "/tools/bundles?pageSize=1").json["nextPageToken"]
    assert server.send("GET", f"/tools/bundles?pageSize=1&pageToken={token}").status == 200
    reply = server.send("GET", f"/tools/bundles?pageSize=1&includeDisabled=true&pageToken={token}")
    assert (reply.status, reply.code) == (400, "invalid_input")


# -- ETags -------------------------------------------------------------------------------------------


def test_a_client_changes_what_it_has_seen_or_nothing(full: Bundle) -> None:
    for slug in ("new", "weather"):  # A version of a tool is created, and never replaced.
        assert full.send_tool("PUT", HTTP, slug, "v1", headers={"If-Match": '"x"'}).status == 412
    for send in (full.send, full.send_tool):
        seen = send("GET")
        tag = {"If-Match": seen.headers["ETag"]}
        assert send("GET", headers={"If-None-Match": seen.headers["ETag"]}).status == 304
        changed = send("PATCH", {"isEnabled": True}, headers=tag)
        assert changed.headers["ETag"] == seen.headers["ETag"]  # it was on already
        assert send("PATCH", {"isEnabled": False}, headers=tag).status == 200
        for method, body in (("PATCH", {"isEnabled": True}), ("DELETE", None)):
            late = send(method, body, headers=tag)
            assert (late.status, late.code) == (412, "precondition_failed")
        send("PATCH", {"isEnabled": True})
    assert full.send("PUT", BUNDLE, headers={"If-Match": '"other"'}).status == 412
    assert full.send("PUT", BUNDLE, headers={"If-None-Match": "*"}).status == 412


def test_of_many_that_change_the_same_version_one_succeeds(bundle: Bundle) -> None:
    tag = {"If-Match": bundle.send("GET").headers["ETag"]}

    def put(number: int) -> int:
        return bundle.send("PUT", {**BUNDLE, "description": str(number)}, headers=tag).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(put, range(8))) == [200] + [412] * 7


def test_of_many_that_put_one_pair_one_succeeds(bundle: Bundle) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: bundle.send_tool("PUT", HTTP).status, range(16)))
    assert sorted(found) == [201] + [409] * 15


# -- bodies ------------------------------------------------------------------------------------------


def test_bodies_are_limited_and_of_the_right_type(bundle: Bundle) -> None:
    large = json.dumps({"slug": "x", "description": "x" * (4 << 20)}).encode()
    assert bundle.send("PUT", large).code == "too_large"
    connection = bundle.server.connect()
    connection.putrequest("PUT", bundle.path)
    connection.putheader("Authorization", f"Bearer {bundle.server.token}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(1 << 40))  # it is refused before it is sent
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        reply = bundle.send("PUT", BUNDLE, headers={"Content-Type": content_type})
        assert (reply.status, reply.code) == (415, "unsupported_media_type")
    assert bundle.send("PUT", BUNDLE, headers={"Content-Encoding": "gzip"}).status == 415
    assert bundle.send("PUT", BUNDLE, headers={"Content-Encoding": "Identity"}).status == 200
    assert (
        bundle.send("PUT", BUNDLE, headers={"Content-Type": "Application/JSON; charset=utf-8"}).status == 200
    )


def test_every_violation_of_a_body_is_listed(bundle: Bundle) -> None:
    reply = bundle.send_tool("PUT", {"type": "http", "tag": [], "isEnabled": 1, "impl": {"timeoutMs": "x"}})
    found = {one["path"] for one in reply.json["error"]["violations"]}
    assert {"$.tag", "$.isEnabled", "$.impl.urlTemplate", "$.impl.timeoutMs"} <= found


@pytest.mark.parametrize("number", ["18446744073709551616", "1e999", "NaN"])
def test_numbers_that_would_be_rounded_are_refused(bundle: Bundle, number: str) -> None:
    text = f'{{"type": "go", "displayName": "x", "impl": {{"goFunc": "f"}}, "argSchema": {{"x": {number}}}}}'
    assert bundle.send_tool("PUT", text.encode()).code == "invalid_input"


# -- scopes, processes ---------------------------------------------------------------------------------


def test_reading_needs_read_and_changing_needs_admin(full: Bundle) -> None:
    server = full.server
    for scope in ("read", "invoke", "approve"):
        token = server.create_token(f"{scope}-{full.id}", scope)
        status = 403 if scope == "approve" else 200
        for path in (full.path, full.tool(), "/tools/bundles", f"{full.path}/tools/weather/versions"):
            assert server.send("GET", path, token=token).status == status
        for method, path, body in (
            ("PUT", full.path, BUNDLE),
            ("PATCH", full.path, {"isEnabled": False}),
            ("DELETE", full.path, None),
            ("PUT", full.tool("new"), HTTP),
            ("PATCH", full.tool(), {"isEnabled": False}),
            ("DELETE", full.tool(), None),
        ):
            reply = server.send(method, path, body, token=token)
            assert (reply.status, reply.code) == (403, "denied")


def test_the_server_sees_what_others_write_and_they_see_what_it_writes(bundle: Bundle, store: Store) -> None:
    store.put_tool(bundle.id, "other", "1", ToolBody(display_name="x", type="go", impl={"goFunc": "f"}))
    assert bundle.send_tool("GET", None, "other", "1").status == 200
    bundle.send_tool("PUT", HTTP, "mine", "1")
    assert {tool.slug for tool in store.tools(bundle.id)} == {"other", "mine"}


def test_records_are_the_users_own(full: Bundle, tmp_path: Path) -> None:
    folder = full.server.data / "bundles" / full.id
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.rglob("*.json")} == {0o600}


def test_revisions_and_history_of_a_tool(full: Bundle) -> None:
    first = full.send_tool("GET").json
    assert full.send_tool("PATCH", {"isEnabled": False}).status == 200
    assert full.send_tool("DELETE").status == 204
    revisions = full.server.send("GET", f"{full.tool()}/revisions").json["revisions"]
    assert [one["change"] for one in revisions] == ["deleted", "disabled"]
    assert revisions[1]["tool"] == {key: first[key] for key in revisions[1]["tool"]}
    changes = full.server.send("GET", f"{full.path}/tools/weather/history").json["changes"]
    assert [one["event"] for one in changes] == ["TOOL_DELETED", "TOOL_DISABLED", "TOOL_PUT"]
    assert {one["by"] for one in changes} == {revisions[0]["changedBy"]}
    assert revisions[0]["changedBy"].startswith("token:admin-")
    one = full.server.create_token(f"reader-{full.id[-6:]}", "read", tools=["other"])
    for path in (f"{full.tool()}/revisions", f"{full.path}/tools/weather/history"):
        assert full.server.send("GET", path, token=one).code == "tool_not_found"
    assert full.server.send("GET", f"{full.path}/tools/none/history").code == "tool_not_found"
    bundles = full.server.send("GET", "/tools/bundles?pageSize=256").json["bundles"]
    (built_in,) = (one["id"] for one in bundles if one["isBuiltIn"])
    unchanged = f"/tools/bundles/{built_in}/tools/read-file/history"
    assert full.server.send("GET", unchanged).json == {"changes": []}
    assert full.server.send("GET", f"{full.tool('none')}/revisions").code == "tool_not_found"


def test_what_was_deleted_is_listed_and_restored_as_it_was(full: Bundle) -> None:
    def listed(token: str = "") -> tuple[list[str], list[str]]:
        trash = full.server.send("GET", "/tools/trash", token=token).json
        tools = [one["slug"] for one in trash["tools"] if one["bundleID"] == full.id]
        return [one["id"] for one in trash["bundles"]], tools

    first = full.send_tool("GET").json
    assert full.server.send("POST", f"{full.tool()}/restore").code == "tool_not_found"
    assert full.send_tool("DELETE").status == 204
    assert listed()[1] == ["weather"]
    assert listed(full.server.create_token(f"sees-{full.id[-6:]}", "read", tools=["other"]))[1] == []
    assert full.send("DELETE").status == 202
    assert full.id in listed()[0]
    assert full.server.send("POST", f"{full.tool()}/restore").code == "bundle_deleting"
    restored = full.server.send("POST", f"{full.path}/restore")
    assert (restored.status, restored.json["id"], restored.json["softDeletedAt"]) == (200, full.id, None)
    assert full.server.send("POST", f"{full.path}/restore").code == "not_found"
    back = full.server.send("POST", f"{full.tool()}/restore")
    assert (back.status, back.json["toolID"]) == (200, first["toolID"])
    kept = {"createdAt", "modifiedAt", "argSchema", "impl", "isEnabled", "description"}
    now = full.send_tool("GET").json
    assert {key: now[key] for key in kept} == {key: first[key] for key in kept}
    assert (full.id in listed()[0], listed()[1]) == (False, [])
    assert full.server.send("POST", f"{full.tool()}/restore").code == "conflict"
    changes = full.server.send("GET", f"{full.path}/tools/weather/history").json["changes"]
    assert [one["event"] for one in changes] == ["TOOL_RESTORED", "TOOL_DELETED", "TOOL_PUT"]


def test_each_change_over_http_is_in_the_log_of_the_store(full: Bundle) -> None:
    archive = full.server.send("GET", f"{full.path}/export").body
    assert full.send("PATCH", {"isEnabled": False}).status == 200
    assert full.send("PUT", BUNDLE).status == 200
    assert full.send_tool("DELETE").status == 204
    zipped = {"Content-Type": "application/zip"}
    assert full.server.send("POST", "/tools/import?onConflict=skip", archive, zipped).status == 200
    path, anchor = log_of(full.server.data)
    lines = [line.entry for line in AuditReader(path).newest(AuditQuery(text=full.id), 100)]
    assert [line.event for line in lines if line is not None] == [
        "BUNDLE_CREATED",
        "TOOL_PUT",
        "BUNDLE_DISABLED",
        "BUNDLE_REPLACED",
        "TOOL_DELETED",
        "BUNDLE_IMPORTED",
    ]
    assert all(line is not None and line.fields["caller"].startswith("token:admin-") for line in lines)
    assert verify(path, anchor=anchor).ok
