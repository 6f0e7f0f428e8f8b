"""The search index of tools, by tantivy. It is derived: missing or damaged, it is made again.

Only one process can write an index at a time, so the writer holds a lock. The file `marks.json` says which
version of which tool is indexed; it is marked as unfinished while the index is written.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.search.ranking import FIELDS, START_LENGTH, HitClass, Queries
from toolcrib.search.words import indexed_words, words_of

if TYPE_CHECKING:
    from tantivy import Index, Query, Searcher

__all__ = ["Entry", "Found", "Hit", "IndexUnavailable", "Place", "SearchIndex", "Wanted"]

_Marks = dict[str, tuple[int, list[Any], str, tuple[str, ...]]]
"""Key of a tool to its rank, mark, kind and tags."""
_Cards = dict[int, tuple[str, str, tuple[str, ...]]]
"""Rank of a tool to its key, kind and tags."""
_FORM = 1
_ENOUGH = 5
"""With so many hits nobody looks further for typing errors."""
_WAIT_S = 1.0
_HEAP = 50_000_000
"""Bytes in memory of a writer."""
_FACETS = {
    "kinds": {"terms": {"field": "kind", "size": 1000}},
    "tags": {"terms": {"field": "tag", "size": 1000}},
}
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class IndexUnavailable(Exception):
    """The files of the index cannot be used; `busy` if only another process holds them."""

    def __init__(self, reason: str, *, busy: bool = False) -> None:
        super().__init__(reason)
        self.busy = busy


class Entry(NamedTuple):
    """The searched texts of one tool."""

    name: str
    kind: str
    tags: Sequence[str]
    description: str
    arguments: Iterable[str]


class Wanted(NamedTuple):
    """A question: words, and other conditions for the tools."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    """Any of these."""
    kinds: tuple[str, ...] = ()


class Place(NamedTuple):
    """The place of a hit in the order; the next hit has a higher class, or the same and a lower rank."""

    number: int
    """Of its class."""
    rank: int
    """The time of its change, in ns; no two tools of one index have the same."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that was found."""

    key: str
    match: str
    field: str
    kind: str
    tags: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Found:
    """One page of hits, and how many there are in all: of each tag and of each kind too."""

    hits: list[Hit]
    more: bool
    total: int
    tags: Counter[str]
    kinds: Counter[str]


class SearchIndex:
    """An index in `folder`, which belongs to it alone; None keeps it in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._index: Index | None = None
        self._marks: _Marks = {}
        self._cards: _Cards = {}
        self._seen: object = None

    def forget(self, error: IndexUnavailable) -> None:
        """Give up the files for this error: the index is in memory from now on. Files in use stay."""
        self.close()
        if self._folder is not None and not error.busy:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def close(self) -> None:
        """Close the files."""
        self._index, self._marks, self._seen = None, {}, None

    @property
    def is_current(self) -> bool:
        """True if no other process has written since `sync`."""
        return self._index is not None and self._seen == _version(self._folder)

    def sync(self, marks: Mapping[str, Sequence[Any]], get: Callable[[str], Entry | None]) -> None:
        """Index these tools: those with another mark than before are read by `get`, the others stay.

        The first item of a mark is the time of the last change, in ns. Raises IndexUnavailable: see `forget`.
        """
        with _locked(self._folder), _explained():
            index = self._load()
            gone = [key for key, one in self._marks.items() if marks.get(key) != one[1]]
            kept = self._marks.keys() - gone
            new = [key for key in marks if key not in kept]
            if gone or new:
                _save_marks(self._folder, None)
                self._write(index, gone, new, marks, get)
                _save_marks(self._folder, self._marks)
            if self._seen != (now := _version(self._folder)) or gone or new:
                self._cards = {rank: (key, kind, tags) for key, (rank, _, kind, tags) in self._marks.items()}
                self._seen = now

    def _load(self) -> Index:
        """Open the index as it is on disk; begin an empty one if that cannot be read."""
        if self._index is None or not self.is_current:
            marks = _saved_marks(self._folder)
            if marks is None and self._folder is not None:
                _clear(self._folder)
            self._index = _opened(self._folder)
            self._marks = marks or {}
        return self._index

    def _write(
        self,
        index: Index,
        gone: Iterable[str],
        new: Iterable[str],
        marks: Mapping[str, Sequence[Any]],
        get: Callable[[str], Entry | None],
    ) -> None:
        from tantivy import Document

        writer = index.writer(_HEAP, 1)
        self._seen = None
        for key in gone:
            writer.delete_documents_by_term("key", key)
            del self._marks[key]
        ranks = {one[0] for one in self._marks.values()}
        # Of those that changed at the same time, the first name gets the highest rank.
        for key in sorted(new, reverse=True):
            rank = marks[key][0]
            while rank in ranks:
                rank += 1
            ranks.add(rank)
            entry = get(key)
            if entry is None:
                self._marks[key] = (rank, list(marks[key]), "", ())
            else:
                self._marks[key] = (rank, list(marks[key]), entry.kind, tuple(entry.tags))
                writer.add_document(Document.from_dict(_document(key, rank, entry), index.schema))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()

    def find(
        self,
        wanted: Wanted,
        count: int,
        after: Place | None = None,
        sees: Callable[[str], bool] | None = None,
    ) -> Found:
        """Return the best `count` hits behind `after`. `sees` returns True for a key that may be found.

        Raises IndexUnavailable: see `forget`.
        """
        assert self._index is not None
        with _explained():
            return _Search(self._index, self._cards, wanted, sees).page(count, after)


class _Search:
    """One search over an index as it is now."""

    def __init__(
        self, index: Index, cards: _Cards, wanted: Wanted, sees: Callable[[str], bool] | None
    ) -> None:
        self._searcher: Searcher = index.searcher()
        self._cards = cards
        self._queries = queries = Queries(index.schema)
        self._filters = [
            queries.one_of(field, values)
            for field, values in (("tag", wanted.tags), ("kind", wanted.kinds))
            if values
        ]
        self._hidden: list[Query] = []
        words = wanted.words
        self._classes: Iterable[HitClass] = queries.exact(words)
        self._all = queries.exact_hits(words)
        if self._count(self._all) < _ENOUGH:
            self._classes = chain(self._classes, queries.fuzzy(words))
            self._all = queries.any([self._all, queries.fuzzy_hits(words)])
            if len(words) > 1 and not self._count(self._all):
                rare = queries.rare(words, self._count, self._searcher.num_docs)
                self._classes, self._all = queries.some(rare), queries.any(rare)
        if sees is not None:
            found = self._searcher.search(self._narrowed(self._all), max(len(cards), 1), False, "rank")
            hidden = [key for rank, _ in found.hits if not sees(key := cards[rank][0])]
            self._hidden = [queries.one_of("key", hidden)] if hidden else []

    def page(self, count: int, after: Place | None) -> Found:
        """Return one page."""
        hits: dict[str, Hit] = {}
        # The pages before this one showed the classes before, and this class down to the rank.
        shown: list[Query] = []
        for number, one in enumerate(self._classes):
            if after is not None and number < after.number:
                shown.append(one.query)
                continue
            query = self._queries.without(one.query, shown)
            if after is not None and number == after.number:
                query = self._queries.all([query, self._queries.up_to("rank", after.rank - 1)])
                shown.append(one.query)
            for rank in self._best(query, count + 1 + len(hits)):
                key, kind, tags = self._cards[rank]
                if key not in hits:
                    hits[key] = Hit(key, one.match, one.field, kind, tags, Place(number, rank))
            if len(hits) > count:
                break
        of_kinds, of_tags = self._facets()
        page = list(hits.values())
        return Found(page[:count], len(page) > count, of_kinds.total(), of_tags, of_kinds)

    def _best(self, query: Query, count: int) -> list[int]:
        """Return the ranks of the last changed tools."""
        found = self._searcher.search(self._narrowed(query), count, count=False, order_by_field="rank")
        return [rank for rank, _ in found.hits]

    def _facets(self) -> list[Counter[str]]:
        """Return how many hits there are of each kind and of each tag."""
        counts = self._searcher.aggregate(self._narrowed(self._all), _FACETS)
        return [
            Counter({bucket["key"]: bucket["doc_count"] for bucket in counts[name]["buckets"]})
            for name in ("kinds", "tags")
        ]

    def _narrowed(self, query: Query) -> Query:
        if self._filters:
            query = self._queries.all([query, *self._filters])
        return self._queries.without(query, self._hidden)

    def _count(self, query: Query) -> int:
        found: Any = self._searcher.search(self._narrowed(query), 1, count=True)
        return int(found.count)


def _document(key: str, rank: int, entry: Entry) -> dict[str, Any]:
    """Return the fields of one tool; see `_schema`."""
    parts = {
        "name": [indexed_words(entry.name)],
        "tags": [indexed_words(tag) for tag in entry.tags],
        "description": [indexed_words(entry.description)],
        "arguments": [indexed_words(argument) for argument in entry.arguments],
    }
    texts = {field: [" ".join(part) for part in found] for field, found in parts.items()}
    words = {field: " ".join(found) for field, found in texts.items()}
    starts = {f"start_{field}": _starts(found) for field, found in texts.items()}
    whole = "".join(words_of(entry.name))
    return {
        "key": key,
        "rank": rank,
        "kind": entry.kind,
        "tag": list(entry.tags),
        "whole": whole,
        "start_joined": _starts([whole]),
        "all": " ".join(words.values()),
        **words,
        **starts,
    }


def _starts(texts: Iterable[str]) -> list[str]:
    """Return every beginning of each text, so that a search for a beginning is one look-up."""
    return list({text[:end]: None for text in texts for end in range(1, min(len(text), START_LENGTH) + 1)})


def _opened(folder: Path | None) -> Index:
    from tantivy import Index, SchemaBuilder, TextAnalyzerBuilder, Tokenizer

    schema = SchemaBuilder()
    schema.add_unsigned_field("rank", indexed=True, fast=True)
    schema.add_text_field("key", tokenizer_name="raw", index_option="basic")
    for name in ("kind", "tag"):
        schema.add_text_field(name, fast=True, tokenizer_name="raw", index_option="basic")
    for name in ("whole", "start_joined", *(f"start_{field}" for field in FIELDS)):
        schema.add_text_field(name, tokenizer_name="raw", index_option="basic")
    for name in ("all", *FIELDS):
        schema.add_text_field(name, tokenizer_name="words", index_option="basic")
    index = Index(schema.build(), path=None if folder is None else str(folder / "tantivy"))
    index.register_tokenizer("words", TextAnalyzerBuilder(Tokenizer.whitespace()).build())
    return index


# -- the files -------------------------------------------------------------------------------------


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of the index's files into IndexUnavailable. Tantivy raises ValueError for all of them."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise IndexUnavailable(str(error)) from None


@contextmanager
def _locked(folder: Path | None) -> Iterator[None]:
    """Hold the lock of the index, in a folder that only this user can write."""
    if folder is None:
        yield
        return
    with _explained():
        descriptor = _open_lock(folder)
    try:
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise IndexUnavailable("another process is writing the index", busy=True) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _open_lock(folder: Path) -> int:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & _OTHERS:
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    (folder / "tantivy").mkdir(mode=0o700, exist_ok=True)
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / "tantivy", ignore_errors=True)
    (folder / "tantivy").mkdir(mode=0o700)


def _version(folder: Path | None) -> object:
    """Return a value that differs whenever the index on disk was written; None for one in memory."""
    if folder is None:
        return None
    try:
        facts = (folder / "marks.json").lstat()
    except OSError:
        return -1
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _saved_marks(folder: Path | None) -> _Marks | None:
    """Return the marks on disk; None if there are none, or the index was not written to its end."""
    import orjson

    if folder is None:
        return None
    try:
        stored = orjson.loads((folder / "marks.json").read_bytes())
        if stored["form"] != _FORM or stored["marks"] is None:
            return None
        return {
            str(key): (int(rank), list(mark), str(kind), tuple(map(str, tags)))
            for key, (rank, mark, kind, tags) in stored["marks"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _save_marks(folder: Path | None, marks: _Marks | None) -> None:
    """Write the marks in one step; None while the index is being written."""
    import orjson

    if folder is not None:
        new = folder / f"marks.{os.getpid()}"
        with suppress(FileNotFoundError):
            new.unlink()
        new.write_bytes(orjson.dumps({"form": _FORM, "marks": marks}))
        new.replace(folder / "marks.json")
