"""The lists that one caller gets: wire names, pages, the tools behind prompts and resources."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, Literal
from urllib.parse import unquote

import orjson

from toolcrib.errors import ToolcribError
from toolcrib.schema import SchemaCheck
from toolcrib.schema.hosts import HOSTS, HostRules, fitted, rules_of
from toolcrib.schema.providers import mcp_icons, mcp_tool, wire_names, wraps_output
from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError, to_json
from toolcrib.spec import Caller, Catalog, Tool

_Match = Callable[[str], dict[str, Any] | None]
ListName = Literal["tools", "prompts", "resources", "resourceTemplates"]
DEFAULT_PAGE_SIZE = 500
_MAX_LISTINGS = 8
"""Lists kept for callers, who may give themselves another name in each request."""
PARAM_PREFIX = b"mcp-param-"
ParamHeader = tuple[tuple[str, ...], bytes]
"""Path of an argument of a tool, and the header of HTTP that repeats it."""


class AdvertisedTool:
    """One tool of a list, and its output schema as the list advertises it."""

    def __init__(self, tool: Tool, name: str = "", rules: HostRules | None = None) -> None:
        self.tool, self.name, self._rules = tool, name, rules

    def own_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by the tool's own names for them, where the list has others."""
        own = self._own_names
        return {own.get(name, name): value for name, value in arguments.items()} if own else arguments

    @cached_property
    def _own_names(self) -> dict[str, str]:
        return {} if self._rules is None else _fitted(mcp_tool(self.tool, self.name), self._rules)[1]

    @property
    def prompt(self) -> dict[str, Any]:
        """The entry of `prompts/list`."""
        schema = self.tool.input_schema
        required = schema.get("required", ())
        arguments = [
            {"name": name, "required": name in required, **_described(part)}
            for name, part in schema.get("properties", {}).items()
        ]
        entry = {"name": self.name, "description": self.tool.description, "arguments": arguments}
        return entry | mcp_icons(self.tool)

    def resource(self, key: str) -> dict[str, Any]:
        """The entry of `resources/list` (key `uri`) or `resources/templates/list` (key `uriTemplate`)."""
        forms = self.tool.mcp
        entry: dict[str, Any] = {key: forms.resource, "name": self.name}
        entry["description"] = self.tool.description
        if forms.mime_type is not None:
            entry["mimeType"] = forms.mime_type
        return entry | mcp_icons(self.tool)

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


def _described(schema: Any) -> dict[str, str]:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return {"description": text} if isinstance(text, str) else {}


def _param_headers(schema: Any, path: tuple[str, ...] = ()) -> Iterator[ParamHeader]:
    """Give the headers that the properties of an input schema declare by `x-mcp-header`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for key, part in properties.items() if isinstance(properties, Mapping) else ():
        name = part.get("x-mcp-header") if isinstance(part, Mapping) else None
        if isinstance(name, str) and name.isascii():
            yield (*path, key), PARAM_PREFIX + name.lower().encode()
        yield from _param_headers(part, (*path, key))


class Pages:
    """The pages of one list, kept as bytes. `write` returns the entry of a name as JSON."""

    def __init__(
        self, key: str, names: Sequence[str], size: int, write: Callable[[str], bytes | memoryview]
    ) -> None:
        self._key = orjson.dumps(key)
        self._names, self._size, self._write = names, size, write
        self._ends: dict[str, int] | None = None
        """Name to the number of entries up to and including it; made for the first cursor."""
        self._kept: dict[int, bytes] = {}

    def page(self, cursor: str | None = None) -> bytes:
        """Return the JSON members `"KEY":[…]` and, if more follow, `"nextCursor":"…"` of one page.

        Raises JsonRpcError (invalid params) for a cursor that is not of this list.
        """
        start = 0 if cursor is None else self._start(cursor)
        page = self._kept.get(start)
        if page is None:
            page = self._made(start)
            if start % self._size == 0:  # Other starts come from a cursor of an older list.
                self._kept[start] = page
        return page

    def _made(self, start: int) -> bytes:
        names = self._names[start : start + self._size]
        page = self._key + b":[" + b",".join(map(self._write, names)) + b"]"
        if start + len(names) < len(self._names):
            cursor = base64.urlsafe_b64encode(names[-1].encode()).decode()
            page += b',"nextCursor":' + orjson.dumps(cursor)
        return page

    def _start(self, cursor: str) -> int:
        """Return the position of the first entry after `cursor`.

        A cursor is the name of the last entry sent, so it stays good when others come or go.
        """
        if self._ends is None:
            self._ends = {name: number for number, name in enumerate(self._names, 1)}
        try:
            last = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
        except ValueError:
            last = ""
        if last not in self._ends:
            message = "the cursor is not of this list: it may have changed, so list again without a cursor"
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, message)
        return self._ends[last]


class CallerListing:
    """The tools, prompts and resources that one caller may see, in pages.

    It is built again when the catalog's revision has changed.
    """

    def __init__(
        self,
        catalog: Catalog,
        page_size: int = DEFAULT_PAGE_SIZE,
        *,
        caller: str = "mcp",
        identity: Caller | None = None,
        rules: HostRules | None = None,
    ) -> None:
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        self._catalog, self._page_size = catalog, page_size
        self._caller, self._identity, self._rules = caller, identity, rules
        self._own: dict[str, str] = {}
        """Name in the list to the tool's wire name, where they differ."""
        self._revision: int | None = None
        self._tools: dict[str, Tool | memoryview] = {}
        self._kept: dict[str, AdvertisedTool] = {}
        """The tools that were asked for: with thousands of tools, making all takes long."""
        self._resources: dict[str, AdvertisedTool] = {}
        self._templates: dict[str, tuple[_Match, AdvertisedTool]] = {}
        self._pages: dict[ListName, Pages] = {}
        self.untrusted = 0
        """Tools that no list has, because they wait until a person trusts them."""

    def get(self, wire_name: str) -> AdvertisedTool | None:
        """Return the tool of this wire name, or None."""
        self._refresh()
        if self._rules is not None:
            wire_name = self._rules.name(wire_name)
        if (found := self._kept.get(wire_name)) is not None:
            return found
        tool = self._tools.get(wire_name)
        # The list has only its JSON so far. It may be gone since the list was made.
        if isinstance(tool, memoryview):
            with suppress(ToolcribError):
                tool = self._catalog.get(self._own.get(wire_name, wire_name))
        if not isinstance(tool, Tool):
            return None
        self._kept[wire_name] = found = AdvertisedTool(tool, wire_name, self._rules)
        return found

    def prompt(self, name: str) -> AdvertisedTool | None:
        """Return the tool that is the prompt of this name, or None."""
        found = self.get(name)
        return found if found is not None and found.tool.mcp.prompt else None

    def resource(self, uri: str) -> tuple[AdvertisedTool, dict[str, Any]] | None:
        """Return the tool that reads a resource, and its arguments from the URI; None if there is none."""
        self._refresh()
        found = self._resources.get(uri)
        if found is not None:
            return found, {}
        for match, listed in self._templates.values():
            arguments = match(uri)
            if arguments is not None:
                return listed, arguments
        return None

    def template(self, uri: str) -> AdvertisedTool | None:
        """Return the tool of a resource template, or None."""
        self._refresh()
        found = self._templates.get(uri)
        return None if found is None else found[1]

    def page(self, cursor: str | None = None, name: ListName = "tools") -> bytes:
        """Return the JSON members of one page of a list. Raises JsonRpcError for a wrong cursor."""
        self._refresh()
        return self._pages[name].page(cursor)

    def _refresh(self) -> None:
        # The revision is read first: a change while the list is read is seen by the next request.
        revision = self._catalog.revision
        if revision == self._revision:
            return
        every = self._catalog.listed(self._caller, self._identity)
        made = wire_names(tool for tool in every.values() if isinstance(tool, Tool))
        wires = {tool.name: wire for wire, tool in made.items()}
        tools = {wires.get(name, name): tool for name, tool in every.items()}
        if (rules := self._rules) is not None:
            self._own = {short: name for name in tools if (short := rules.name(name)) != name}
            tools = {rules.name(name): tool for name, tool in tools.items()}
        self._tools = tools
        self._kept, self._resources, self._templates = {}, {}, {}
        resources, templates = self._resources, self._templates
        listed, prompts = [], []
        for name, tool in tools.items():
            if not isinstance(tool, Tool) or tool.mcp.listed:
                listed.append(name)
            if not isinstance(tool, Tool):
                continue
            if tool.mcp.prompt:
                prompts.append(name)
            if (uri := tool.mcp.resource) is not None and "{" in uri:
                templates.setdefault(uri, (_match(uri), AdvertisedTool(tool, name)))
            elif uri is not None:
                resources.setdefault(uri, AdvertisedTool(tool, name))
        lists: dict[ListName, tuple[list[str], Callable[[str], bytes | memoryview]]] = {
            "tools": (listed, lambda name: self._entry(tools[name], name)),
            "prompts": (prompts, lambda name: to_json(AdvertisedTool(_tool(tools[name]), name).prompt)),
            "resources": (list(resources), lambda uri: to_json(resources[uri].resource("uri"))),
            "resourceTemplates": (
                list(templates),
                lambda uri: to_json(templates[uri][1].resource("uriTemplate")),
            ),
        }
        self._pages = {
            key: Pages(key, names, self._page_size, write) for key, (names, write) in lists.items()
        }
        self.untrusted = self._catalog.untrusted()
        self._revision = revision

    def _entry(self, tool: Tool | memoryview, name: str) -> bytes | memoryview:
        if self._rules is None:
            return to_json(mcp_tool(tool, name)) if isinstance(tool, Tool) else tool
        own = self._own.get(name, name)
        entry = mcp_tool(tool, own) if isinstance(tool, Tool) else orjson.loads(tool)
        return to_json(_fitted(entry, self._rules)[0])


def _tool(tool: Tool | memoryview) -> Tool:
    assert isinstance(tool, Tool)
    return tool


def _fitted(entry: dict[str, Any], rules: HostRules) -> tuple[dict[str, Any], dict[str, str]]:
    """Return an entry as the host accepts it; as it is where its schema has no such form."""
    try:
        return fitted(entry, rules)
    except (ToolcribError, RecursionError):
        return entry, {}


def _match(template: str) -> _Match:
    """Return the function that finds the arguments in a URI of a template; None for another URI."""
    parts = re.split(r"\{(\w+)\}", template)
    if any("{" in text for text in parts[::2]):
        # Only servers that are mounted, which is done with this package, have other forms of RFC 6570.
        from mcp.shared.uri_template import UriTemplate

        return UriTemplate.parse(template).match
    first, *texts = parts[::2]

    # Not a regular expression: clients choose the URI, and one with several places for a text between two
    # arguments takes time by the square of its length.
    def match(uri: str) -> dict[str, str] | None:
        if not (uri.startswith(first) and uri.endswith(texts[-1])):
            return None
        rest, values = uri[len(first) : len(uri) - len(texts[-1])], []
        for text in reversed(texts[:-1]):
            # The last place, as an argument takes as much as it can, and leaves one character for the next.
            place = rest.rfind(text, 0, max(0, len(rest) - 1))
            if place < 0:
                return None
            values.append(rest[place + len(text) :])
            rest = rest[:place]
        values.append(rest)
        if not all(values) or any("/" in value for value in values):
            return None
        return dict(zip(parts[1::2], map(unquote, reversed(values)), strict=True))

    return match


class Listings:
    """The lists of the callers of one server, made when they are needed; the ones used last are kept."""

    def __init__(self, catalog: Catalog, page_size: int, most: int = _MAX_LISTINGS) -> None:
        self._catalog = catalog

        # Callers are equal whatever their client is, but rules match the client as well.
        @lru_cache(most)
        def made(caller: str, client: str, identity: Caller | None, wanted: str) -> CallerListing:
            rules = HOSTS[wanted] if wanted else rules_of(client)
            return CallerListing(catalog, page_size, caller=caller, identity=identity, rules=rules)

        self._made = made
        self._marks: tuple[int | None, dict[str, list[object]]] = (None, {})

    def of(self, caller: str, client: str, identity: Caller | None, wanted: str = "") -> CallerListing:
        """Return the list of tools that this caller may see, as its client accepts it.

        `wanted` names the host or API whose rules count instead of those of `client`.
        """
        return self._made(caller, client, identity, wanted)

    def marks(self) -> dict[str, list[object]]:
        """Return the lists of prompts and resources, to see a change of them; made once for all clients."""
        revision = self._catalog.revision
        if self._marks[0] != revision:
            found: dict[str, list[object]] = {"promptsListChanged": [], "resourcesListChanged": []}
            for tool in self._catalog.listed().values():
                if not isinstance(tool, Tool):
                    continue
                if tool.mcp.prompt:
                    found["promptsListChanged"].append((tool.name, tool.description, tool.input_schema))
                if tool.mcp.resource is not None:
                    found["resourcesListChanged"].append((tool.name, tool.description, tool.mcp))
            self._marks = revision, found
        return self._marks[1]
