"""All tools of a store in memory, for pages over many bundles: brought up to date by the journal.

A snapshot on disk saves reading every record at the start. It is derived: without it all records are read.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from toolcrib.bundles.files import write_derived
from toolcrib.bundles.journal import Change, Position
from toolcrib.bundles.records import BundleRecord, ToolRecord
from toolcrib.bundles.store import Store

__all__ = ["ListedTool", "Listing"]

_Order = tuple[str, str]
"""`createdAt` and id: what was made last comes last."""


class ListedTool(Struct, frozen=True, gc=False):
    """The part of a tool's record that lists and search need."""

    bundle: str
    file: str
    id: str
    slug: str
    version: str
    name: str
    description: str
    type: str
    enabled: bool
    created: str
    modified: str
    tags: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def order(self) -> _Order:
        """Its place in lists."""
        return self.created, self.id


class _Snapshot(Struct):
    journal: str
    offset: int
    tools: list[ListedTool]


class Listing:
    """The tools of a store as they are now. Not safe for threads: one user at a time."""

    def __init__(self, store: Store, snapshot: Path) -> None:
        self._store = store
        self._snapshot = snapshot
        self._position: Position | None = None
        self._tools: dict[tuple[str, str], ListedTool] = {}
        self._ordered: list[_Order] = []
        self._by_order: dict[_Order, ListedTool] = {}
        self._bundles: dict[str, BundleRecord] = {}

    def refresh(self) -> bool:
        """Take in the changes of every process; return True if there were any."""
        if self._position is None:
            self._load()
        if self._position is not None and not self._store.journal.has_grown(self._position):
            return False
        changes, position = self._store.journal.read(self._position)
        if changes is None:
            self._read_all()
        else:
            for change in changes:
                self._apply(change)
        self._bundles = {bundle.id: bundle for bundle in self._store.bundles()}
        for bundle in self._bundles.values():
            for tool in self._store.tools(bundle.id) if bundle.is_built_in else ():
                self._put((bundle.id, tool.id), _listed(tool, ""))
        self._position = position
        return True

    def save(self) -> None:
        """Write the snapshot. Failures do not matter: it is made again."""
        if self._position is not None:
            snapshot = _Snapshot(*self._position, list(self._tools.values()))
            write_derived(self._snapshot, msgspec.msgpack.encode(snapshot))

    def __len__(self) -> int:
        return len(self._tools)

    def tools(self) -> Iterator[ListedTool]:
        """Return every tool."""
        return iter(self._tools.values())

    def page(
        self, count: int, before: _Order | None, wanted: Callable[[ListedTool], bool]
    ) -> list[ListedTool]:
        """Return the newest tools made before a place in the order. Tools of hidden bundles are left out."""
        at = len(self._ordered) if before is None else bisect_left(self._ordered, before)
        found: list[ListedTool] = []
        while at > 0 and len(found) < count:
            at -= 1
            tool = self._by_order[self._ordered[at]]
            bundle = self._bundles.get(tool.bundle)
            if bundle is not None and bundle.soft_deleted_at is None and wanted(tool):
                found.append(tool)
        return found

    def bundle(self, id: str) -> BundleRecord | None:  # noqa: A002 - the field's name
        """Return a bundle as it was at the last refresh."""
        return self._bundles.get(id)

    def _load(self) -> None:
        try:
            stored = msgspec.msgpack.decode(self._snapshot.read_bytes(), type=_Snapshot)
        except (OSError, msgspec.DecodeError):
            return
        self._set(stored.tools)
        self._bundles = {bundle.id: bundle for bundle in self._store.bundles()}
        self._position = Position(stored.journal, stored.offset)

    def _read_all(self) -> None:
        found = [
            _listed(tool, file)
            for bundle in self._store.bundles()
            for file in self._store.files(bundle.id)
            if (tool := self._store.tool_in(bundle.id, file)) is not None
        ]
        self._set(found)

    def _set(self, tools: list[ListedTool]) -> None:
        self._tools = {(tool.bundle, tool.file or tool.id): tool for tool in tools}
        self._by_order = {tool.order: tool for tool in tools}
        self._ordered = sorted(self._by_order)

    def _apply(self, change: Change) -> None:
        if change.file is not None:
            record = self._store.tool_in(change.bundle, change.file)
            after = None if record is None else _listed(record, change.file)
            self._put((change.bundle, change.file), after)

    def _put(self, key: tuple[str, str], after: ListedTool | None) -> None:
        before = self._tools.pop(key, None)
        if before is not None:
            del self._by_order[before.order]
            del self._ordered[bisect_left(self._ordered, before.order)]
        if after is not None:
            self._tools[key] = self._by_order[after.order] = after
            insort(self._ordered, after.order)


def _listed(tool: ToolRecord, file: str) -> ListedTool:
    properties = tool.arg_schema.get("properties")
    return ListedTool(
        bundle=tool.bundle_id,
        file=file,
        id=tool.id,
        slug=tool.slug,
        version=tool.version,
        name=tool.display_name,
        description=tool.description,
        type=tool.type,
        enabled=tool.is_enabled,
        created=tool.created_at,
        modified=tool.modified_at,
        tags=tool.tags,
        arguments=tuple(properties) if isinstance(properties, dict) else (),
    )
