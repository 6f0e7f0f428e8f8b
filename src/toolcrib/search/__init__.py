"""Search among many tools: one index code for a project's catalog and the store of bundles."""

from toolcrib.search.index import Entry, Found, Hit, IndexUnavailable, Place, SearchIndex, Wanted
from toolcrib.search.words import words_of

__all__ = ["Entry", "Found", "Hit", "IndexUnavailable", "Place", "SearchIndex", "Wanted", "words_of"]
