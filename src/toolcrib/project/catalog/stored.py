"""The tools of the user's store of bundles, as tools of one project.

Each has its full name, `bundle/slug@version`. A bundle is named by its slug, or by its id where an older
bundle has that slug. A tool is read when it is first listed or called, and again after it has changed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock

import msgspec

from toolcrib.builtin.definition import BUILTIN_BUNDLE
from toolcrib.builtin.names import NAMES, READER
from toolcrib.builtin.table import builtin
from toolcrib.bundles import BuiltIn, BundleRecord, Store, ToolRecord, entry_of
from toolcrib.bundles.listing import ListedTool, Listing
from toolcrib.bundles.reading import DamagedTool
from toolcrib.core.bound import BoundTool
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
from toolcrib.spec import Tool
from toolcrib.spec.naming import parts_of, stored_name, wire_name
from toolcrib.state import cache_folder

BUNDLE_ID = "019b7a00-0000-7000-8000-000000000000"
FUNCTIONS = {f"toolcrib.{name}": name for name in NAMES if name != READER}
"""The function in a record to the name of the built-in tool. The reader needs no switch."""
_MADE = "2026-01-01T00:00:00.000Z"


def builtin_bundle() -> BuiltIn:
    """Return the bundle. Its ids depend on names only, so switches outlast upgrades; all tools are off."""
    bundle = BundleRecord(
        id=BUNDLE_ID, slug=BUILTIN_BUNDLE, display_name="Built-in tools", created_at=_MADE, modified_at=_MADE
    )
    return BuiltIn(bundle, [_record(function, name) for function, name in FUNCTIONS.items()])


def _record(function: str, name: str) -> ToolRecord:
    tool = builtin(name)
    return ToolRecord(
        id=f"{BUNDLE_ID[:24]}{hashlib.sha256(name.encode()).hexdigest()[:12]}",
        bundle_id=BUNDLE_ID,
        slug=name.replace("_", "-"),
        version="v1",
        display_name=name,
        description=tool.description,
        tags=(BUILTIN_BUNDLE,),
        # The word of the record format for a function of the program (`goFunc`).
        type="go",
        impl={"goFunc": function},
        arg_schema=tool.input_schema,
        is_enabled=False,
        created_at=_MADE,
        modified_at=_MADE,
    )


_REAP_EVERY_S = 24 * 3600.0


class StoredTools:
    """Puts tools of the store into the registry under their full names. Safe for threads.

    `know` is called with each tool before it can be used, `announce` when the list has changed. `reserved`
    are names that no bundle gets, and `pinned` the full names that go before other versions. `registered`
    returns True for a function that this process can call: a tool without its function counts as disabled.
    `shipped` makes a built-in tool ready under its full name.
    """

    def __init__(
        self,
        data: Path,
        registry: ToolRegistry,
        know: Callable[[Sequence[Tool]], None],
        announce: Callable[[], None],
        *,
        reserved: Collection[str] = (),
        pinned: Collection[str] = (),
        built_in: Sequence[BuiltIn] = (),
        was_missing: bool = False,
        registered: Callable[[str], bool] = lambda _: True,
        shipped: Callable[[str, str], BoundTool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.data, self._built_in, self._clock, self._shipped = data, built_in, clock, shipped
        self._registered = lambda name: name in FUNCTIONS or registered(name)
        self._registry, self._know, self._announce = registry, know, announce
        self._reserved, self._pinned = frozenset(reserved), frozenset(pinned)
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
        """The store. Its folder is made here."""
        if self._store is None:
            built_in = self._built_in
            if self._shipped is not None:
                built_in = (builtin_bundle(), *built_in)
            self._store = Store(self.data, built_in=built_in, clock=self._clock)
        return self._store

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
            # At the first reading nothing of the store is in the registry yet.
            self._unsettled = not first or self._was_missing

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
        # The oldest bundle of a slug has it, so a later one cannot take over the names of its tools.
        taken = dict.fromkeys(self._reserved, "")
        for bundle in sorted(bundles.values(), key=lambda one: (one.created_at, one.id)):
            if bundle.soft_deleted_at is None:
                taken.setdefault(bundle.slug, bundle.id)
        self._names = {
            one.id: one.slug if taken.get(one.slug) == one.id else one.id for one in bundles.values()
        }
        self._ids = {name: id for id, name in self._names.items()}  # noqa: A001 - the field's name
        self._bundles = bundles

    # -- names -------------------------------------------------------------------------------------

    def bundle_name(self, bundle_id: str, slug: str | None = None) -> str:
        """Return the name of a bundle in the names of its tools; with `slug`, of one that may be new."""
        new = bundle_id if slug is None or slug in self._ids else slug
        return self._names.get(bundle_id, new)

    def full_name(self, tool: ListedTool | ToolRecord) -> str:
        """Return the name of a tool in the catalog."""
        bundle = tool.bundle if isinstance(tool, ListedTool) else tool.bundle_id
        return stored_name(self.bundle_name(bundle), tool.slug, tool.version)

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
            if id is not None and version is not None:
                return listing.find(id, slug, version)
            found = [
                tool
                for tool in listing.tools()
                if tool.slug == slug and id in (None, tool.bundle) and version in (None, tool.version)
            ]
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
        if not self.listing.is_whole(tool):
            return self._fault(self.store.tool(tool.bundle, tool.slug, tool.version))
        return None

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
            self._bind(tool)
            return self.full_name(tool)

    def tool(self, name: str) -> Tool | None:
        """Return the tool of a full name; None if it cannot be used."""
        try:
            return None if self.ready(name) is None else self._registry.bound(name).tool
        except ToolcribError:
            return None

    def definition(self, text: str, error: ToolcribError) -> Tool:
        """Return a tool that only lacks its function here. Raises `error` for any other."""
        with self.lock:
            self.catch_up()
            listed = self.find(text)
            if listed is None or not isinstance(self._refusal(listed), ToolUnavailable):
                raise error
            record = self.store.tool(listed.bundle, listed.slug, listed.version)
            tool, _, _ = tool_of(record, self._names[listed.bundle])
        if tool is None:
            raise error
        return tool

    def ready_all(self) -> None:
        """Put in every tool that is not disabled, by bundle and age."""
        with self.lock:
            listing = self.listing
            self.settle()
            for tool in listing.tools():
                if listing.is_on(tool):
                    self._bind(tool)

    def why_unavailable(self, record: ToolRecord) -> str | None:
        """Return why a tool cannot be called here though it is enabled; None if it can.

        Its function is not registered in this process, or its record is not a usable tool.
        """
        fault = self._fault(record)
        return None if fault is None else fault.message

    def why_not_whole(self, tool: ListedTool) -> str | None:
        """Return why a listed tool counts as disabled though nobody switched it off; None for others."""
        if tool.fault or self.listing.is_whole(tool):
            return tool.fault or None
        return f"the function {tool.function} is not registered here"

    def _fault(self, record: ToolRecord) -> ToolcribError | None:
        if record.bundle_id == BUNDLE_ID:
            return None
        if isinstance(record, DamagedTool):
            return ToolUnavailable(record.unavailable_because, hint="Put it again, or delete it.")
        tool, _, found = tool_of(record, self._names.get(record.bundle_id, record.bundle_id))
        if tool is None:
            return ManifestError(found[0].message if found else "the record is not a tool")
        try:
            self._registry.bind(tool).executor  # noqa: B018 - made on first use
        except ToolcribError as error:
            return error
        return None

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
        self._bound[name] = listed
        self._broken.pop(name, None)
        if listed.bundle == BUNDLE_ID and self._shipped is not None:
            bound = self._shipped(FUNCTIONS[listed.function], name)
            self._know([bound.tool])
            self._registry.put_stored(bound)
            return
        record = self.store.tool(listed.bundle, listed.slug, listed.version)
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
    tool = replace(entry.tool, name=name, bundle=bundle, version=record.version, source=source)
    return tool, entry.document, entry.found
