"""The tools of the user's store of bundles, as tools of one project, and what a name means among all tools.

A record has its full name, `bundle/slug@version`. A bundle is named by its slug, or by its id where an older
bundle has that slug. A tool is read when it is first listed or called, and again after it has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock

import msgspec

from toolcrib.bundles import BundleRecord, ListedTool, SourceBundle, Store, ToolRecord, entry_of
from toolcrib.bundles.listing import Listing
from toolcrib.errors import (
    BundleDisabled,
    ConflictError,
    ManifestError,
    ToolcribError,
    ToolDisabled,
    ToolUnavailable,
    UsageError,
)
from toolcrib.manifest import Diagnostic, Document, diagnostics_of
from toolcrib.project.catalog.registry import ToolRegistry
from toolcrib.project.tools.binding import missing_function
from toolcrib.spec import Tool
from toolcrib.spec.naming import parts_of, stored_name, wire_name
from toolcrib.state import cache_folder

_REAP_EVERY_S = 24 * 3600.0
_UNUSABLE = "Put it again, or delete it."


class StoredTools:
    """Puts tools of the store into the registry under their full names. Safe for threads.

    `know` is called with each tool before it can be used, `announce` when the list has changed. `sources`
    returns the bundles beside those of the store, whose names no other bundle gets, and `pinned` are the full
    names that go before other versions. `registered` returns True for a function that this process can call:
    a tool without its function counts as disabled.
    """

    def __init__(
        self,
        data: Path,
        registry: ToolRegistry,
        know: Callable[[Sequence[Tool]], None],
        announce: Callable[[], None],
        *,
        sources: Callable[[], Sequence[SourceBundle]] = tuple,
        pinned: Collection[str] = (),
        was_missing: bool = False,
        registered: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.data, self._sources, self._clock, self._registered = data, sources, clock, registered
        self._registry, self._know, self._announce = registry, know, announce
        self._pinned = frozenset(pinned)
        self._store: Store | None = None
        self._listing: Listing | None = None
        self.lock = RLock()
        """Held while the list is read or brought up to date."""
        self._names: dict[str, str] = {}
        """Id of a bundle to its name in the names of its tools."""
        self._ids: dict[str, str] = {}
        self._bundles: Mapping[str, BundleRecord] = {}
        self._bound: dict[str, ListedTool] = {}
        """Full name to the tool as it was put into the registry."""
        self._broken: dict[str, str] = {}
        """Full name to the reason why a tool is not in the registry."""
        self._unsettled = False
        self._was_missing = was_missing
        self._reaped_at = -_REAP_EVERY_S

    @property
    def store(self) -> Store:
        """The store, with the bundles of sources."""
        with self.lock:
            if self._store is None:
                self._store = Store(self.data, sources=self._sources(), clock=self._clock)
            return self._store

    def sources_changed(self) -> None:
        """Take up sources that were added, and let go of those that are gone."""
        with self.lock:
            if self._store is not None:
                self._store.sources = {one.id: one for one in self._sources()}
                self._name_bundles(self._bundles)

    @property
    def listing(self) -> Listing:
        """Every tool as it is now."""
        self.catch_up()
        assert self._listing is not None
        return self._listing

    @property
    def is_behind(self) -> bool:
        """True if `catch_up` has something to do."""
        return self._listing is None or self._listing.is_behind

    def catch_up(self) -> None:
        """Take in the changes of every process. The registry stays as it is; any thread may do this."""
        with self.lock:
            first = self._listing is None
            if self._listing is None:
                cache = cache_folder(self.data)
                snapshot = None if cache is None else cache / "listing"
                self._listing = Listing(self.store, snapshot, self._registered)
            if not self._listing.refresh():
                return
            if self._listing.bundles is not self._bundles:
                self._name_bundles(self._listing.bundles)
            # At the first reading nothing of the store is in the registry yet, nor in a list without a store.
            self._unsettled = not first or (self._was_missing and self.store.exists)

    def settle(self) -> None:
        """Take tools that have changed or are gone out of the registry, in the thread that uses it."""
        with self.lock:
            if not self._unsettled:
                return
            self._unsettled = False
            assert self._listing is not None
            for name, tool in list(self._bound.items()):
                now = self._listing.find(tool.bundle, tool.slug, tool.version)
                if now != tool or not self._listing.is_on(tool) or self.full_name(tool) != name:
                    del self._bound[name]
                    self._registry.remove_external(name, quietly=True)
                    self._registry.set_external_findings(f"store/{name}", (), {})
        self._announce()

    def _name_bundles(self, bundles: Mapping[str, BundleRecord]) -> None:
        sources = {one.id: one.name for one in self.store.sources.values()}
        # The oldest bundle of a slug has it, so a later one cannot take over the names of its tools.
        taken = dict.fromkeys((*sources.values(), *(one.slug for one in self.store.sources.values())), "")
        for bundle in sorted(bundles.values(), key=lambda one: (one.created_at, one.id)):
            if bundle.soft_deleted_at is None and bundle.id not in sources:
                taken.setdefault(bundle.slug, bundle.id)
        stored = (one for one in bundles.values() if one.id not in sources)
        self._names = {one.id: one.slug if taken.get(one.slug) == one.id else one.id for one in stored}
        self._names |= sources
        slugs = {one.slug: one.id for one in self.store.sources.values()}
        self._ids = slugs | {name: id for id, name in self._names.items()}  # noqa: A001 - the field's name
        self._bundles = bundles

    # -- names -------------------------------------------------------------------------------------

    def bundle_name(self, bundle_id: str, slug: str | None = None) -> str:
        """Return the name of a bundle in the names of its tools; with `slug`, of one that may be new."""
        new = bundle_id if slug is None or slug in self._ids else slug
        return self._names.get(bundle_id, new)

    def full_name(self, tool: ListedTool) -> str:
        """Return the name of a tool in the catalog."""
        return tool.full or stored_name(self.bundle_name(tool.bundle), tool.slug, tool.version)

    def name_of(self, bundle_id: str, slug: str, version: str) -> str:
        """Return the name of the tool at an address, also if there is none."""
        with self.lock:
            tool = self.listing.find(bundle_id, slug, version)
            bundle = self.bundle_name(bundle_id)
        return stored_name(bundle, slug, version) if tool is None else self.full_name(tool)

    def find(self, text: str) -> ListedTool | None:
        """Return the tool that `[BUNDLE/]NAME[@VERSION]` means; BUNDLE is the name of a bundle or its id.

        Of several versions it is the pinned one, else the only enabled one, else the newest. Raises
        UsageError if tools of several bundles may be meant.
        """
        parts = parts_of(text)
        if parts is None:
            return None
        bundle, slug, version = parts
        with self.lock:
            listing = self.listing
            id = None if bundle is None else self._ids.get(bundle, bundle)  # noqa: A001
            if id is not None and version is not None and id not in self.store.sources:
                return listing.find(id, slug, version)
            named = [
                tool
                for tool in listing.tools()
                if slug in (tool.slug, tool.name if tool.full else "")
                and id in (None, tool.bundle)
                and version in (None, tool.version)
            ]
            # A tool of a source has a name of its own; its slug is one of several spellings.
            exact = [tool for tool in named if slug == (tool.name if tool.full else tool.slug)]
            found = exact or named
            if not found and bundle is None and version is None:
                return self._with_wire_name(text)
            if len({tool.bundle for tool in found}) > 1:
                # Disabled tools make a name ambiguous only among themselves.
                found = [tool for tool in found if listing.is_on(tool)] or found
            if len({tool.bundle for tool in found}) > 1:
                names = ", ".join(sorted(self.full_name(tool) for tool in found))
                raise UsageError(f"{text!r} may be any of these: {names}", hint="Name the bundle too.")
            return self._best(found)

    def _with_wire_name(self, text: str) -> ListedTool | None:
        bundle, _, slug = text.partition("__")[0].partition("_")
        if not slug or (own := self._ids.get(bundle)) is None:  # Else each unknown name costs a look at all.
            return None
        found = (tool for tool in self.listing.tools() if tool.slug == slug and tool.bundle == own)
        return next((tool for tool in found if wire_name(self.full_name(tool)) == text), None)

    def _best(self, versions: Sequence[ListedTool]) -> ListedTool | None:
        listing = self.listing
        choices = [tool for tool in versions if self.full_name(tool) in self._pinned]
        choices = choices or [tool for tool in versions if listing.is_on(tool)] or list(versions)
        return max(choices, key=lambda tool: tool.order, default=None)

    def why_missing(self, text: str) -> ToolcribError | None:
        """Return the error of a tool that is in the store and disabled; None for any other name."""
        try:
            tool = self.find(text)
        except ToolcribError as error:
            return error
        return None if tool is None else self._refusal(tool)

    def _refusal(self, tool: ListedTool) -> ToolcribError | None:
        name, bundle = self.full_name(tool), self.listing.bundles.get(tool.bundle)
        if bundle is not None and not bundle.is_enabled:
            return BundleDisabled(f"the bundle of {name} is disabled", hint="Enable the bundle first.")
        if not tool.fault and not tool.enabled:
            return ToolDisabled(f"{name} is disabled", hint="Enable the tool first.")
        if (why := self._broken.get(name)) is not None:
            return ConflictError(why)
        if tool.fault:
            return ToolUnavailable(f"{name}: {tool.fault}", hint=_UNUSABLE)
        return None if self.listing.is_whole(tool) else missing_function(name, tool.function)

    # -- tools -------------------------------------------------------------------------------------

    def ready(self, text: str) -> str | None:
        """Put in the tool that a name means, as it is now, and return its full name.

        None if there is no such tool, or if it is disabled: see `why_missing`.
        """
        with self.lock:
            self.catch_up()
            self.settle()
            # The usual call: no name is looked up in the list.
            if text in self._bound:
                return text
            try:
                tool = self.find(text)
            except UsageError:
                return None
            if tool is None or not self.listing.is_on(tool):
                return None
            if not tool.full:
                self._bind(tool)
            return self.full_name(tool)

    def definition(self, text: str, error: ToolcribError) -> Tool:
        """Return a tool that only lacks its function here. Raises `error` for any other."""
        with self.lock:
            self.catch_up()
            listed = self.find(text)
            if listed is None or not isinstance(self._refusal(listed), ToolUnavailable):
                raise error
            return self.definition_of(listed)

    def definition_of(self, listed: ListedTool) -> Tool:
        """Return the tool of a record, on or off. Raises ManifestError if it is no usable one."""
        if listed.fault:
            raise ManifestError(listed.fault, hint=_UNUSABLE)
        record = self.store.tool(listed.bundle, listed.slug, listed.version)
        tool, _, found = tool_of(record, self.bundle_name(listed.bundle))
        if tool is None:
            raise ManifestError(found[0].message if found else "the record is not a tool", hint=_UNUSABLE)
        return tool

    def ready_all(self) -> None:
        """Put in every tool that is not disabled, by bundle and age."""
        with self.lock:
            listing = self.listing
            self.settle()
            for tool in listing.tools():
                if not tool.full and listing.is_on(tool):
                    self._bind(tool)

    def why_unavailable(self, tool: ListedTool) -> str | None:
        """Return why a record cannot be called here though it is enabled, as far as that is known."""
        listing = self._listing or self.listing  # Of a page of tools, none looks for changes again.
        if tool.fault or listing.is_whole(tool):
            return tool.fault or self._broken.get(self.full_name(tool))
        return missing_function(tool.slug, tool.function).message

    def reap(self) -> None:
        """Once a day, remove bundles that were deleted long ago, and what killed processes have left."""
        if not 0 <= self._clock() - self._reaped_at < _REAP_EVERY_S:
            self._reaped_at = self._clock()
            self.store.reap()

    def close(self) -> None:
        """Leave what saves reading every record at the next start."""
        if self._listing is not None:
            self._listing.save_if_worth()

    def id_of(self, name: str) -> str | None:
        """Return the id of a tool that was put in under this full name."""
        tool = self._bound.get(name)
        return None if tool is None else tool.id

    def _bind(self, listed: ListedTool) -> None:
        name = self.full_name(listed)
        if name in self._bound:
            return
        record = self.store.tool(listed.bundle, listed.slug, listed.version)
        self._bound[name] = listed
        self._broken.pop(name, None)
        tool, document, found = tool_of(record, self._names[listed.bundle])
        if tool is None or document is None:
            self._registry.set_external_findings(f"store/{name}", found, {name: found})
            return
        self._know([tool])
        try:
            self._registry.put_stored(self._registry.bind(tool), document)
        except ConflictError as error:
            self._broken[name] = error.message


def tool_of(record: ToolRecord, bundle: str) -> tuple[Tool | None, Document | None, Sequence[Diagnostic]]:
    """Return the tool of a record with its document and findings; None in its place if it cannot be used.

    `bundle` is the name of its bundle. The source of the tool is what puts it again: no ids, no
    times, no switch; so trust lasts until the definition changes.
    """
    # The switch is not a part of the definition: trust outlasts it.
    record = msgspec.structs.replace(record, is_enabled=True)
    try:
        entry = entry_of(record)
    except ManifestError as error:
        return None, None, diagnostics_of(error)
    if entry.tool is None or entry.tool.source is None:
        return None, None, entry.found
    source = replace(entry.tool.source, shared=True, stored=True)
    name = stored_name(bundle, record.slug, record.version)
    translations = msgspec.to_builtins(record.translations or {})
    tool = replace(
        entry.tool,
        name=name,
        bundle=bundle,
        version=record.version,
        source=source,
        display_name=record.display_name,
        translations=translations,
    )
    return tool, entry.document, entry.found
