"""The order of search hits: classes of queries, the best first.

The beginning of a field goes before whole words, whole words before words with one or two typing errors, and
those before tools that have only some of the words, or words for the same: the best hundred of these by
score. Within the other classes the name goes before tags, description and argument names, and inside one the
last changed comes first, so their order does not depend on scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tantivy import Query, Searcher

FIELDS = ("name", "tags", "description", "arguments")
"""The searched fields. A hit with its words in more than one of them has the field `several`."""
START_LENGTH = 32
"""Characters of the beginning of a field, or of a word, that are indexed as a whole."""
_FEW = 64
COMMON = 5
"""A word in more than one tool of this many says little where not all words are found."""
_MOST = 4
"""Words that count where not all words are found: the rarest ones."""


class HitClass(NamedTuple):
    """Hits that are equally good, but for when they changed."""

    match: str
    """`prefix`, `word`, `fuzzy` or `some`."""
    field: str
    """One of `FIELDS`, or `several`."""
    query: Query | None
    """None where no tool can match. The class has its number all the same: tokens of pages hold it."""


class Queries:
    """Builds the queries of a search in some indexes of one schema. A query for nothing is None.

    A look into the dictionary of words takes 1 µs, a query 5 to 50: most classes are known to be empty.
    """

    def __init__(self, searchers: Sequence[Searcher], schema: Any) -> None:
        from tantivy import Occur, Query

        self._searchers, self._schema, self._query = searchers, schema, Query
        self._must, self._should, self._never = Occur.Must, Occur.Should, Occur.MustNot
        self._terms: dict[tuple[str, str], Query | None] = {}

    # -- classes -----------------------------------------------------------------------------------

    def exact(self, words: Sequence[str], every: Query | None) -> Iterator[HitClass]:
        """Return the classes of tools that have every word; the last word may be only begun.

        `every` is the query for all of them: `exact_hits`.
        """
        phrase = " ".join(words)
        yield HitClass("prefix", "name", self.term("whole", "".join(words)))
        yield HitClass("prefix", "name", self._named(words))
        for field in FIELDS[1:]:
            yield HitClass("prefix", field, self._start(field, phrase, words))
        for field in FIELDS:
            yield HitClass("word", field, self.all([self.term(field, word) for word in words]))
            more = self._is_more(f"begun_{field}", words[-1][:START_LENGTH], field, words[-1])
            yield HitClass("word", field, self._begun(field, words) if more else None)
        yield HitClass("word", "several", every)

    def exact_hits(self, words: Sequence[str]) -> Query | None:
        """Return the query for every tool of the exact classes."""
        begun, phrase, joined = self._begun("all", words), " ".join(words), "".join(words)
        # Usually no name has the words written together: a query fewer.
        together = len(phrase) > START_LENGTH or self._is_more("start_joined", joined, "start_name", phrase)
        return self.any([begun, self._joined(words)]) if together else begun

    def fuzzy(self, words: Sequence[str]) -> Iterator[HitClass]:
        """Return the classes of tools that have every word with typing errors.

        Words of four letters may have one error, words of eight letters two (a letter inserted, left out,
        changed, or swapped with its neighbour).
        """
        for field in FIELDS:
            yield HitClass("fuzzy", field, self.all([self._near(field, word) for word in words]))
        yield HitClass("fuzzy", "several", self.fuzzy_hits(words))

    def fuzzy_hits(self, words: Sequence[str]) -> Query | None:
        """Return the query for every tool of the fuzzy classes."""
        return self.all([self._near("all", word) for word in words])

    def rare(self, words: Sequence[str], count: Callable[[Query | None], int], size: int) -> list[Query]:
        """Return a query for each of the rarest words. Words that many of `size` tools have do not count.

        If every word is such a one, they count.
        """
        nears = [near for word in dict.fromkeys(words) if (near := self._near("all", word)) is not None]
        known = sorted(((count(near), near) for near in nears), key=lambda one: one[0])
        known = [one for one in known if one[0]]
        rare = [near for number, near in known if number <= size // COMMON] or [near for _, near in known]
        return rare[:_MOST]

    def some(self, rare: Sequence[Query]) -> Iterator[HitClass]:
        """Return the classes of tools that have some of the words, the rarest word first.

        Those with more words come first, and of these the ones with the rarest word.
        """
        choices = [(self._should, near) for near in rare]
        for least in range(len(choices), 0, -1):
            enough = self._query.boolean_query(choices, least)
            for near in rare:
                yield HitClass("some", "several", self.all([near, enough]))

    # -- queries -----------------------------------------------------------------------------------

    def term(self, field: str, value: str) -> Query | None:
        """Return a query for documents with exactly this word in a field."""
        key = field, value
        if key not in self._terms:
            found = None
            for searcher in self._searchers:
                if searcher.doc_freq(field, value):
                    found = self._query.term_query(self._schema, field, value, "basic")
                    break
            self._terms[key] = found
        return self._terms[key]

    def scored(self, field: str, value: str, weight: float) -> Query | None:
        """Return a query for documents with this word in a field, better the rarer it is."""
        if not any(searcher.doc_freq(field, value) for searcher in self._searchers):
            return None
        return self._query.boost_query(self._query.term_query(self._schema, field, value, "freq"), weight)

    def of_source(self, word: str, weight: float) -> Query | None:
        """Return a query for tools whose name begins with this word, if it is the name of their source.

        It is one if most tools that have it anywhere begin with it: `slack`, and seldom `search`.
        """
        of_source = f"{word} "  # The whole first word of a name that has more of them.
        begin, have = (
            sum(searcher.doc_freq(field, value) for searcher in self._searchers)
            for field, value in (("start_name", of_source), ("all", word))
        )
        if not begin or 2 * begin < have:
            return None
        return self._query.boost_query(
            self._query.term_query(self._schema, "start_name", of_source, "basic"), weight
        )

    def unscored(self, query: Query | None) -> Query | None:
        """Return a query for the same documents that makes none of them better."""
        return None if query is None else self._query.const_score_query(query, 0.0)

    def best(self, queries: Sequence[Query], further: float) -> Query | None:
        """Return a query for documents that match any of these: the best counts, the others for a part."""
        return self._query.disjunction_max_query(queries, further) if queries else None

    def one_of(self, field: str, values: Sequence[str]) -> Query:
        """Return a query for documents with one of these words in a field."""
        if len(values) > _FEW:  # A set costs 0.8 ms, whatever its size.
            return self._query.term_set_query(self._schema, field, values)
        found = [self._query.term_query(self._schema, field, value, "basic") for value in values]
        return self._query.boolean_query([(self._should, query) for query in found])

    def numbers(self, field: str, values: Sequence[int]) -> Query:
        """Return a query for documents with one of these numbers in a field."""
        return self._query.term_set_query(self._schema, field, values)

    def all(self, queries: Sequence[Query | None], none: Sequence[Query | None] = ()) -> Query | None:
        """Return a query for documents that match all of these queries, and none of the others."""
        found: list[Any] = []
        for one in queries:
            if one is None:
                return None
            found.append((self._must, one))
        found += [(self._never, one) for one in none if one is not None]
        return queries[0] if len(found) == 1 else self._query.boolean_query(found)

    def any(self, queries: Sequence[Query | None]) -> Query | None:
        """Return a query for documents that match one of these."""
        found = [query for query in queries if query is not None]
        if len(found) < 2:
            return found[0] if found else None
        return self._query.boolean_query([(self._should, query) for query in found])

    def up_to(self, field: str, highest: int) -> Query:
        """Return a query for documents whose number in a field is at most `highest`."""
        from tantivy import FieldType

        return self._query.range_query(self._schema, field, FieldType.Unsigned, 0, highest)

    def _named(self, words: Sequence[str]) -> Query | None:
        """Return a query for documents whose name begins with these words, together or apart."""
        joined, phrase = self._joined(words), " ".join(words)
        if len(phrase) <= START_LENGTH:  # What begins with them apart begins with them together too.
            return joined
        return self.any([self._start("name", phrase, words), joined])

    def _joined(self, words: Sequence[str]) -> Query | None:
        return self._start("joined", "".join(words), words)

    def _start(self, field: str, text: str, words: Sequence[str]) -> Query | None:
        start = self.term(f"start_{field}", text[:START_LENGTH])
        if len(text) <= START_LENGTH or start is None:
            return start
        return self.all([start, self._begun("all" if field == "joined" else field, words)])

    def _begun(self, field: str, words: Sequence[str]) -> Query | None:
        begun = self.term(f"begun_{field}", words[-1][:START_LENGTH])
        if len(words[-1]) > START_LENGTH:
            # A fuzzy query without errors: a regular expression takes 2 ms to compile.
            begun = self._query.fuzzy_term_query(self._schema, field, words[-1], 0, True, True)
        return self.all([*(self.term(field, word) for word in words[:-1]), begun])

    def _is_more(self, field: str, value: str, than: str, other: str) -> bool:
        """Return True if more documents have one word in a field than another one in another field."""
        return any(one.doc_freq(field, value) > one.doc_freq(than, other) for one in self._searchers)

    def _near(self, field: str, word: str) -> Query | None:
        errors = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        if errors == 0:
            return self.term(field, word)
        return self._query.fuzzy_term_query(self._schema, field, word, errors, True)
