"""The list of tools as MCP clients get it: wire names, pages kept as bytes, cursors."""

from __future__ import annotations

import base64

import orjson

from toolcrib.schema import SchemaCheck
from toolcrib.schema.providers import mcp_tool, wire_names, wraps_output
from toolcrib.serve.mcp.wire import INVALID_PARAMS, Refusal, to_json
from toolcrib.spec import Caller, Catalog, Tool

__all__ = ["DEFAULT_PAGE_SIZE", "Entry", "Listing"]

DEFAULT_PAGE_SIZE = 500


class Entry:
    """One tool as this list names it."""

    __slots__ = ("_check", "tool", "wraps")

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.wraps = wraps_output(tool)
        """Whether its value goes out as `{"result": value}` unless it is an object without a schema."""
        self._check: SchemaCheck | None = None

    @property
    def promise(self) -> SchemaCheck | None:
        """The compiled output schema, which every value sent must fit; None where none is advertised."""
        if self._check is None and self.tool.output.schema is not None:
            self._check = SchemaCheck(self.tool.output.schema)
        return self._check


class Listing:
    """What one caller sees: tools by wire name, and pages. Built anew when the catalog's revision changes."""

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
        self._tools: dict[str, Tool] = {}
        self._names: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._pages: dict[int, bytes] = {}
        self._places: dict[str, int] | None = None

    def entry(self, wire_name: str) -> Entry | None:
        """The tool of this wire name, or None."""
        if self._catalog.revision != self._revision:
            self._build()
        found = self._entries.get(wire_name)
        if found is None and (tool := self._tools.get(wire_name)) is not None:
            found = self._entries[wire_name] = Entry(tool)
        return found

    def page(self, cursor: str | None = None) -> bytes:
        """Members `"tools":[…]` and, if more follow, `"nextCursor":"…"` of one page, as JSON.

        Raises Refusal (invalid params) for a cursor that was not given out by this list.
        """
        if self._catalog.revision != self._revision:
            self._build()
        start = 0 if cursor is None else self._after(cursor)
        page = self._pages.get(start)
        if page is None:
            page = self._write(start)
            if start % self._page_size == 0:  # a list that changed gives odd starts: those are read once
                self._pages[start] = page
        return page

    def _build(self) -> None:
        # The revision is read first: a change while the list is being read is seen by the next request.
        revision = self._catalog.revision
        self._tools = wire_names(self._catalog.tools(self._caller, self._identity))
        self._names = list(self._tools)
        self._entries = {}
        self._pages = {}
        self._places = None
        self._revision = revision

    def _write(self, start: int) -> bytes:
        names = self._names[start : start + self._page_size]
        tools = b",".join(to_json(mcp_tool(self._tools[name], name)) for name in names)
        page = b'"tools":[' + tools + b"]"
        end = start + len(names)
        if end < len(self._names):
            page += b',"nextCursor":' + orjson.dumps(_cursor(end, names[-1]))
        return page

    def _after(self, cursor: str) -> int:
        """Where the page begins that `cursor` stands for.

        The cursor names the last tool of the page before, so a list that changed meanwhile goes on at the
        right place as long as that tool is still in it.
        """
        place, last = _read_cursor(cursor)
        if 0 < place <= len(self._names) and self._names[place - 1] == last:
            return place
        if self._places is None:
            self._places = {name: index for index, name in enumerate(self._names, 1)}
        moved = self._places.get(last)
        if moved is None:
            raise Refusal(INVALID_PARAMS, "the list of tools has changed: list again without a cursor")
        return moved


def _cursor(place: int, last: str) -> str:
    return base64.urlsafe_b64encode(f"{place}:{last}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[int, str]:
    try:
        place, _, last = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(":")
        return int(place), last
    except ValueError:
        raise Refusal(INVALID_PARAMS, "the cursor is not one this server gave out") from None
