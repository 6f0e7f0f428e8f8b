"""Find tools in one index, or in several as if they were one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.search.index import SearchIndex, explained
from toolcrib.search.meanings import Meaning, meanings
from toolcrib.search.ranking import COMMON, HitClass, Queries
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from tantivy import Query, Searcher


class Wanted(NamedTuple):
    """A question: words, and other conditions for the tools."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    """Any of these."""
    kinds: tuple[str, ...] = ()


class HitPlace(NamedTuple):
    """The place of a hit in the order; the next hit has a higher class, or the same and a lower rank."""

    number: int
    """The number of its class."""
    rank: int


@record
class SearchedIndex:
    """One of the indexes of a search."""

    index: SearchIndex
    card: Callable[[int], Any]
    """Returns the tool of a rank as the caller knows it; None for one that must not be found."""
    hidden: Callable[[Any], bool] | None = None
    """Returns True for a tool that must not be counted either. It is asked about each hit."""
    any_of: tuple[str, ...] = ()
    """Labels of which a tool has one."""
    none_of: tuple[str, ...] = ()
    """Labels of which a tool has none."""
    but: tuple[str, ...] = ()
    """Keys of tools that must not be found."""

    def never(self, queries: Queries) -> list[Query]:
        """Return the queries of what must not be found."""
        excluded = (("label", self.none_of), ("key", self.but))
        return [queries.one_of(field, values) for field, values in excluded if values]


class Hit(NamedTuple):
    """One tool that was found."""

    tool: Any
    """The tool as the caller knows it."""
    match: str
    """`prefix`, `word`, `fuzzy` or `some`."""
    field: str
    """`name`, `tags`, `description`, `arguments` or `several`."""
    place: HitPlace


@dataclass(frozen=True)
class Found:
    """One page of hits, and how many there are in all."""

    hits: list[Hit]
    more: bool
    total: int
    every: Callable[[], Iterator[Any]] = field(repr=False)
    """Yields the tools of all hits, in no order, while the indexes stay as they are."""


def find(parts: Sequence[SearchedIndex], wanted: Wanted, count: int, after: HitPlace | None = None) -> Found:
    """Return the best `count` hits behind `after`. Raises IndexUnavailable."""
    with explained():
        return _Search(parts, wanted, count).page(after)


class _Search:
    """One search over indexes as they are now."""

    def __init__(self, parts: Sequence[SearchedIndex], wanted: Wanted, count: int) -> None:
        # One more than the page holds says if there is a next page.
        self._page, self._most = count, count + 1
        indexes = [part.index.index for part in parts]
        assert None not in indexes
        self._parts = parts
        self._searchers: list[Searcher] = [index.searcher() for index in indexes if index is not None]
        self._queries = queries = Queries(
            self._searchers, indexes[0].schema if indexes[0] is not None else None
        )
        filters = [
            queries.one_of(field, values)
            for field, values in (("tag", wanted.tags), ("kind", wanted.kinds))
            if values
        ]
        self._filters = [
            filters + ([queries.one_of("label", part.any_of)] if part.any_of else []) for part in parts
        ]
        self._never = [part.never(queries) for part in parts]
        words = wanted.words
        self._meant: list[tuple[int, Any]] = []
        """The hits that come first because of their meaning, each with its rank, the best first."""
        exact = queries.exact_hits(words)
        self._classes: Iterable[HitClass] = chain(queries.exact(words, exact), queries.fuzzy(words))
        self._total = self._take(queries.any([exact, queries.fuzzy_hits(words)]))
        if len(words) > 1 and not self._total:
            size = sum(one.num_docs for one in self._searchers) - sum(len(one.but) for one in parts)
            # No tool has all of the words, so those with some of them are found, or with words for the same.
            rare = queries.rare(words, self._count, size)
            meant = [query for one in meanings(" ".join(words)) if (query := _one(queries, one)) is not None]
            telling = [query for query in meant if self._count(query) <= size // COMMON] or meant
            self._classes = [*queries.some(rare), HitClass("some", "several", queries.any(telling))]
            self._total = self._take(queries.any([*rare, *telling]))
            if self._total and meant:
                self._order(queries.all([queries.any(meant), queries.unscored(self._all)]))

    def _take(self, query: Query | None) -> int:
        """Take this query as that of all hits, hide those that must not be found, and count the others."""
        self._all = query
        for number, part in enumerate(self._parts):
            if part.hidden is not None and query is not None:
                self._hide(number, query, part.card, part.hidden)
        # In the order of a page, because the last exact class often asks for just these.
        self._newest: list[Any] = [
            searcher.search(self._narrowed(number, query), self._most, True, "rank")
            for number, searcher in enumerate(self._searchers if query is not None else ())
        ]
        return sum(found.count for found in self._newest)

    def _order(self, query: Query | None) -> None:
        """Put the hits first that fit this query best."""
        found: list[tuple[float, int, Any]] = []
        for number, (searcher, part) in enumerate(zip(self._searchers, self._parts, strict=True)):
            found += _scored(searcher, self._narrowed(number, query), part, _MEANT)
        found.sort(key=lambda one: one[0], reverse=True)
        self._meant = [(rank, card) for _, rank, card in found[:_MEANT]]

    def _hide(
        self, number: int, query: Query, card: Callable[[int], Any], hidden: Callable[[Any], bool]
    ) -> None:
        searcher = self._searchers[number]
        # All hits, because the total and the counts by tag must not reveal that a hidden tool exists.
        found = searcher.search(self._narrowed(number, query), max(searcher.num_docs, 1), False, "rank")
        ranks = [rank for rank, _ in found.hits if (one := card(rank)) is None or hidden(one)]
        if ranks:
            self._never[number].append(self._queries.numbers("rank", ranks))

    def page(self, after: HitPlace | None) -> Found:
        """Return the page behind a place."""
        count = self._page
        hits: dict[int, Hit] = {}
        # The pages before this one showed the classes before, and this class down to the rank.
        shown: list[Query | None] = []
        if meant := self._meant:
            shown.append(self._queries.numbers("rank", [rank for rank, _ in meant]))
            begin = 0 if after is None else 1 - after.rank if after.number == 0 else len(meant)
            for at, (rank, card) in enumerate(meant[begin:], begin):
                hits[rank] = Hit(card, "some", "several", HitPlace(0, -at))
        for number, (match, where, query) in enumerate(self._classes, 1 if meant else 0):
            if len(hits) > count or len(hits) == self._total:
                break
            if after is not None and number < after.number:
                shown.append(query)
                continue
            asked = self._queries.all([query], shown) if shown else query
            if after is not None and number == after.number:
                asked = self._queries.all([asked, self._queries.up_to("rank", after.rank - 1)])
                shown.append(query)
            if asked is None:
                continue
            for rank, card in self._best(asked, hits):
                hits[rank] = Hit(card, match, where, HitPlace(number, rank))
        page = list(hits.values())
        return Found(page[:count], len(page) > count, self._total, self._every)

    def _best(self, query: Query, known: dict[int, Hit]) -> list[tuple[int, Any]]:
        """Return the last changed tools that are not known yet, up to `_most` together with those."""
        most = self._most
        found: list[tuple[int, Any]] = []
        for number, (searcher, part) in enumerate(zip(self._searchers, self._parts, strict=True)):
            narrowed, ask = self._narrowed(number, query), most
            newest = self._newest[number] if query is self._all else None
            while True:
                newest = newest or searcher.search(narrowed, ask, False, "rank")
                ranks = [rank for rank, _ in newest.hits]
                usable = [
                    (rank, card)
                    for rank in ranks
                    if rank not in known and (card := part.card(rank)) is not None
                ]
                if len(ranks) < ask or len(known) + len(usable) >= most:
                    break
                # Some were known, or are gone and still in the index.
                ask, newest = ask * 4, None
            found += usable
        if len(self._parts) > 1:
            # Each index gives its own hits in this order; together they need it once more.
            found.sort(key=lambda one: one[0], reverse=True)
        return found[: most - len(known)]

    def _every(self) -> Iterator[Any]:
        for number, part in enumerate(self._parts if self._all is not None else ()):
            searcher = self._searchers[number]
            found = searcher.search(
                self._narrowed(number, self._all), max(searcher.num_docs, 1), False, "rank"
            )
            yield from (one for rank, _ in found.hits if (one := part.card(rank)) is not None)

    def _narrowed(self, number: int, query: Query | None) -> Query:
        filters, never = self._filters[number], self._never[number]
        narrowed = self._queries.all([query, *filters], never) if filters or never else query
        assert narrowed is not None
        return narrowed

    def _count(self, query: Query | None) -> int:
        total = 0
        for number, searcher in enumerate(self._searchers if query is not None else ()):
            found: Any = searcher.search(self._narrowed(number, query), 1, count=True)
            total += int(found.count)
        return total


_MEANT = 100
"""Hits that are ordered by meaning; those after them by the rarest words."""
_FIELDS = (("heading", 1.0), ("text", 0.3))
_PHRASE = 1.2
_SOURCE = 1.5
"""The weight of a word that names a tool's source, beside that of the word."""
_FURTHER = 0.1
"""The weight of a second word for the same thing."""


def suggest(parts: Sequence[SearchedIndex], question: str, count: int) -> list[Any]:
    """Return the tools that fit a question best, as the parts' own cards. Raises IndexUnavailable."""
    found: list[tuple[float, Any]] = []
    meant = meanings(question)
    with explained():
        for part in parts:
            found += _best(part, meant, count)
    return [card for _, card in sorted(found, key=lambda one: one[0], reverse=True)[:count]]


def _best(part: SearchedIndex, meant: Sequence[Meaning], count: int) -> list[tuple[float, Any]]:
    index = part.index.index
    assert index is not None
    searcher, queries = index.searcher(), Queries([index.searcher()], index.schema)
    each = [query for one in meant if (query := _one(queries, one)) is not None]
    of = [queries.one_of("label", part.any_of)] if part.any_of else []
    query = queries.all([queries.any(each), *of], part.never(queries))
    found = [] if query is None else _scored(searcher, query, part, count)
    return [(score, card) for score, _, card in found]


def _scored(
    searcher: Searcher, query: Query, part: SearchedIndex, count: int
) -> list[tuple[float, int, Any]]:
    """Return the hits that fit a query best: score, rank and card of each."""
    ask = count
    while True:
        hits = searcher.search(query, ask).hits
        ranks = [(score, searcher.doc(at)["rank"][0]) for score, at in hits]
        cards = [(score, rank, part.card(rank)) for score, rank in ranks]
        usable = [one for one in cards if one[2] is not None and not (part.hidden and part.hidden(one[2]))]
        if len(hits) < ask or len(usable) >= count:
            return usable[:count]
        # Some of the best are hidden from this caller, or are gone and still in the index.
        ask *= 4


def _one(queries: Queries, meant: Meaning) -> Query | None:
    """Return a query for a word or phrase: the best of its words counts, and the others a little."""
    weight = _PHRASE if meant.of_phrase else 1.0
    each = [
        queries.any([queries.scored(field, stem, part * weight) for field, part in _FIELDS])
        for stem in meant.stems
    ]
    best = queries.best([one for one in each if one is not None], _FURTHER)
    return queries.any([best, queries.of_source(meant.word, _SOURCE) if meant.word else None])
