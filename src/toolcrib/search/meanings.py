"""Words that people use for things that APIs name differently, for searches by what a tool should do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.search.words import words_of

if TYPE_CHECKING:
    from tantivy import TextAnalyzer

_LONGEST = 3
"""Words of the longest phrase in the table."""
_TABLE = Path(__file__).with_name("meanings.txt")
"""A file with words and phrases of people in each line, and after the colon those of tools."""
_EMPTY = (
    "a an and are as at be been but by can did do does for from had has have how i if in into is it its just"
    " my no not now of on or our out same should so some such than that the their them then there these they"
    " this those to up was we were when where who why will with would you your down me off over too us very"
    " right again each more most own only him her his she he"
)
EMPTY_WORDS = frozenset(_EMPTY.split())
"""Words that say nothing about what a question is about."""


class Meaning(NamedTuple):
    """A word or phrase of a question, by the words that tools may have for it."""

    stems: tuple[str, ...]
    of_phrase: bool
    """True for a phrase of several words, which says more than a word."""
    word: str
    """The word itself, as it was asked; empty for a phrase."""


def meanings(question: str) -> list[Meaning]:
    """Return what tools may call the words and phrases of a question, the stem of a word itself first."""
    empty, table = _empty(), _table()
    words = words_of(question)
    asked = stemmer().analyze(" ".join(words))
    found: dict[tuple[str, ...], Meaning] = {}
    for at in range(len(asked)):
        for length in range(1, _LONGEST + 1):
            phrase = tuple(asked[at : at + length])
            itself = phrase if len(phrase) == length == 1 and phrase[0] not in empty else ()
            stems = tuple(dict.fromkeys((*itself, *table.get(phrase, ()))))
            if stems:
                found[phrase] = Meaning(stems, length > 1, words[at] if itself else "")
    return list(found.values())


@cache
def stemmer() -> TextAnalyzer:
    """Return the analyzer that reduces English words to their stems."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.whitespace()).filter(Filter.lowercase())
    return builder.filter(Filter.stemmer("english")).build()


@cache
def _empty() -> frozenset[str]:
    return frozenset(stemmer().analyze(_EMPTY))


@cache
def _table() -> dict[tuple[str, ...], tuple[str, ...]]:
    table: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in _TABLE.read_text().splitlines():
        people, _, tools = line.partition(" : ")
        for phrase in people.split(","):
            key = tuple(stemmer().analyze(" ".join(words_of(phrase))))
            table[key] = (*table.get(key, ()), *stemmer().analyze(" ".join(words_of(tools))))
    return table
