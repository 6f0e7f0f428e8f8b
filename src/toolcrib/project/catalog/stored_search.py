"""Search over the tools of the user's bundles.

The records are the truth, and putting one never waits for the index. Whoever has the lock of the index takes
up the journal of the store in batches; the others read what it wrote. The tools themselves come from the
list in memory, so what is gone or disabled is never shown, even if the index is behind.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from toolcrib.bundles.journal import Position
from toolcrib.search import IndexUnavailable, SearchedIndex, SearchEntry, SearchIndex, Update
from toolcrib.state import cache_folder

if TYPE_CHECKING:
    from toolcrib.bundles import ListedTool
    from toolcrib.bundles.listing import Listing, Mark
    from toolcrib.project.catalog.pages import Filter
    from toolcrib.project.catalog.stored import StoredTools

_OFF = "off"
"""The label of tools that are disabled themselves."""
_WAIT_S = 0.2
"""Seconds that a search waits for a process that writes the index; then it uses the index as it is."""
_BUILD_S = 60.0
"""Seconds that a search waits for another process that makes the index for the first time."""


class StoredSearch:
    """Finds tools of bundles. The index is in the user's cache folder. Safe for threads."""

    def __init__(self, stored: StoredTools) -> None:
        cache = cache_folder(stored.data)
        self._stored = stored
        self.reader = SearchIndex(None if cache is None else cache / "search")
        """The index as it was last read."""
        self._writer = SearchIndex(self.reader.folder)
        self._reading, self._writing = Lock(), Lock()
        self._state: tuple[Any, tuple[Position | None, dict[str, int]]] = (None, (None, {}))
        self._by_rank: dict[int, ListedTool] = {}
        self._mark: Mark | None = None
        self._moved: dict[str, int] = {}

    @contextmanager
    def part(self, within: Filter) -> Iterator[SearchedIndex]:
        """Lend the index, brought up to date, to a search."""
        listing = self._refresh()
        # Held until the search has ended: its hits are looked up in `_by_rank`, which changes.
        with self._stored.lock:
            self._follow(listing)
            off = [f"in:{one.id}" for one in listing.bundles.values() if not one.is_enabled]
            off += [_OFF] if listing.disabled else []
            off += map(_calls, listing.missing_functions())
            by_rank, is_on = self._by_rank, listing.is_on

            def card(rank: int) -> ListedTool | None:
                tool = by_rank.get(rank)
                return tool if tool is not None and (within.include_disabled or is_on(tool)) else None

            yield SearchedIndex(
                self.reader,
                card,
                within.hides if within.sees is not None else None,
                any_of=tuple(f"in:{id}" for id in within.bundles),  # noqa: A001 - the field's name
                none_of=() if within.include_disabled else tuple(off),
            )

    def close(self) -> None:
        """Close the index."""
        self.reader.close()
        self._writer.close()

    # -- in step -----------------------------------------------------------------------------------

    def _refresh(self) -> Listing:
        """Bring list and index up to date. The lock of the list is not held, because a writer needs it."""
        there, listing = self._read_index(), self._stored.listing
        if not there or self._read_state()[0] != listing.position:
            self.sync(_WAIT_S if there else _BUILD_S)
            self._read_index()
        return listing

    def _read_state(self) -> tuple[Position | None, dict[str, int]]:
        # Kept, because an import of thousands at once gives many of them another rank than by their time.
        if self.reader.state is not self._state[0]:
            self._state = self.reader.state, _read(self.reader.state)
        return self._state[1]

    def _read_index(self) -> bool:
        with self._reading:
            try:
                return self.reader.read()
            except IndexUnavailable as error:
                self.repair(error)
                return False

    def _follow(self, listing: Listing, new: Collection[str] = ()) -> None:
        moved = self._read_state()[1]
        if moved != self._moved:
            self._mark, self._moved = None, moved
        changes, self._mark = listing.since(self._mark)
        if changes is None:
            found: dict[int, ListedTool] = {}
            rank_of = self._rank if self._moved else _rank
            stored = [one for one in listing.tools() if not one.full]
            # Tools that the index does not contain yet, those of `new`, come last: no other loses its rank.
            for tool in sorted(stored, key=lambda one: one.key in new) if new else stored:
                found.setdefault(rank_of(tool), tool)
            self._by_rank, changes = found, []
        for before, after in changes:
            if any(one is not None and one.full for one in (before, after)):  # Of a source, in another index.
                continue
            if before is not None:
                rank = self._rank(before)
                if (known := self._by_rank.get(rank)) is not None and _one(known) == _one(before):
                    del self._by_rank[rank]
            if after is not None:
                self._by_rank.setdefault(self._rank(after), after)

    def _rank(self, tool: ListedTool) -> int:
        return (self._moved.get(_one(tool)) if self._moved else None) or _rank(tool)

    def sync(self, wait_s: float = _WAIT_S) -> None:
        """Take up the changes since the index was written. Another process that does so is left to it."""
        with self._writing:
            # Again for an index that was made again by `repair`, and once more for one in memory.
            for _ in range(3):
                try:
                    if self._writer.read() and self._is_level(self._writer):
                        return
                    self._writer.write(self._change, wait_s=wait_s, safe=True)
                    if self._writer.folder is None:
                        self.reader = self._writer
                    return
                except IndexUnavailable as error:
                    # Another process writes it: until then the last state that was read serves.
                    if error.busy and self.reader.index is not None:
                        return
                    self.repair(error)

    def _is_level(self, index: SearchIndex) -> bool:
        """Return True if nothing was put since the index was written."""
        position, _ = _read(index.state)
        return position is not None and not self._stored.store.journal.has_grown(position)

    def repair(self, error: IndexUnavailable) -> None:
        """Have the index made again: a damaged one in its place, one that cannot be written in memory."""
        folder = self._writer.folder
        stored = folder is not None and not error.busy and (folder / "state.json").exists()
        if folder is not None and stored:
            shutil.rmtree(folder, ignore_errors=True)
            stored = not folder.exists()
        if not stored:
            self._writer.folder = None
        self.reader.close()
        self._writer.close()

    def _change(self, state: Any) -> Update | None:
        position, moved = _read(state)
        with self._stored.lock:
            self._stored.catch_up()
            changes, now = self._stored.store.journal.read(position)
            if changes == [] and now == position:
                return None
            listing = self._stored.listing
            if changes is None:
                tools, gone, moved = [tool for tool in listing.tools() if not tool.full], [], {}
            else:
                keys = {f"{one.bundle}/{one.file}" for one in changes if one.file is not None}
                tools = [tool for key in keys if (tool := listing.with_key(key)) is not None]
                # What has changed is taken out too, and comes back as it is now.
                gone = [*keys, *(tool.key for tool in tools)]
                self._follow(listing, keys)
            known = {} if changes is None else self._by_rank
        taken: dict[int, str] = {}
        new = [(tool.key, _free(tool, known, taken, moved), _entry(tool)) for tool in tools]
        state = {"position": list(now), "moved": moved}
        return Update(dict.fromkeys(gone), new, state, whole=changes is None)


def _read(state: Any) -> tuple[Position | None, dict[str, int]]:
    """Return the place in the journal that an index is at, and the ranks that are not by time."""
    try:
        journal, offset = state["position"]
        moved = {str(one): int(rank) for one, rank in state["moved"].items()}
        return Position(str(journal), int(offset)), moved
    except (TypeError, KeyError, ValueError, AttributeError):
        return None, {}


def _free(
    tool: ListedTool, known: Mapping[int, ListedTool], taken: dict[int, str], moved: dict[str, int]
) -> int:
    """Return the rank of a tool: another one than by its time if a second tool has that already."""
    one = _one(tool)
    rank = usual = moved.get(one) or _rank(tool)
    # Two tools put in the same millisecond may have the same part of the id.
    while taken.get(rank, one) != one or _one(known.get(rank, tool)) != one:
        rank += 2
    taken[rank] = one
    if rank != usual:
        moved[one] = rank
    return rank


def _one(tool: ListedTool) -> str:
    """Return a text that no other tool has: one in a bundle that was copied by hand has the same id."""
    return f"{tool.id} {tool.bundle}"


def _calls(function: str) -> str:
    """Return the label of tools that call a function of the program."""
    return f"calls:{function}"


def _rank(tool: ListedTool) -> int:
    """Return the rank by the time of the last change: an odd number, in ns, with a part of the id."""
    milliseconds = round(datetime.fromisoformat(tool.modified).timestamp() * 1000)
    return (milliseconds * 500_000 + int(tool.id[-5:], 16) % 500_000) * 2 + 1


def _entry(tool: ListedTool) -> SearchEntry:
    names, about = [tool.slug, tool.name], tool.description
    for name, text in tool.translated:
        names.append(name)
        about += f"\n{text}"
    labels = [f"in:{tool.bundle}", *(() if tool.enabled else (_OFF,))]
    labels += [_calls(tool.function)] if tool.function else []
    return SearchEntry(
        tuple(filter(None, dict.fromkeys(names))), tool.kind, tool.tags, about, tool.arguments, labels
    )
