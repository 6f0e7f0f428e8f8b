"""An index of tools that each have a mark, which differs whenever the tool was touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.search.index import SearchEntry, SearchIndex, Update

_MOST_FOREIGN = 64
"""Tools of other processes, or gone by now, that stay in an index: a query leaves out so many at no cost."""
_Marks = dict[str, tuple[int, list[Any], str, tuple[str, ...]]]
"""Key of a tool to its rank, mark, kind and tags."""


class Card(NamedTuple):
    """One tool of such an index."""

    key: str
    kind: str
    tags: tuple[str, ...]


class MarkedIndex(SearchIndex):
    """Such an index; its state is the marks."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self.cards: dict[int, Card] = {}
        """Every tool by its rank: the time of its last change, in ns."""
        self.foreign: tuple[str, ...] = ()
        """Keys that another process may have and this one has not. Nothing of them may be found."""
        self._of: object = None
        self._known: _Marks = {}

    def sync(self, marks: Mapping[str, Sequence[Any]], get: Callable[[str], SearchEntry | None]) -> None:
        """Index these tools: those with another mark than before are read by `get`, the others stay.

        The first item of a mark is the time of the last change, in ns. Raises IndexUnavailable: see `forget`.
        """
        # What another process has stays. Otherwise the two would write the index in turn, at each search.
        most = 0 if self.folder is None else _MOST_FOREIGN
        self.write(lambda state: _difference(self._marks(state), marks, get, most))
        self.foreign = tuple(self._marks(self.state).keys() - marks.keys())

    def _marks(self, state: Any) -> _Marks:
        if self._of is not state:
            self._of, self._known = state, _read(state)
            self.cards = {rank: Card(key, kind, tags) for key, (rank, _, kind, tags) in self._known.items()}
        return self._known


def _difference(
    known: _Marks, marks: Mapping[str, Sequence[Any]], get: Callable[[str], SearchEntry | None], most: int
) -> Update | None:
    gone = [key for key, one in known.items() if key in marks and marks[key] != one[1]]
    foreign = known.keys() - marks.keys()
    gone += foreign if len(foreign) > most else ()
    kept = known.keys() - gone
    new = [key for key in marks if key not in kept]
    if not gone and not new:
        return None
    state = {key: known[key] for key in kept}
    ranks = {one[0] for one in state.values()}
    entries: list[tuple[str, int, SearchEntry]] = []
    # Of those that changed at the same time, the first name gets the highest rank.
    for key in sorted(new, reverse=True):
        # Odd ranks are those of the store.
        rank = int(marks[key][0]) & ~1
        while rank in ranks:
            rank += 2
        ranks.add(rank)
        entry = get(key)
        if entry is None:
            state[key] = (rank, list(marks[key]), "", ())
        else:
            state[key] = (rank, list(marks[key]), entry.kind, tuple(entry.tags))
            entries.append((key, rank, entry))
    return Update(gone, entries, state, whole=not known)


def _read(state: Any) -> _Marks:
    try:
        return {
            str(key): (int(rank), list(mark), str(kind), tuple(map(str, tags)))
            for key, (rank, mark, kind, tags) in (state or {}).items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
