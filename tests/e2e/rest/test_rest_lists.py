"""The lists over all bundles, over HTTP: pages, filters, search."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, Reply, http_server
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.spec.identifier import new_id

WEB: dict[str, Any] = {"type": "http", "impl": {"urlTemplate": "https://example.com"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("lists") / "project")
    passed = {"kwargs": {name: f"${{{name}}}" for name in ("top", "options")}}
    crib.python("def run(**given):\n    return given\n", "pick", PICK, config=passed)
    with http_server(crib.root) as running:
        yield running


@pytest.fixture(scope="module")
def store(server: HttpServerProcess) -> Store:
    return Store(server.data)


@pytest.fixture
def bundle(store: Store) -> str:
    found = new_id()
    store.put_bundle(found, BundleBody(slug="shop"))
    return found


def put(store: Store, bundle: str, slug: str, **more: Any) -> None:
    store.put_tool(bundle, slug, "1", ToolBody(**{"display_name": slug, **WEB, **more}))


def pages(server: HttpServerProcess, path: str, between: Any = lambda: None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = server.send("GET", f"{path}&pageToken={token}" if token else path).json
        found += page["tools"]
        token = page["nextPageToken"]
        if token is None:
            return found
        between()


def wait_for_hits(server: HttpServerProcess, path: str, number: int) -> None:
    """Wait until the index has taken in the changes."""
    end = time.monotonic() + 100
    while server.send("GET", path).json["total"] != number:
        assert time.monotonic() < end
        time.sleep(0.05)


def slugs(found: list[dict[str, Any]]) -> list[str]:
    return [one["slug"] for one in found]


def test_tools_come_newest_first_each_once_while_they_change(
    server: HttpServerProcess, store: Store, bundle: str
) -> None:
    for number in range(7):
        put(store, bundle, f"t{number}")
    gone = iter(["t6", "t1"])  # one that was listed, and one that was not

    def change() -> None:
        if (slug := next(gone, None)) is not None:
            store.delete_tool(bundle, slug, "1")
        put(store, bundle, f"new-{new_id()}")

    found = pages(server, f"/tools?bundleIDs={bundle}&recommendedPageSize=2", change)
    assert slugs(found) == ["t6", "t5", "t4", "t3", "t2", "t0"]


def test_a_token_sees_the_tools_that_it_covers(server: HttpServerProcess, store: Store, bundle: str) -> None:
    put(store, bundle, "seen-a")
    put(store, bundle, "other-a")
    (name,) = [one["name"] for one in pages(server, f"/tools?bundleIDs={bundle}") if one["slug"] == "seen-a"]
    token = server.create_token(f"some-{bundle}", "read", tools=[name])

    def get(path: str) -> Reply:
        return server.send("GET", path, token=token)

    assert slugs(get(f"/tools?bundleIDs={bundle}").json["tools"]) == ["seen-a"]
    wait_for_hits(server, f"/tools/search?q=a&bundleIDs={bundle}", 2)
    found = get(f"/tools/search?q=a&bundleIDs={bundle}").json
    assert (slugs(found["tools"]), found["total"]) == (["seen-a"], 1)
    for words in ("", "&q=a"):
        counts = get(f"/tools/facets?bundleIDs={bundle}{words}").json
        assert (counts["total"], counts["types"], counts["bundles"]) == (1, {"http": 1}, {bundle: 1})
    assert get(f"/tools/bundles/{bundle}").json["toolCount"] == 1
    assert {one["toolCount"] for one in get(f"/tools/bundles?bundleIDs={bundle}").json["bundles"]} == {1}
    path = f"/tools/bundles/{bundle}/tools"
    assert get(f"{path}/seen-a/version/1").status == 200
    for hidden in ("other-a/version/1", "other-a/versions", "other-a/version/1/usage"):
        assert get(f"{path}/{hidden}").code == "tool_not_found"
    assert get(f"/tools/bundles/{bundle}/export").status == 403


def test_the_pages_of_a_token_are_full(server: HttpServerProcess, store: Store, bundle: str) -> None:
    for number in range(9):
        put(store, bundle, f"{'seen' if number % 3 == 0 else 'other'}-{number}")
    names = [one["name"] for one in pages(server, f"/tools?bundleIDs={bundle}") if "seen-" in one["name"]]
    token = server.create_token(f"few-{bundle}", "read", tools=[name.replace("@1", "@*") for name in names])
    wait_for_hits(server, f"/tools/search?q=seen&bundleIDs={bundle}", 3)
    for path, size in (("/tools?", "recommendedPageSize"), ("/tools/search?q=seen&", "pageSize")):
        first = server.send("GET", f"{path}bundleIDs={bundle}&{size}=2", token=token).json
        assert slugs(first["tools"]) == ["seen-6", "seen-3"]
        more = f"{path}bundleIDs={bundle}&{size}=2&pageToken={first['nextPageToken']}"
        second = server.send("GET", more, token=token).json
        assert (slugs(second["tools"]), second["nextPageToken"]) == (["seen-0"], None)


PICK = {
    "top": {"type": "integer"},
    "options": {"type": "object", "additionalProperties": {"type": "integer"}},
    "filter[id]": {"type": "string"},
}


def test_a_list_for_a_provider_has_each_tool_in_its_form_and_takes_its_calls(
    server: HttpServerProcess,
) -> None:
    (item,) = server.send("GET", "/tools?sources=project&for=openai-strict").json["tools"]
    function = item["entry"]["function"]
    assert (function["name"], function["strict"]) == ("pick", True)
    (hit,) = server.send("GET", "/tools/search?q=pick&sources=project&for=anthropic").json["tools"]
    assert "filter_id" in hit["entry"]["input_schema"]["properties"]
    assert "entry" not in server.send("GET", "/tools?sources=project").json["tools"][0]
    assert server.send("GET", "/tools?for=me").code == "invalid_input"
    by_address = f"/tools/bundles/{item['bundleID']}/tools/{item['slug']}/version/{item['version']}"
    for path in ("/tools/invoke/pick", f"{by_address}/invoke"):
        for shape, args, own in (
            ("gemini", {"top": None, "options": '{"a": 1}'}, {"options": {"a": 1}}),
            ("anthropic", {"top": 3, "filter_id": "x"}, {"top": 3}),
        ):
            called = server.send("POST", f"{path}?for={shape}", {"args": args})
            assert called.json["value"] == own, called.body
            assert server.send("POST", path, {"args": args}).code == "invalid_input"


def test_a_list_for_a_provider_names_what_has_no_form_and_hides_what_waits_for_trust(
    server: HttpServerProcess, store: Store, bundle: str
) -> None:
    put(store, bundle, "new")
    assert slugs(pages(server, f"/tools?bundleIDs={bundle}")) == ["new"]
    assert pages(server, f"/tools?bundleIDs={bundle}&for=openai") == []


def test_an_item_is_the_record_in_short(server: HttpServerProcess, store: Store, bundle: str) -> None:
    put(store, bundle, "sum", display_name="Sum", description="Adds. " * 200, tags=("maths",))
    (item,) = server.send("GET", f"/tools?bundleIDs={bundle}").json["tools"]
    record = server.send("GET", f"/tools/bundles/{bundle}/tools/sum/version/1").json
    assert len(item["description"]) < len(record["description"]) == len("Adds. " * 200)
    own = {key: record[key] for key in record if key in item}
    assert {**item, "description": record["description"]} == own
    assert item["name"].endswith("@1")
    assert (item["source"], item["kind"], item["trust"], item["asks"]) == ("user", "http", "new", None)
    assert item["touches"] == ["network: example.com"]
    assert (item["callCount"], item["lastCalledAt"]) == (0, None)
    details = {"argSchema", "outputSchema", "outputFormat", "impl", "permissions", "examples"}
    assert set(record) - set(item) == {*details, "schemaVersion"}
    (one,) = server.send("GET", f"/tools/bundles?bundleIDs={bundle}").json["bundles"]
    assert (one["toolCount"], one["source"]) == (1, "user")


def test_the_size_of_a_page_is_a_hint(server: HttpServerProcess, store: Store, bundle: str) -> None:
    for number in range(30):
        put(store, bundle, f"t{number}")
    path = f"/tools?bundleIDs={bundle}"
    assert len(server.send("GET", path).json["tools"]) == 25
    assert len(server.send("GET", f"{path}&recommendedPageSize=100000").json["tools"]) == 30
    assert server.send("GET", f"{path}&recommendedPageSize=0").status == 400


def test_filters_of_the_list(server: HttpServerProcess, store: Store, bundle: str) -> None:
    other = new_id()
    store.put_bundle(other, BundleBody(slug="off"))
    put(store, bundle, "a", tags=("x",))
    put(store, bundle, "b", tags=("y", "z"))
    put(store, bundle, "c", is_enabled=False, tags=("x",))
    put(store, other, "d", tags=("x",))
    store.switch_bundle(other, enabled=False)
    both = f"/tools?bundleIDs={bundle},{other}"
    assert slugs(pages(server, both)) == ["b", "a"]
    assert slugs(pages(server, f"{both}&includeDisabled=true")) == ["d", "c", "b", "a"]
    assert slugs(pages(server, f"{both}&tags=x,y")) == ["b", "a"]
    assert slugs(pages(server, f"{both}&tags=z")) == ["b"]
    assert slugs(pages(server, f"/tools?bundleIDs={bundle}&bundleIDs={other}&tags=x")) == ["a"]
    store.delete_tool(other, "d", "1")
    store.switch_bundle(other, enabled=True)
    store.delete_bundle(other)
    assert slugs(pages(server, f"/tools?bundleIDs={other}&includeDisabled=true")) == []


def test_a_search_finds_words_by_class_and_every_hit_by_paging(
    server: HttpServerProcess, store: Store, bundle: str
) -> None:
    put(store, bundle, "fetch-weather")
    put(store, bundle, "weatherReport")
    put(store, bundle, "other", description="Reports the weather.")
    put(store, bundle, "wether")
    put(store, bundle, "off", display_name="weather", is_enabled=False)
    path = f"/tools/search?q=weather&bundleIDs={bundle}"
    wait_for_hits(server, path, 4)
    found = pages(server, f"{path}&pageSize=1")
    assert slugs(found)[-1] == "wether"
    assert sorted(slugs(found)) == ["fetch-weather", "other", "weatherReport", "wether"]
    page = server.send("GET", path).json
    assert slugs(page["tools"]) == slugs(found)
    assert page["total"] == 4
    counts = server.send("GET", f"/tools/facets?q=weather&bundleIDs={bundle}").json
    assert (counts["total"], counts["kinds"], counts["sources"]) == (4, {"http": 4}, {"user": 4})
    assert slugs(pages(server, f"{path}&includeDisabled=true")).count("off") == 1
    store.delete_tool(bundle, "other", "1")
    wait_for_hits(server, path, 3)
    assert "other" not in slugs(pages(server, path))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/tools/search", "missing_field"),
        ("/tools/search?q=", "invalid_input"),
        ("/tools/search?q=%20-", "invalid_input"),
        ("/tools/search?q=a&pageSize=257", "invalid_input"),
        ("/tools/search?q=a&recommendedPageSize=1", "invalid_input"),
        ("/tools/search?q=a&pageToken=x", "invalid_input"),
        ("/tools?pageSize=1", "invalid_input"),
        ("/tools?pageToken=x", "invalid_input"),
        ("/tools?tags=a b".replace(" ", "%20"), "invalid_input"),
        ("/tools?bundleIDs=x", "invalid_input"),
    ],
)
def test_wrong_queries(server: HttpServerProcess, path: str, code: str) -> None:
    reply = server.send("GET", path)
    assert (reply.status, reply.code) == (400, code)


def test_a_token_is_bound_to_its_filters(server: HttpServerProcess, store: Store, bundle: str) -> None:
    for number in range(3):
        put(store, bundle, f"word-{number}")
    wait_for_hits(server, f"/tools/search?q=word&bundleIDs={bundle}", 3)
    for path, others in (
        (f"/tools?bundleIDs={bundle}&recommendedPageSize=1", ("tags=x", "includeDisabled=true")),
        (f"/tools/search?q=word&bundleIDs={bundle}&pageSize=1", ("tags=x", "includeDisabled=true")),
    ):
        token = server.send("GET", path).json["nextPageToken"]
        assert server.send("GET", f"{path}&pageToken={token}").status == 200
        for other in others:
            reply = server.send("GET", f"{path}&pageToken={token}&{other}")
            assert (reply.status, reply.code) == (400, "invalid_input")
