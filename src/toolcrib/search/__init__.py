"""Search among many tools: one index code for a project's catalog and the store of bundles."""

from toolcrib.search.finding import Found, Hit, HitPlace, SearchedIndex, Wanted, find, suggest
from toolcrib.search.index import IndexUnavailable, MarkedIndex, SearchEntry, SearchIndex, Update
from toolcrib.search.meanings import EMPTY_WORDS
from toolcrib.search.words import words_of
