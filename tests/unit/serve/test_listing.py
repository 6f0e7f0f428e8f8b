"""Pages and cursors of the list of tools."""

from __future__ import annotations

import base64
from itertools import chain
from typing import Any

import orjson
import pytest

from tests.unit.serve.doubles import MemoryCatalog, make_tool
from toolcrib.serve.mcp import CallerListing
from toolcrib.serve.mcp.wire import JsonRpcError
from toolcrib.spec import McpForms


def catalog_of(count: int) -> MemoryCatalog:
    return MemoryCatalog(*(make_tool(f"tool_{number}") for number in range(count)))


def read(listing: CallerListing, cursor: str | None = None) -> dict[str, Any]:
    page: dict[str, Any] = orjson.loads(b"{" + listing.page(cursor) + b"}")
    return page


def walk(listing: CallerListing) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor = None
    while True:
        page = read(listing, cursor)
        pages.append([tool["name"] for tool in page["tools"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            return pages


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_every_tool_is_listed_once_in_pages(count: int, sizes: list[int]) -> None:
    pages = walk(CallerListing(catalog_of(count), page_size=3))
    assert [len(page) for page in pages] == sizes
    assert list(chain(*pages)) == [f"tool_{number}" for number in range(count)]


def test_a_page_is_written_once_per_revision() -> None:
    catalog = catalog_of(5)
    listing = CallerListing(catalog, page_size=3)
    assert listing.page() is listing.page()
    assert catalog.listings == 1
    catalog.list.append(make_tool("new"))
    catalog.revision += 1
    assert walk(listing)[-1][-1] == "new"
    assert catalog.listings == 2


def test_a_list_that_grew_in_front_continues_where_it_was() -> None:
    catalog = catalog_of(6)
    listing = CallerListing(catalog, page_size=3)
    cursor = read(listing)["nextCursor"]
    catalog.list.insert(0, make_tool("new"))
    catalog.revision += 1
    assert [tool["name"] for tool in read(listing, cursor)["tools"]] == ["tool_3", "tool_4", "tool_5"]


def test_a_cursor_whose_tool_is_gone_is_refused() -> None:
    catalog = catalog_of(6)
    listing = CallerListing(catalog, page_size=3)
    cursor = read(listing)["nextCursor"]
    del catalog.list[2]
    catalog.revision += 1
    with pytest.raises(JsonRpcError) as refused:
        listing.page(cursor)
    assert refused.value.code == -32602
    assert "without a cursor" in refused.value.message


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "é", "!!!!", base64.urlsafe_b64encode(b"three:tool_2").decode(), "9" * 9_000, "MzrwKIw="],
)
def test_a_bad_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(JsonRpcError) as refused:
        CallerListing(catalog_of(6), page_size=3).page(cursor)
    assert refused.value.code == -32602


def test_a_tool_is_found_by_its_wire_name() -> None:
    listing = CallerListing(MemoryCatalog(make_tool("my.tool")))
    entry = listing.get("my_tool")
    assert entry is not None
    assert entry.tool.name == "my.tool"
    assert listing.get("my_tool") is entry
    assert listing.get("other") is None


def test_a_uri_gives_the_arguments_of_a_template() -> None:
    forms = McpForms(resource="report://{year}-{month}/{kind}.txt")
    listing = CallerListing(MemoryCatalog(make_tool("report", mcp=forms)))
    for uri, arguments in (
        ("report://2026-11/a%2Fb.txt", ("2026", "11", "a/b")),
        ("report://a-b-c/d.txt.txt", ("a-b", "c", "d.txt")),
        ("report://-----/-.txt", ("---", "-", "-")),
        ("report://2026-/a.txt", None),
        ("report://-11/a.txt", None),
        ("report://2026-11/.txt", None),
        ("report://2026/11-a/b.txt", None),
        ("report://2026-11/a.pdf", None),
        ("report://x.txt", None),
        # A regular expression would try all pairs of places.
        (f"report://{'-' * 1_000_000}/", None),
    ):
        found = listing.resource(uri)
        assert (None if found is None else tuple(found[1].values())) == arguments, uri[:40]


def test_a_page_of_nothing_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="page_size"):
        CallerListing(MemoryCatalog(), page_size=0)
