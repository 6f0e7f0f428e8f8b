"""The list of tools as MCP clients get it: wire names, pages kept as bytes, cursors."""

from __future__ import annotations

import base64
from functools import cached_property

import orjson

from toolcrib.schema import SchemaCheck
from toolcrib.schema.providers import mcp_tool, wire_names, wraps_output
from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError, to_json
from toolcrib.spec import Caller, Catalog, Tool

__all__ = ["DEFAULT_PAGE_SIZE", "ListedTool", "Listing"]

DEFAULT_PAGE_SIZE = 500


class ListedTool:
    """One tool of a list, and its output schema as the list advertises it."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    @cached_property
    def wraps_output(self) -> bool:
        """True if its value is sent as `{"result": value}` to fit the advertised schema."""
        return wraps_output(self.tool)

    @cached_property
    def output_check(self) -> SchemaCheck | None:
        """The compiled output schema, which every value sent must match; None if none is advertised."""
        schema = self.tool.output.schema
        return None if schema is None else SchemaCheck(schema)


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
