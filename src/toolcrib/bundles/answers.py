"""Bundles and tools as they are read: the one record of the catalogue, for lists and whole."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from toolcrib.bundles.records import SCHEMA_VERSION, BundleRecord, Moment, ToolType, Translations, Uuid

Availability = Literal["available", "unavailable"]
Source = Literal["project", "file", "server", "builtin", "user"]


class BundleAnswer(BundleRecord, frozen=True, kw_only=True, rename="camel"):
    """A bundle as it is read."""

    source: Source
    """The project's own tools, a Python file, an MCP server, the built-in tools, or records of the user."""
    tool_count: int
    """Its tools that the caller may see, disabled ones too."""
    availability: Availability
    unavailable_because: str | None
    """The reason if its record cannot be read: then it counts as disabled until it is put again."""


class ToolItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """One tool of the catalogue, of whatever source, as lists show it."""

    name: str
    """The name to call it by: that of the project's tool, or `bundle/slug@version` for a record."""
    id: Uuid = field(name="toolID")
    """UUIDv7. A record gets one when it is put; elsewhere it is made of source, name and version."""
    bundle_id: Uuid = field(name="bundleID")
    bundle: str
    """The name of its bundle, as rules of the policy match it."""
    source: Source
    slug: str
    """Its address in the bundle. Ends in a hash of the name where two names would have one."""
    version: str
    display_name: str
    description: str
    """Cut in lists."""
    translations: Translations = UNSET
    type: ToolType
    """`go`: a registered Python callable; `http`: requests; `native`: a manifest; `mcp`: a server's."""
    kind: str
    """`http`, `command`, `python`, …: what runs it."""
    tags: tuple[str, ...]
    owner: str
    """The person or team that answers for it; empty if nobody is named."""
    is_enabled: bool
    """Of the tool itself. If its bundle is disabled, so is the tool."""
    is_built_in: bool
    availability: Availability
    """As far as it is known. An unavailable record counts as disabled."""
    unavailable_because: str | None
    """For example that its function is not registered in this process."""
    touches: list[str]
    """Everything that it may touch, in words."""
    asks: str | None
    """The reason why a person must approve a call, or may have to; None if nobody is asked."""
    trust: Literal["new", "changed"] | None
    """It waits for trust: nobody has trusted it, or it has changed since. None if it does not wait."""
    created_at: Moment
    """The time of its file, if it is no record."""
    modified_at: Moment
    """The last change of anything but the switch."""
    call_count: int
    last_called_at: Moment | None
    entry: dict[str, Any] | UnsetType = UNSET
    """The tool as the provider `for` accepts it, if the list was asked for that and it has such a form."""
    no_entry_because: str | UnsetType = UNSET
    """Otherwise the reason why it has none."""


class FoundTool(ToolItem, frozen=True, kw_only=True):
    """One tool that a search found."""

    match: str
    """The kind of match: `prefix`, `word`, `fuzzy`, or `some` of the words, or words for the same."""
    field: str
    """The field that matched: `name`, `tags`, `description`, `arguments` or `several`."""


class ExampleCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """An example of a call."""

    description: str
    params: dict[str, Any]
    expected_output: str | None = None


class ToolAnswer(ToolItem, frozen=True, kw_only=True, rename="camel"):
    """One version of a tool as it is read whole."""

    arg_schema: dict[str, Any]
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None
    output_format: Literal["json", "text", "content"]
    impl: dict[str, Any]
    """As in FlexiGPT's `tool.json`; for `native` `manifest`, its text, and for `mcp` `server` and `tool`."""
    permissions: dict[str, Any]
    examples: list[ExampleCall]
    schema_version: str = SCHEMA_VERSION
