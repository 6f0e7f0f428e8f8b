"""The list of tools as MCP clients get it: wire names, pages kept as bytes, cursors."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import orjson

from toolcrib.schema import SchemaCheck
from toolcrib.schema.providers import mcp_tool, wire_names, wraps_output
from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError, to_json
from toolcrib.spec import Caller, Catalog, Tool

__all__ = ["DEFAULT_PAGE_SIZE", "PARAM_PREFIX", "ListedTool", "Listing", "Listings", "ParamHeader"]

DEFAULT_PAGE_SIZE = 500


_MAX_LISTINGS = 8
"""Lists kept for callers, who may give themselves another name in each request."""


PARAM_PREFIX = b"mcp-param-"
ParamHeader = tuple[tuple[str, ...], bytes]
"""Path of an argument of a tool, and the header of HTTP that repeats it."""


class ListedTool:
    """One tool of a list, and its output schema as the list advertises it."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    @cached_property
    def wraps_output(self) -> bool:
        """True if its value is sent as `{"result": value}` to fit the advertised schema."""
        return wraps_output(self.tool)

    @cached_property
    def param_headers(self) -> tuple[ParamHeader, ...]:
        """The arguments that a request over HTTP must repeat in headers."""
        return tuple(_param_headers(self.tool.input_schema))

    @cached_property
    def output_check(self) -> SchemaCheck | None:
        """The compiled output schema, which every value sent must match; None if none is advertised."""
        schema = self.tool.output.schema
        return None if schema is None else SchemaCheck(schema)


def _param_headers(schema: Any, path: tuple[str, ...] = ()) -> Iterator[ParamHeader]:
    """Give the headers that the properties of an input schema declare by `x-mcp-header`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for key, part in properties.items() if isinstance(properties, Mapping) else ():
        name = part.get("x-mcp-header") if isinstance(part, Mapping) else None
        if isinstance(name, str) and name.isascii():
            yield (*path, key), PARAM_PREFIX + name.lower().encode()
        yield from _param_headers(part, (*path, key))


class Listing:
    """The tools that one caller may see, by wire name and in pages.

    It is built again when the catalog's revision has changed.
    """

    def __init__(
        self,
        catalog: Catalog,
        page_size: int = DEFAULT_PAGE_SIZE,
        *,
        caller: str = "mcp",
        identity: Caller | None = None,
    ) -> None:
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        self._catalog = catalog
        self._caller = caller
        self._identity = identity
        self._page_size = page_size
        self._revision: int | None = None
        self._tools: dict[str, ListedTool] = {}
        self._names: list[str] = []
        self._ends: dict[str, int] = {}
        """Tool name to the number of tools up to and including it."""
        self._pages: dict[int, bytes] = {}

    def get(self, wire_name: str) -> ListedTool | None:
        """Return the tool of this wire name, or None."""
        self._refresh()
        return self._tools.get(wire_name)

    def page(self, cursor: str | None = None) -> bytes:
        """Return the JSON members `"tools":[…]` and, if more follow, `"nextCursor":"…"` of one page.

        Raises JsonRpcError (invalid params) for a cursor that is not of this list.
        """
        self._refresh()
        start = 0 if cursor is None else self._start(cursor)
        page = self._pages.get(start)
        if page is None:
            page = self._write(start)
            if start % self._page_size == 0:  # Other starts come from a cursor of an older list.
                self._pages[start] = page
        return page

    def _refresh(self) -> None:
        # The revision is read first: a change while the list is read is seen by the next request.
        revision = self._catalog.revision
        if revision != self._revision:
            found = wire_names(self._catalog.tools(self._caller, self._identity))
            self._tools = {name: ListedTool(tool) for name, tool in found.items()}
            self._names = list(found)
            self._ends = {name: number for number, name in enumerate(found, 1)}
            self._pages = {}
            self._revision = revision

    def _write(self, start: int) -> bytes:
        names = self._names[start : start + self._page_size]
        tools = b",".join(to_json(mcp_tool(self._tools[name].tool, name)) for name in names)
        page = b'"tools":[' + tools + b"]"
        if start + len(names) < len(self._names):
            cursor = base64.urlsafe_b64encode(names[-1].encode()).decode()
            page += b',"nextCursor":' + orjson.dumps(cursor)
        return page

    def _start(self, cursor: str) -> int:
        """Return the position of the first tool after `cursor`.

        A cursor is the name of the last tool sent, so it stays good when other tools come or go.
        """
        try:
            last = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
        except ValueError:
            last = ""
        if last not in self._ends:
            message = "the cursor is not of this list: it may have changed, so list again without a cursor"
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, message)
        return self._ends[last]


class Listings:
    """The lists of the callers of one server, made when they are needed; the ones used last are kept."""

    def __init__(self, catalog: Catalog, page_size: int, most: int = _MAX_LISTINGS) -> None:
        self._catalog, self._page_size, self._most = catalog, page_size, most
        self._kept: dict[tuple[str, str, Caller | None], Listing] = {}

    def of(self, caller: str, identity: Caller | None) -> Listing:
        """Return the list of tools that this caller may see."""
        key = (caller, "" if identity is None else identity.client, identity)
        listing = self._kept.pop(key, None)
        if listing is None:
            if len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]  # the one used longest ago
            listing = Listing(self._catalog, self._page_size, caller=caller, identity=identity)
        self._kept[key] = listing
        return listing
