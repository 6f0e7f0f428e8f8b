"""Search among many tools: one index code for a project's catalog and the store of bundles."""

from toolcrib.search.finding import Found, Hit, Part, Place, Wanted, find
from toolcrib.search.index import Entry, IndexUnavailable, SearchIndex, Update
from toolcrib.search.marked import Card, MarkedIndex
from toolcrib.search.suggesting import suggest
from toolcrib.search.words import words_of

__all__ = [
    "Card",
    "Entry",
    "Found",
    "Hit",
    "IndexUnavailable",
    "MarkedIndex",
    "Part",
    "Place",
    "SearchIndex",
    "Update",
    "Wanted",
    "find",
    "suggest",
    "words_of",
]
