"""Find the tools that a question is about, by how well their words fit: the answer to "what could do this?".

Unlike `find`, which shows every hit in an order that does not change, this gives only the best few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolcrib.search.finding import SearchedIndex
from toolcrib.search.index import explained
from toolcrib.search.meanings import Meaning, meanings
from toolcrib.search.ranking import Queries

if TYPE_CHECKING:
    from tantivy import Query

_FIELDS = (("heading", 1.0), ("text", 0.3))
_PHRASE = 1.2
_FURTHER = 0.1
"""What a second word for the same thing adds."""


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
    ask = count
    while query is not None:
        hits = searcher.search(query, ask).hits
        cards = [(score, part.card(searcher.doc(at)["rank"][0])) for score, at in hits]
        usable = [one for one in cards if one[1] is not None and not (part.hidden and part.hidden(one[1]))]
        if len(hits) < ask or len(usable) >= count:
            return usable[:count]
        # Some of the best are hidden from this caller, or are gone and still in the index.
        ask *= 4
    return []


def _one(queries: Queries, meant: Meaning) -> Query | None:
    """Return a query for a word or phrase: the best of its words counts, and the others a little."""
    weight = _PHRASE if meant.of_phrase else 1.0
    each = [
        queries.any([queries.scored(field, stem, part * weight) for field, part in _FIELDS])
        for stem in meant.stems
    ]
    return queries.best([one for one in each if one is not None], _FURTHER)
