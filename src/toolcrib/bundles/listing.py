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

import msgspec
from msgspec import Struct

from toolcrib.bundles.files import make_folder, write_derived
from toolcrib.bundles.journal import Change, Position
from toolcrib.bundles.reading import DamagedTool
from toolcrib.bundles.records import BundleRecord, ToolRecord, file_of
from toolcrib.bundles.store import Store
from toolcrib.errors import StateUnavailable, ToolNotFound
from toolcrib.state.private import open_plain

_Order = tuple[str, str, str, str]
"""`createdAt` and id: what was made last comes last. Bundle and file too: copies by hand have the same id."""
_Key = tuple[str, str]
"""Bundle, and name of the file."""
_KINDS = {"http": "http", "go": "function"}
_MOST_LOGGED = 10_000
_FEW, _PART = 200, 50
"""The snapshot is written again once more than `_FEW` records, and more than one in `_PART` of all, have
changed: to read fewer takes no notable time."""


# No `gc`: it holds no cycles, and a collection need not walk 100,000 of them.
class ListedTool(Struct, frozen=True, gc=False, array_like=True):
    """The part of a tool's record that lists and search need."""

    bundle: str
    file: str
    id: str
    slug: str
    version: str
    name: str
    description: str
    type: str
    kind: str
    """The kind of the tool: `http`, `function`, or that of the manifest."""
    enabled: bool
    created: str
    modified: str
    tags: tuple[str, ...]
    arguments: tuple[str, ...]
    function: str
    """The function of the program that it calls; empty for other kinds."""
    mark: int
    """`Store.mark` of its file when it was read."""
    fault: str
    """The reason why its record cannot be read; empty for a whole one."""

    @property
    def order(self) -> _Order:
        """Its place in lists."""
        return self.created, self.id, self.bundle, self.file

    @property
    def key(self) -> str:
        """Its bundle and file as one text."""
        return f"{self.bundle}/{self.file}"


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
        self._ordered: list[_Order] = []
        self._groups: dict[tuple[str, str], list[_Order]] | None = None
        """The same for each bundle and each tag, once a list is asked for by one."""
        self._by_order: dict[_Order, ListedTool] = {}
        self.bundles: Mapping[str, BundleRecord] = {}
        """Every bundle at the last refresh, deleted ones too, by id."""
        self._on: frozenset[str] = frozenset()
        """The bundles that are not disabled."""
        self.disabled = 0
        """Tools that are disabled themselves."""
        self._loaded = False
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
        return self._position is None or self._store.journal.has_grown(self._position)

    def refresh(self) -> bool:
        """Take in the changes of every process; return True if there were any, or at the first time."""
        if self._position is None:
            self._load()
        first, self._loaded = not self._loaded, True
        if self._position is not None and not self._store.journal.has_grown(self._position):
            return first
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
        return True

    def save_if_worth(self) -> None:
        """Write the snapshot if the next start would be much quicker."""
        if self._unsaved > max(_FEW, len(self._tools) // _PART):
            self.save()

    def save(self) -> None:
        """Write the snapshot. Failures do not matter: it is made again."""
        if self._position is not None and self._snapshot is not None:
            # What is built in comes with the program and is read at each start: it may be another then.
            built_in = {bundle.id for bundle in self.bundles.values() if bundle.is_built_in}
            own = [tool for tool in self._tools.values() if tool.bundle not in built_in]
            with suppress(StateUnavailable):
                make_folder(self._snapshot.parent)
            write_derived(self._snapshot, msgspec.msgpack.encode(_Snapshot(*self._position, own)))
            self._unsaved = 0

    def __len__(self) -> int:
        return len(self._tools)

    def tools(self) -> Iterator[ListedTool]:
        """Return every tool."""
        return iter(self._tools.values())

    def find(self, bundle: str, slug: str, version: str) -> ListedTool | None:
        """Return one tool; None if there is none."""
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
            (one.bundle, one.file) for one in tools if self._store.mark(one.bundle, one.file) != one.mark
        ]
        with suppress(StateUnavailable):  # for a reader who may not write
            if changed:
                self._store.note_changes(changed)
                return self.refresh()
        return False

    def page(
        self,
        count: int,
        before: _Order | None,
        wanted: Callable[[ListedTool], bool],
        bundles: Collection[str] = (),
        tags: Collection[str] = (),
    ) -> list[ListedTool]:
        """Return the newest tools made before a place in the order. Tools of hidden bundles are left out.

        Only those of these bundles and with any of these tags, if some are given.
        """
        found = self._page(count, before, wanted, bundles, tags)
        return self._page(count, before, wanted, bundles, tags) if self.notice(found) else found

    def _page(
        self,
        count: int,
        before: _Order | None,
        wanted: Callable[[ListedTool], bool],
        bundles: Collection[str],
        tags: Collection[str],
    ) -> list[ListedTool]:
        of, any_of = frozenset(bundles), frozenset(tags)
        found: list[ListedTool] = []
        for order in _newest(self._fewest(of, any_of), before):
            tool = self._by_order[order]
            bundle = self.bundles.get(tool.bundle)
            if (
                bundle is not None
                and bundle.soft_deleted_at is None
                and (not of or tool.bundle in of)
                and (not any_of or not any_of.isdisjoint(tool.tags))
                and wanted(tool)
            ):
                found.append(tool)
                if len(found) == count:
                    break
        return found

    def _fewest(self, bundles: Collection[str], tags: Collection[str]) -> list[list[_Order]]:
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
        self._set(stored.tools)
        self._read_bundles()

    def _read_all(self) -> None:
        from toolcrib.manifest import uncollected

        with uncollected():
            self._set(
                tool
                for bundle in self._store.bundles()
                for file in self._store.files(bundle.id)
                if (tool := self._read(bundle.id, file)) is not None
            )
        self._read_bundles()

    def _set(self, tools: Iterable[ListedTool]) -> None:
        self._tools = {(tool.bundle, tool.file): tool for tool in tools}
        self._by_order = {tool.order: tool for tool in self._tools.values()}
        self.disabled = sum(not tool.enabled for tool in self._tools.values())
        self._functions = Counter(tool.function for tool in self._tools.values() if tool.function)
        self._ordered = sorted(self._by_order)
        self._groups = None
        self._begin_log()

    def _with(self, tool: ListedTool) -> Iterator[list[_Order]]:
        """Yield the lists that a tool is in."""
        yield self._ordered
        if self._groups is not None:
            yield from (self._groups.setdefault(group, []) for group in _groups_of(tool))

    def _begin_log(self) -> None:
        self._log = []
        self._logs += 1

    def _read_bundles(self) -> None:
        """Read every bundle, and what is built in with its switches."""
        self.bundles = {bundle.id: bundle for bundle in self._store.bundles()}
        there = (bundle for bundle in self.bundles.values() if bundle.soft_deleted_at is None)
        self._on = frozenset(bundle.id for bundle in there if bundle.is_enabled)
        for bundle in self.bundles.values():
            for tool in self._store.tools(bundle.id) if bundle.is_built_in else ():
                file = file_of(tool.slug, tool.version)
                self._put((bundle.id, file), _listed(tool, file, 0))

    def _apply(self, change: Change) -> None:
        if change.file is not None:
            self._put((change.bundle, change.file), self._read(change.bundle, change.file))

    def _read(self, bundle: str, file: str) -> ListedTool | None:
        mark = self._store.mark(bundle, file)  # Before the file: a change in between is noticed later.
        tool = self._store.tool_in(bundle, file)
        return None if tool is None else _listed(tool, file, mark)

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
        if after is not None:
            self._functions.update([after.function] if after.function else ())
            self._tools[key] = self._by_order[after.order] = after
            for orders in self._with(after):
                insort(orders, after.order)
        if before != after:
            self._log.append((before, after))
            # Whoever is that far behind looks at all tools; a log without an end would fill the memory.
            if len(self._log) > _MOST_LOGGED:
                self._begin_log()


def _groups_of(tool: ListedTool) -> Iterator[tuple[str, str]]:
    yield "in", tool.bundle
    for tag in set(tool.tags):
        yield "tag", tag


def _newest(lists: Sequence[list[_Order]], before: _Order | None) -> Iterator[_Order]:
    """Yield what is in sorted lists from the highest place below `before` on, each once."""
    ends = ((orders, len(orders) if before is None else bisect_left(orders, before)) for orders in lists)
    backwards = [map(orders.__getitem__, range(end - 1, -1, -1)) for orders, end in ends]
    last = None
    for order in backwards[0] if len(backwards) == 1 else merge(*backwards, reverse=True):
        # A tool with two of the tags is in two lists.
        if order != last:
            yield order
        last = order


def _listed(tool: ToolRecord, file: str, mark: int) -> ListedTool:
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
