"""The one record of a tool, made from the tool itself and from what is known of it here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from toolcrib.bundles import ListedTool, ToolRecord
from toolcrib.bundles.answers import Availability, ExampleCall, Source, ToolAnswer, ToolItem
from toolcrib.errors import ManifestError, ToolcribError
from toolcrib.manifest.kinds import KINDS
from toolcrib.manifest.touches import Touch, may_touch, touched
from toolcrib.project.tools.binding import missing_function
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import Caller, HttpExec, Tool
from toolcrib.spec import Source as ToolSource
from toolcrib.spec.moment import written
from toolcrib.spec.tools.kinds import FunctionExec
from toolcrib.spec.tools.tool import PLAIN

if TYPE_CHECKING:
    from toolcrib.project.catalog.sources import Sources
    from toolcrib.project.catalog.stored import StoredTools
    from toolcrib.project.control.steps import ProjectSteps
    from toolcrib.project.tools.servers import Servers
    from toolcrib.schema.provider_shapes import Shape
    from toolcrib.state.usage import UsageOfTool

_BRIEF = 300
"""Characters of a description in a list."""
_MOST_LINES, _LINE = 20, 200
"""Things in a list that a tool may touch, and characters of each."""
_MOST_READ = 2_000
"""Records that are kept as tools."""
_SAME = [name for name in ToolItem.__struct_fields__ if name in Tool.__dataclass_fields__]
_SHIPPED = ToolSource("native", "", b"", "", shipped=True)


class Entries:
    """Makes the records of one catalogue. Without `steps`, outside of a project, no tool can be called."""

    def __init__(
        self,
        stored: StoredTools,
        sources: Sources | None = None,
        steps: ProjectSteps | None = None,
        servers: Callable[[], Servers | None] = lambda: None,
        functions: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._stored, self._sources, self._steps, self._servers = stored, sources, steps, servers
        self._is_function = functions
        self._read: dict[str, tuple[ListedTool, Tool]] = {}

    def tool(self, listed: ListedTool) -> Tool:
        """Return a tool, on or off, without making it ready to be called.

        Raises a ToolcribError for one that cannot be read.
        """
        if listed.full:
            assert self._sources is not None
            return self._sources.definition(listed)
        kept = self._read.get(listed.key)
        if kept is None or kept[0] is not listed:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            self._read[listed.key] = kept = listed, self._stored.definition_of(listed)
        return kept[1]

    def text(self, listed: ListedTool, *, models: bool) -> str:
        """Return the description of a tool; for `models` as it was trusted."""
        own = listed.description or listed.name
        if not listed.full and not (models and self._is_known(listed)):
            return own
        tool = self._or_none(listed)[0]
        if models and tool is not None and self._steps is not None:
            tool = self._steps.trust.offered(tool) or tool
        return own if tool is None else tool.description

    def _is_known(self, listed: ListedTool) -> bool:
        """Return True if a person has trusted a version of a record."""
        subject = f"tool:{self._stored.full_name(listed)}", self._stored.bundle_name(listed.bundle)
        return self._steps is not None and subject in self._steps.trust.ledger.known()

    def visible(self, caller: str, identity: Caller | None) -> Callable[[ListedTool], bool] | None:
        """Return a function that says if a caller may see a tool; None for one who sees all.

        Raises InvalidToken if the caller's token is no longer valid.
        """
        if self._steps is None:
            return None
        access, name = self._steps.access, self._stored.full_name
        access.require_valid(identity)
        if not access.hides(identity):
            return None
        if identity is not None and identity.may("read") and not access.hides(None):
            return lambda one: identity.covers(name(one))
        return lambda one: access.visible(self._rough(one), caller, identity)

    def offered(self, kept: Callable[[], Mapping[str, Any]]) -> Callable[[ListedTool], bool]:
        """Return a function that says if a model may read a tool at all; `kept` returns tools that it may."""
        assert self._steps is not None
        trust = self._steps.trust
        offers, given, makers, known = (
            trust.offers(),
            trust.given,
            trust.ledger.makers(),
            trust.ledger.known(),
        )
        kept = cache(kept)

        def is_offered(listed: ListedTool) -> bool:
            # A search may ask this about every tool, so a manifest is read only if nothing else tells.
            if given and listed.full and listed.type == "native" and not listed.fault:
                if (f"tool:{listed.full}", self._stored.bundle_name(listed.bundle)) in known:
                    return True
                if trust.whole and listed.full not in makers:
                    return True
            if listed.full in kept():
                return True
            # What a record of these types may do is known without reading it.
            if not listed.full and listed.type in ("go", "http") and given:
                made = self._stored.full_name(listed) in makers
                return self._is_known(listed) or (listed.type == "go" and not made)
            try:
                return offers(self.tool(listed))
            except ToolcribError:
                return False

        return is_offered

    def _rough(self, listed: ListedTool) -> Tool:
        """Return the part of a tool that rules look at: all of it only where they look at its hints."""
        assert self._steps is not None
        if listed.type in ("native", "mcp") and self._steps.access.needs_hints and not listed.fault:
            try:
                return self.tool(listed)
            except ToolcribError:
                pass
        bundle, source = self._stored.bundle_name(listed.bundle), self._source(listed)
        return Tool(
            self._stored.full_name(listed), "", listed.kind, {}, HttpExec("GET", ""), tags=listed.tags,
            version=listed.version, bundle=bundle, source=_SHIPPED if source == "builtin" else None,
        )  # fmt: skip

    def _source(self, listed: ListedTool) -> Source:
        source = self._stored.store.sources.get(listed.bundle)
        return "user" if source is None else source.source

    def availability(self, listed: ListedTool) -> Availability:
        """Return if a tool can be called here, as far as that is known without making it ready."""
        # Of tools that are neither a server's nor the program's nothing is known before they are made ready.
        kind = KINDS.get(listed.kind)
        is_live = (
            listed.full
            and not listed.fault
            and kind is not None
            and (kind.executor is None or kind.of_program)
        )
        tool = self._or_none(listed)[0] if is_live else None
        return "unavailable" if listed.fault or self._why_unavailable(listed, tool) else "available"

    def touched(self, listed: ListedTool) -> Collection[Touch]:
        """Return what a tool may touch, in words to count tools by; nothing of one that cannot be read."""
        try:
            if listed.full and self._sources is not None:
                return self._sources.touched(listed)
            return touched(self.tool(listed))
        except ToolcribError:
            return ()

    def items(
        self,
        tools: Sequence[ListedTool],
        used: Mapping[str, UsageOfTool],
        caller: str = "local",
        identity: Caller | None = None,
        *,
        models: bool = False,
        shape: Shape | None = None,
    ) -> list[ToolItem]:
        """Return the records of tools with short texts; for `models` with the texts that were trusted.

        With `shape` each also has the form for that provider.
        """
        about: dict[str, Any] = {"models": models, "brief": True, "shape": shape, "paths": Paths()}
        return [ToolItem(**self._fields(one, used, caller, identity, **about)) for one in tools]

    def answer(
        self,
        listed: ListedTool,
        record: ToolRecord,
        used: Mapping[str, UsageOfTool],
        caller: str = "local",
        identity: Caller | None = None,
    ) -> ToolAnswer:
        """Return the whole record of a tool; `record` is the one that it was put or would be put as."""
        fields = self._fields(listed, used, caller, identity, models=False, brief=False)
        tool = self._or_none(listed)[0]
        permissions = {} if tool is None else tool.permissions.as_json()
        examples = () if tool is None else tool.examples
        return ToolAnswer(
            **fields,
            arg_schema=record.arg_schema,
            output_schema=record.output_schema,
            output_format="json" if tool is None else tool.output.format,
            impl=record.impl,
            permissions=permissions,
            examples=[ExampleCall(**asdict(one)) for one in examples],
            schema_version=record.schema_version,
        )

    def _or_none(self, listed: ListedTool) -> tuple[Tool | None, str | None]:
        """Return a tool; None for one that cannot be read, with the reason."""
        try:
            return self.tool(listed), None
        except ManifestError as error:
            return None, listed.fault or error.message
        except ToolcribError as error:
            return None, error.message

    def _fields(
        self,
        listed: ListedTool,
        used: Mapping[str, UsageOfTool],
        caller: str,
        identity: Caller | None,
        *,
        models: bool,
        brief: bool,
        shape: Shape | None = None,
        paths: Paths | None = None,
    ) -> dict[str, Any]:
        tool, fault = self._or_none(listed)
        if models and tool is not None and self._steps is not None:
            tool = self._steps.trust.offered(tool)
        calls, source = used.get(listed.id), self._source(listed)
        why = listed.fault or fault or self._why_unavailable(listed, tool)
        fields: dict[str, Any] = {name: getattr(tool, name) for name in _SAME if tool is not None}
        touches = [] if tool is None else may_touch(tool)
        if self._steps is not None:
            why, touches = self._steps.folders.shown([why, touches], identity)
        # A record has the text that it was put with, and none if it has a name alone.
        text = listed.description if tool is None or not (listed.full or models) else tool.description
        return {
            **dict.fromkeys(PLAIN, ""),
            **fields,
            "name": self._stored.full_name(listed),
            "id": listed.id,
            "bundle_id": listed.bundle,
            "bundle": self._stored.bundle_name(listed.bundle),
            "source": source,
            "slug": listed.slug,
            "version": listed.version,
            "display_name": listed.name,
            "description": _cut(text, _BRIEF) if brief else text,
            "translations": UNSET if tool is None or models else _translated(tool, brief),
            "type": listed.type,
            "kind": listed.kind,
            "tags": listed.tags,
            "is_enabled": listed.enabled,
            "is_built_in": source == "builtin",
            "availability": "unavailable" if why else "available",
            "unavailable_because": why,
            "touches": [_cut(line, _LINE) for line in touches[:_MOST_LINES]] if brief else touches,
            "asks": None if tool is None else self._asks(tool, caller, identity),
            "trust": None if tool is None or self._steps is None else self._steps.trust.waits(tool, paths),
            "created_at": listed.created,
            "modified_at": listed.modified,
            "call_count": 0 if calls is None else calls.calls,
            "last_called_at": None if calls is None else written(calls.last_called_at),
            **({} if shape is None else _entry(tool, shape, why)),
        }

    def _why_unavailable(self, listed: ListedTool, tool: Tool | None) -> str | None:
        """Return why a tool cannot be called here, as far as that is known without making it ready."""
        if not listed.full:
            return self._stored.why_unavailable(listed)
        if tool is None:
            return None
        if listed.type == "mcp" and (servers := self._servers()) is not None:
            owner = servers.owners.get(tool.name)
            error = None if owner is None else owner.server.error
            return None if error is None else error.message
        if tool.source is not None and isinstance(tool.config, FunctionExec) and not tool.is_builtin:
            reference = tool.config.reference
            return None if self._is_function(reference) else missing_function(tool.name, reference).message
        return None

    def _asks(self, tool: Tool, caller: str, identity: Caller | None) -> str | None:
        if tool.approval.required:
            return tool.approval.reason or "no reason is given"
        return None if self._steps is None else self._steps.access.may_ask(tool, caller, identity)


def _entry(tool: Tool | None, shape: Shape, why: str | None) -> dict[str, Any]:
    from toolcrib.schema.provider_shapes import shape_tools

    if tool is None:
        return {"no_entry_because": why or "it cannot be read"}
    shaped = shape_tools([tool], shape)
    return {"entry": shaped.entries[0]} if shaped.entries else {"no_entry_because": shaped.refused[tool.name]}


def _translated(tool: Tool, brief: bool) -> dict[str, dict[str, str]] | UnsetType:
    """Return the texts of a record in other languages, as lists show them if `brief`."""
    if not brief or not tool.translations:
        return tool.translations or UNSET
    texts = tool.translations.items()
    return {tag: {key: _cut(text, _BRIEF) for key, text in own.items()} for tag, own in texts}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def fitting(items: Sequence[ToolItem], most: int) -> list[ToolItem]:
    """Return the first records that take at most so many bytes as JSON; one at least."""
    size, found = 0, list[ToolItem]()
    for one in items:
        size += len(msgspec.json.encode(one))
        if found and size > most:
            break
        found.append(one)
    return found
