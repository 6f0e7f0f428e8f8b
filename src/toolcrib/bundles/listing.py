"""All tools of a store in memory, for pages over many bundles: brought up to date by the journal.

A snapshot on disk saves reading every record at the start. It is derived: without it all records are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolcrib.bundles.files import make_folder, write_derived
from toolcrib.bundles.journal import Change, Position
from toolcrib.bundles.reading import DamagedTool
from toolcrib.bundles.records import BundleRecord, ToolRecord, file_of
from toolcrib.bundles.sources import ListedTool, Order, SourceBundle
from toolcrib.bundles.store import Store
from toolcrib.errors import StateUnavailable, ToolNotFound
from toolcrib.manifest import uncollected
from toolcrib.state.private import open_plain

_Key = tuple[str, str]
"""Bundle, and name of the file."""
_KINDS = {"http": "http", "go": "function"}
_MOST_LOGGED = 10_000
_MOST_ONE_BY_ONE = 500
"""Changes of one source from which on the order is made anew."""
_FEW, _PART = 200, 50
"""The snapshot is written again once more than `_FEW` records, and more than one in `_PART` of all, have
changed: to read fewer takes no notable time."""


Sort = Literal["createdAt", "name", "modifiedAt", "lastCalledAt", "callCount"]
Place = tuple[Any, ...]
"""The place of a tool in an order: what it is sorted by, if not by its creation, and its `order`."""
Put = tuple[ListedTool | None, ListedTool | None]
"""A tool before and after a change; None where it was not there."""
Mark = tuple[int, int]
"""A time in the life of a listing."""


class _Snapshot(Struct):
    journal: str
    offset: int
    tools: list[ListedTool]


class Listing:
    """The tools of a store as they are now. Not safe for threads: one user at a time."""

    def __init__(
        self, store: Store, snapshot: Path | None, registered: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._registered = registered
        self._functions: Counter[str] = Counter()
        self._position: Position | None = None
        self._tools: dict[_Key, ListedTool] = {}
        self._ordered: list[Order] = []
        self._groups: dict[tuple[str, str], list[Order]] | None = None
        """The same for each bundle and each tag, once a list is asked for by one."""
        self._by_order: dict[Order, ListedTool] = {}
        self.bundles: Mapping[str, BundleRecord] = {}
        """Every bundle at the last refresh, deleted ones too, by id."""
        self._on: frozenset[str] = frozenset()
        """The bundles that are not disabled."""
        self.disabled = 0
        """Tools that are disabled themselves."""
        self._loaded = False
        self._seen: dict[str, object] = {}
        """Id of a source to the revision that was taken in."""
        self._of_source: dict[str, dict[_Key, ListedTool]] = {}
        self._sorted: dict[Sort, list[Place]] = {}
        """All tools in each of the orders of `_VALUES`, once a list is asked for in it."""
        self._log: list[Put] = []
        self._logs = 0
        self._unsaved = 0
        """Records read since the snapshot."""

    @property
    def position(self) -> Position | None:
        """The place in the journal that it is at."""
        return self._position

    def since(self, mark: Mark | None) -> tuple[list[Put] | None, Mark]:
        """Return each tool that was changed since a mark, before and after, and the new mark.

        None in place of changes to look at all.
        """
        now = (self._logs, len(self._log))
        return (self._log[mark[1] :] if mark is not None and mark[0] == now[0] else None), now

    @property
    def is_behind(self) -> bool:
        """True if `refresh` has something to do."""
        return self._is_store_behind or any(self._changed_sources()) or bool(self._gone_sources())

    @property
    def _is_store_behind(self) -> bool:
        if self._position is None:
            return self._store.exists
        return self._store.journal.has_grown(self._position)

    def _changed_sources(self) -> Iterator[tuple[SourceBundle, object]]:
        for source in self._store.sources.values():
            if self._seen.get(source.id) != (revision := source.revision):
                yield source, revision

    def _gone_sources(self) -> set[str]:
        return self._of_source.keys() - self._store.sources.keys()

    def refresh(self) -> bool:
        """Take in the changes of every process and source.

        Return True if there were any in the store, or at the first time.
        """
        changed, self._loaded = not self._loaded, True
        if self._position is None and self._store.exists:
            self._load()
        if self._is_store_behind:
            changed = True
            self._catch_up()
        for source, revision in list(self._changed_sources()):
            self._seen[source.id] = revision
            with uncollected():
                self._replace(source.id, source.listed())
            self._set_bundles({**self.bundles, source.id: source.bundle()})
        for gone in self._gone_sources():
            self._replace(gone, ())
            del self._of_source[gone], self._seen[gone]
            self._set_bundles({key: one for key, one in self.bundles.items() if key != gone})
        return changed

    def _catch_up(self) -> None:
        before = self._position
        changes, self._position = self._store.journal.read(before)
        if changes is None:
            self._read_all()
        elif changes:
            self._unsaved += len(changes)
            for change in changes:
                self._apply(change)
            if any(change.file is None for change in changes):
                self._read_bundles()
        if before is None or before.journal != self._position.journal:
            self._unsaved = len(self._tools)
            self.save_if_worth()

    def _replace(self, bundle: str, tools: Iterable[ListedTool]) -> None:
        """Put these tools, and no others, into the bundle of a source."""
        before = self._of_source.get(bundle, {})
        self._of_source[bundle] = after = {(bundle, tool.file): tool for tool in tools}
        changed = [key for key, tool in after.items() if before.get(key) is not tool]
        changed += before.keys() - after.keys()
        if len(changed) > _MOST_ONE_BY_ONE:
            self._tools = {key: tool for key, tool in self._tools.items() if key not in before}
            self._set([*self._tools.values(), *after.values()])
        else:
            for key in changed:
                self._put(key, after.get(key))

    def save_if_worth(self) -> None:
        """Write the snapshot if the next start would be much quicker."""
        if self._unsaved > max(_FEW, len(self._tools) // _PART):
            self.save()

    def save(self) -> None:
        """Write the snapshot. Failures do not matter: it is made again."""
        if self._position is not None and self._snapshot is not None:
            own = [tool for tool in self._tools.values() if tool.bundle not in self._store.sources]
            with suppress(StateUnavailable):
                make_folder(self._snapshot.parent)
            write_derived(self._snapshot, msgspec.msgpack.encode(_Snapshot(*self._position, own)))
            self._unsaved = 0

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def records(self) -> int:
        """The tools that are records of the store."""
        return len(self._tools) - sum(map(len, self._of_source.values()))

    def tools(self) -> Iterator[ListedTool]:
        """Return every tool."""
        return iter(self._tools.values())

    def find(self, bundle: str, slug: str, version: str) -> ListedTool | None:
        """Return one tool; None if there is none."""
        if bundle in self._store.sources:
            return self._store.sources[bundle].find(slug, version)
        names = (file_of(slug, version), f"{slug}.json", slug)
        found = (self._tools.get((bundle, name)) for name in names)
        return next((one for one in found if one and (one.slug, one.version) == (slug, version)), None)

    def versions(self, slug: str, bundles: Collection[str]) -> list[ToolRecord]:
        """Return the versions of a tool in each of these bundles, the newest first."""
        found = [tool for tool in self._tools.values() if tool.slug == slug and tool.bundle in bundles]
        found.sort(key=lambda tool: tool.order, reverse=True)
        records = []
        for tool in found:
            with suppress(ToolNotFound):  # It was deleted just now.
                records.append(self._store.tool(tool.bundle, tool.slug, tool.version))
        return records

    def with_key(self, key: str) -> ListedTool | None:
        """Return the tool with this `key`; None if there is none."""
        bundle, _, file = key.partition("/")
        return self._tools.get((bundle, file))

    def is_on(self, tool: ListedTool) -> bool:
        """Return True if the tool, its bundle and its function are there and not disabled."""
        return tool.enabled and tool.bundle in self._on and self.is_whole(tool)

    def is_whole(self, tool: ListedTool) -> bool:
        """Return False if its record cannot be read, or it calls a function that is not registered here."""
        return not tool.fault and (not tool.function or self._registered(tool.function))

    def missing_functions(self) -> list[str]:
        """Return the functions that tools call and that are not registered here."""
        return [name for name, tools in self._functions.items() if tools and not self._registered(name)]

    def notice(self, tools: Iterable[ListedTool]) -> bool:
        """Look at the files of these tools, and read again what was changed by hand; True if any was."""
        changed = [
            (one.bundle, one.file)
            for one in tools
            if not one.full and self._store.mark(one.bundle, one.file) != one.mark
        ]
        with suppress(StateUnavailable):  # for a reader who may not write
            if changed:
                self._store.note_changes(changed)
                return self.refresh()
        return False

    def ordered(
        self,
        sort: Sort = "createdAt",
        bundles: Collection[str] = (),
        tags: Collection[str] = (),
        used: Mapping[str, float] | None = None,
    ) -> Sequence[Place]:
        """Return the places of tools in an order: of all in these bundles and with any of these tags.

        There may be others among them.

        By name they begin with the first, otherwise with the newest or greatest. `used` has a number for each
        tool that was called, by its id.
        """
        lists = self._fewest(frozenset(bundles), frozenset(tags))
        if sort in _VALUES:
            places = self._in_order(sort, lists)
            return places[:] if sort == "name" else places[::-1]
        newest = lists[0][::-1] if len(lists) == 1 else list(_newest(lists))
        if sort == "createdAt":
            return newest
        numbers = used or {}  # By id, the second of an order. Most tools were never called.
        with uncollected():
            called = [(numbers[order[1]], *order) for order in newest if numbers.get(order[1])]
            others = [(0.0, *order) for order in newest if not numbers.get(order[1])]
        return [*sorted(called, reverse=True), *others]

    def _in_order(self, sort: Sort, lists: Sequence[list[Order]]) -> list[Place]:
        """Return the places of the tools in some lists, the first one in this order first."""
        if (is_all := any(one is self._ordered for one in lists)) and sort in self._sorted:
            return self._sorted[sort]
        with uncollected():
            every = self._by_order.values() if is_all else map(self._by_order.__getitem__, _newest(lists))
            places = sorted([_place(sort, tool) for tool in every])
        if is_all:
            self._sorted[sort] = places
        return places

    def page(
        self,
        places: Iterable[tuple[int, Place]],
        count: int | None,
        wanted: Callable[[ListedTool], bool] = lambda _: True,
        bundles: Collection[str] = (),
        tags: Collection[str] = (),
    ) -> list[tuple[int, ListedTool]]:
        """Return the first tools of these numbered places, or all. Tools of hidden bundles are left out.

        Only those of these bundles and with any of these tags, if some are given.
        """
        of, any_of = frozenset(bundles), frozenset(tags)
        found: list[tuple[int, ListedTool]] = []
        for number, (*_, bundle_id, file) in places:
            tool, bundle = self._tools.get((bundle_id, file)), self.bundles.get(bundle_id)
            if (
                tool is not None
                and bundle is not None
                and bundle.soft_deleted_at is None
                and (not of or bundle_id in of)
                and (not any_of or not any_of.isdisjoint(tool.tags))
                and wanted(tool)
            ):
                found.append((number, tool))
                if len(found) == count:
                    break
        return found

    def _fewest(self, bundles: Collection[str], tags: Collection[str]) -> list[list[Order]]:
        """Return lists that have every tool of these bundles and tags, and as few others as may be."""
        if not bundles and not tags:
            return [self._ordered]
        if self._groups is None:
            self._groups = {}
            for order in self._ordered:
                for group in _groups_of(self._by_order[order]):
                    self._groups.setdefault(group, []).append(order)
        choices = (
            [(kind, name) for name in names] for kind, names in (("in", bundles), ("tag", tags)) if names
        )
        lists = ([self._groups[one] for one in choice if one in self._groups] for choice in choices)
        return min(lists, key=lambda each: sum(map(len, each)))

    def _load(self) -> None:
        try:
            assert self._snapshot is not None
            with open_plain(self._snapshot) as file:
                stored = msgspec.msgpack.decode(file.read(), type=_Snapshot)
        except (OSError, ValueError, RecursionError, AssertionError):
            return
        self._position = Position(stored.journal, stored.offset)
        self._set([*stored.tools, *self._of_sources()])
        self._read_bundles()

    def _read_all(self) -> None:
        with uncollected():
            read = (
                tool
                for bundle in self._store.bundles()
                for file in self._store.files(bundle.id)
                if (tool := self._read(bundle.id, file)) is not None
            )
            self._set([*read, *self._of_sources()])
        self._read_bundles()

    def _of_sources(self) -> Iterator[ListedTool]:
        return (tool for tools in self._of_source.values() for tool in tools.values())

    def _set(self, tools: Iterable[ListedTool]) -> None:
        self._tools = {(tool.bundle, tool.file): tool for tool in tools}
        self._by_order = {tool.order: tool for tool in self._tools.values()}
        self.disabled = sum(not tool.enabled for tool in self._tools.values())
        self._functions = Counter(tool.function for tool in self._tools.values() if tool.function)
        self._ordered = sorted(self._by_order)
        self._groups, self._sorted = None, {}
        self._begin_log()

    def _with(self, tool: ListedTool) -> Iterator[list[Order]]:
        """Yield the lists that a tool is in."""
        yield self._ordered
        if self._groups is not None:
            yield from (self._groups.setdefault(group, []) for group in _groups_of(tool))

    def _begin_log(self) -> None:
        self._log = []
        self._logs += 1

    def _read_bundles(self) -> None:
        self._set_bundles({bundle.id: bundle for bundle in self._store.bundles()})

    def _set_bundles(self, bundles: Mapping[str, BundleRecord]) -> None:
        self.bundles = bundles
        there = (bundle for bundle in bundles.values() if bundle.soft_deleted_at is None)
        self._on = frozenset(bundle.id for bundle in there if bundle.is_enabled)

    def _apply(self, change: Change) -> None:
        if change.file is not None:
            self._put((change.bundle, change.file), self._read(change.bundle, change.file))

    def _read(self, bundle: str, file: str) -> ListedTool | None:
        mark = self._store.mark(bundle, file)  # Before the file: a change in between is noticed later.
        tool = self._store.tool_in(bundle, file)
        return None if tool is None else listed_of(tool, file, mark)

    def _put(self, key: _Key, after: ListedTool | None) -> None:
        before = self._tools.pop(key, None)
        self.disabled += (after is not None and not after.enabled) - (
            before is not None and not before.enabled
        )
        if before is not None:
            self._functions.subtract([before.function] if before.function else ())
            del self._by_order[before.order]
            for orders in self._with(before):
                del orders[bisect_left(orders, before.order)]
            for sort, places in self._sorted.items():
                del places[bisect_left(places, _place(sort, before))]
        if after is not None:
            self._functions.update([after.function] if after.function else ())
            self._tools[key] = self._by_order[after.order] = after
            for orders in self._with(after):
                insort(orders, after.order)
            for sort, places in self._sorted.items():
                insort(places, _place(sort, after))
        if before != after:
            self._log.append((before, after))
            # Whoever is that far behind looks at all tools; a log without an end would fill the memory.
            if len(self._log) > _MOST_LOGGED:
                self._begin_log()


_VALUES: Mapping[Sort, Callable[[ListedTool], str]] = {
    "name": lambda tool: (tool.full or tool.slug).casefold(),
    "modifiedAt": lambda tool: tool.modified,
}


def _place(sort: Sort, tool: ListedTool) -> Place:
    return (_VALUES[sort](tool), *tool.order)


def _groups_of(tool: ListedTool) -> Iterator[tuple[str, str]]:
    yield "in", tool.bundle
    for tag in set(tool.tags):
        yield "tag", tag


def _newest(lists: Sequence[list[Order]]) -> Iterator[Order]:
    """Yield what is in sorted lists from the highest place on, each once."""
    last = None
    for order in merge(*map(reversed, lists), reverse=True):
        # A tool with two of the tags is in two lists.
        if order != last:
            yield order
        last = order


def listed_of(tool: ToolRecord, file: str = "", mark: int = 0) -> ListedTool:
    """Return the part of a record that lists need."""
    properties = tool.arg_schema.get("properties")
    return ListedTool(  # By position, in its order: names take twice as long, with 100,000 tools 60 ms.
        tool.bundle_id,
        file,
        tool.id,
        tool.slug,
        tool.version,
        tool.display_name,
        tool.description,
        tool.type,
        _KINDS.get(tool.type) or _kind_of(str(tool.impl.get("manifest", ""))),
        tool.is_enabled,
        tool.created_at,
        tool.modified_at,
        tool.tags,
        tuple(properties) if isinstance(properties, dict) else (),
        str(tool.impl.get("goFunc", "")) if tool.type == "go" else "",
        mark,
        tool.unavailable_because if isinstance(tool, DamagedTool) else "",
    )


def _kind_of(manifest: str) -> str:
    """Return the kind that a manifest names at the beginning of a line; `native` if it does not."""
    # Not by the YAML reader: it would run for every native tool of the store.
    found = re.search(r"^kind:\s*([a-z]+)\s*$", manifest, re.MULTILINE)
    return "native" if found is None else found[1]
