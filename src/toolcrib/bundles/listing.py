"""All tools of a store in memory, for pages over many bundles: brought up to date by the journal.

A snapshot on disk saves reading every record at the start. It is derived: without it all records are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from toolcrib.bundles.files import make_folder, write_derived
from toolcrib.bundles.journal import Change, Position
from toolcrib.bundles.records import BundleRecord, DamagedTool, ToolRecord, Translation, file_of
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
"""The place of a tool in an order: what it is sorted by, and its `order`."""
Put = tuple[ListedTool | None, ListedTool | None]
"""A tool before and after a change; None where it was not there."""
Mark = tuple[int, int]
"""A time in the life of a listing."""


class _Snapshot(Struct):
    journal: str
    offset: int
    tools: list[ListedTool]
    """In their order: to walk over them as they lie in memory takes a third of the time."""
    folders: dict[str, int]
    """The numbers of `Store.folders` when the names in them were compared."""


class Ordered(NamedTuple):
    """Tools in an order, each as it was when the order was made."""

    tools: list[ListedTool]
    value: Callable[[ListedTool], Any]
    """Returns what a tool is sorted by."""
    ascending: bool

    def place(self, at: int) -> Place:
        """Return the place of one of them."""
        return _place(self.value, self.tools[at])

    def behind(self, place: Place) -> int:
        """Return the number of the first tool behind a place of this order."""
        numbers = range(len(self.tools))
        if self.ascending:
            return bisect_left(numbers, True, key=lambda at: self.place(at) > place)
        return bisect_left(numbers, True, key=lambda at: self.place(at) < place)


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
        self._folders: dict[str, int] = {}
        self._tools: dict[_Key, ListedTool] = {}
        self._groups: dict[tuple[str, str], list[ListedTool]] | None = None
        """The tools of each bundle and each tag by their creation, once a list is asked for by one."""
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
        self._sorted: dict[Sort, list[ListedTool]] = {"createdAt": []}
        """All tools in each of the orders of `_VALUES`, once a list is asked for in it."""
        self._is_lent = False
        """True if somebody reads the order by name, so the next change is made in a copy of it."""
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
        return self._store.journal.has_grown(self._position) or bool(self._moved())

    def _moved(self) -> dict[str, int]:
        """Return the folders of bundles in which files may be new or gone, as `Store.folders` does."""
        return dict(self._store.folders().items() - self._folders.items())

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
        # What a person puts there or removes has no line in the journal.
        self._folders |= (moved := self._moved())
        if moved.keys() - self.bundles.keys():
            self._read_bundles()
        known = {key for key in self._tools if key[0] in moved}
        there = {(one, file) for one in moved.keys() & self.bundles.keys() for file in self._store.files(one)}
        for key in known ^ there:
            self._put(key, self._read(*key))
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
            own = [tool for tool in self._ordered if tool.bundle not in self._store.sources]
            with suppress(StateUnavailable):
                make_folder(self._snapshot.parent)
            write_derived(
                self._snapshot, msgspec.msgpack.encode(_Snapshot(*self._position, own, self._folders))
            )
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
    ) -> Ordered:
        """Return tools in an order: all in these bundles and with any of these tags, and maybe others.

        By name they begin with the first, otherwise with the newest or greatest. `used` has a number for each
        tool that was called, by its id.
        """
        numbers = used or {}
        value: Callable[[ListedTool], Any] = _VALUES.get(sort) or (lambda tool: numbers.get(tool.id, 0.0))
        if bundles or tags:
            tools = sorted(self._fewest(bundles, tags), key=value)
        else:
            # The sort keeps the order of creation among equal ones.
            tools = self._sorted.get(sort) or sorted(self._ordered, key=value)
            if sort in _VALUES:
                self._sorted[sort] = tools
        ascending = sort == "name"
        self._is_lent |= ascending
        return Ordered(tools if ascending else tools[::-1], value, ascending)

    def page(
        self,
        numbered: Iterable[tuple[int, ListedTool]],
        count: int | None,
        wanted: Callable[[ListedTool], bool] = lambda _: True,
        bundles: Collection[str] = (),
        tags: Collection[str] = (),
    ) -> list[tuple[int, ListedTool]]:
        """Return the first of these numbered tools as they are now, or all, but for those of hidden bundles.

        Only those of these bundles and with any of these tags, if some are given.
        """
        of, any_of = frozenset(bundles), frozenset(tags)
        found: list[tuple[int, ListedTool]] = []
        for number, known in numbered:
            tool, bundle = self._tools.get((known.bundle, known.file)), self.bundles.get(known.bundle)
            if (
                tool is not None
                and bundle is not None
                and bundle.soft_deleted_at is None
                and (not of or tool.bundle in of)
                and (not any_of or not any_of.isdisjoint(tool.tags))
                and wanted(tool)
            ):
                found.append((number, tool))
                if len(found) == count:
                    break
        return found

    @property
    def _ordered(self) -> list[ListedTool]:
        """All tools, the oldest first."""
        return self._sorted["createdAt"]

    def _fewest(self, bundles: Collection[str], tags: Collection[str]) -> Iterator[ListedTool]:
        """Yield every tool of these bundles or these tags, and as few others as may be, the oldest first."""
        if self._groups is None:
            self._groups = {}
            for tool in self._ordered:
                for group in _groups_of(tool):
                    self._groups.setdefault(group, []).append(tool)
        choices = (
            [(kind, name) for name in frozenset(names)]
            for kind, names in (("in", bundles), ("tag", tags))
            if names
        )
        lists = ([self._groups[one] for one in choice if one in self._groups] for choice in choices)
        last = None
        for tool in merge(*min(lists, key=lambda each: sum(map(len, each))), key=_order):
            # A tool with two of the tags is in two lists.
            if tool is not last:
                yield tool
            last = tool

    def _load(self) -> None:
        try:
            assert self._snapshot is not None
            with open_plain(self._snapshot) as file:
                stored = msgspec.msgpack.decode(file.read(), type=_Snapshot)
        except (OSError, ValueError, RecursionError, AssertionError):
            return
        self._position, self._folders = Position(stored.journal, stored.offset), stored.folders
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
        self._groups, self._sorted = None, {"createdAt": sorted(self._tools.values(), key=_order)}
        self.disabled = sum(not tool.enabled for tool in self._ordered)
        self._functions = Counter(tool.function for tool in self._ordered if tool.function)
        self._begin_log()

    def _with(self, tool: ListedTool) -> Iterator[tuple[list[ListedTool], Callable[[ListedTool], Place]]]:
        """Yield the lists that a tool is in, each with what gives the places in it."""
        for sort, tools in self._sorted.items():
            yield tools, partial(_place, _VALUES[sort])
        if self._groups is not None:
            yield from ((self._groups.setdefault(group, []), _order) for group in _groups_of(tool))

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
        if self._is_lent and (by_name := self._sorted.get("name")) is not None:
            self._sorted["name"] = by_name[:]
        self._is_lent = False
        before = self._tools.pop(key, None)
        self.disabled += (after is not None and not after.enabled) - (
            before is not None and not before.enabled
        )
        if before is not None:
            self._functions.subtract([before.function] if before.function else ())
            for tools, place in self._with(before):
                del tools[bisect_left(tools, place(before), key=place)]
        if after is not None:
            self._functions.update([after.function] if after.function else ())
            self._tools[key] = after
            for tools, place in self._with(after):
                insort(tools, after, key=place)
        if before != after:
            self._log.append((before, after))
            # Whoever is that far behind looks at all tools; a log without an end would fill the memory.
            if len(self._log) > _MOST_LOGGED:
                self._begin_log()


_order: Callable[[ListedTool], Order] = attrgetter("created", "id", "bundle", "file")
_VALUES: Mapping[Sort, Callable[[ListedTool], str]] = {
    "createdAt": attrgetter("created"),
    "name": lambda tool: (tool.full or tool.slug).casefold(),
    "modifiedAt": attrgetter("modified"),
}


def _place(value: Callable[[ListedTool], Any], tool: ListedTool) -> Place:
    return (value(tool), *tool.order)


def _groups_of(tool: ListedTool) -> Iterator[tuple[str, str]]:
    yield "in", tool.bundle
    for tag in set(tool.tags):
        yield "tag", tag


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
        _translated(tool.translations) if tool.translations else (),
        str(tool.impl.get("goFunc", "")) if tool.type == "go" else "",
        mark,
        tool.unavailable_because if isinstance(tool, DamagedTool) else "",
    )


def _translated(translations: Mapping[str, Translation]) -> tuple[tuple[str, str], ...]:
    return tuple((one.display_name, one.description) for one in translations.values())


def _kind_of(manifest: str) -> str:
    """Return the kind that a manifest names at the beginning of a line; `native` if it does not."""
    # Not by the YAML reader: it would run for every native tool of the store.
    found = re.search(r"^kind:\s*([a-z]+)\s*$", manifest, re.MULTILINE)
    return "native" if found is None else found[1]
