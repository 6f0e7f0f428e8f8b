"""Search among many tools: one index code for a project's catalog and the store of bundles."""

from toolcrib.search.finding import Found, Hit, HitPlace, SearchedIndex, Wanted, find
from toolcrib.search.index import IndexUnavailable, SearchEntry, SearchIndex, Update
from toolcrib.search.marked import Card, MarkedIndex
from toolcrib.search.suggesting import suggest
from toolcrib.search.words import words_of
