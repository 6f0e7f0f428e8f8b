"""The search index of a project's tools, in SQLite. It is made again if it is missing or damaged.

Order of the hits: the beginning of a field, then whole words, then words with one or two typing errors,
then only some of the words. Within each: the name before tags, description and argument names, then the
last changed.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from toolcrib.manifest import Mark
from toolcrib.project.search.spelling import Vocabulary
from toolcrib.spec import Tool

__all__ = ["FIELDS", "Found", "Hit", "Place", "SearchIndex", "Wanted", "words_of"]

FIELDS = ("name", "tags", "description", "arguments")
"""The searched fields. A hit with its words in more than one of them has the field `several`."""
_FORM = 4
_ENOUGH = 5
_COMMON = 5
"""A word in more than one tool of so many says little where not all are found, if there are rarer ones."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Japanese, Chinese: written without spaces, so each sign counts as a word."""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_TABLES = """
CREATE TABLE tools (id INTEGER PRIMARY KEY, name TEXT UNIQUE, mark BLOB, kind TEXT, tags BLOB);
CREATE VIRTUAL TABLE words USING fts5 (
    name, joined, tags, description, arguments, prefix = '2 3', tokenize = 'unicode61 remove_diacritics 0'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'row');
"""
_COLUMNS = {"name": "{name joined}", "tags": "tags", "description": "description", "arguments": "arguments"}


class Wanted(NamedTuple):
    """A question: words, and other conditions for the tools."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    """Any of these."""
    kinds: tuple[str, ...] = ()


class Place(NamedTuple):
    """The place of a hit in the order; the least is the best."""

    level: int
    score: float
    changed: int
    name: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that was found."""

    name: str
    match: str
    """`prefix`, `word`, `fuzzy` or `some`."""
    field: str
    """One of `FIELDS`, or `several`."""
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


class _Card(NamedTuple):
    """The part of a tool that is kept in memory."""

    id: int
    name: str
    mark: Mark
    kind: str
    tags: tuple[str, ...]


class _Level(NamedTuple):
    """Hits that are equally good, but for when they changed."""

    match: str
    field: str
    query: str


def words_of(text: str) -> list[str]:
    """The words of a text, without case and accents; `camelCase` and `snake_case` are two each."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))
    if not text.islower():
        text = _HUMP.sub(" ", text).casefold()
    return _WORD.findall(text)


class SearchIndex:
    """The index of one project. `path` is its file; None keeps it in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._version = -1
        """Another one when another process has written."""
        self._cards: dict[int, _Card] = {}
        self._named: dict[str, _Card] = {}
        self._vocabulary: Vocabulary | None = None

    def forget(self, error: sqlite3.Error) -> None:
        """Give up a file for this error: the index is in memory from now on. A file in use stays."""
        self.close()
        locked = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        if self._path is not None and not locked:
            with suppress(OSError):
                self._path.unlink()
        self._path = None

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None
            self._version = -1

    # -- what is in it ---------------------------------------------------------------------------

    def sync(self, marks: Mapping[str, Mark], get: Callable[[str], Tool | None]) -> None:
        """Index these tools: those with another mark than before are read by `get`, the others stay.

        Raises sqlite3.Error where the file cannot be used: see `forget`.
        """
        database = self._open()
        self._reload(database)
        if self._holds(marks):
            return
        try:
            with database:
                database.execute("BEGIN IMMEDIATE")
                self._reload(database)
                self._drop(
                    database, [card for card in self._cards.values() if marks.get(card.name) != card.mark]
                )
                self._add(database, [name for name in marks if name not in self._named], marks, get)
        except BaseException:
            self._version = -1
            raise
        finally:
            self._vocabulary = None

    @property
    def is_current(self) -> bool:
        """True if no other process has written since `sync`."""
        return self._database is not None and self._version == _version(self._database)

    def _holds(self, marks: Mapping[str, Mark]) -> bool:
        named = self._named
        return len(marks) == len(named) and all(
            name in named and named[name].mark == mark for name, mark in marks.items()
        )

    def _drop(self, database: sqlite3.Connection, cards: Sequence[_Card]) -> None:
        for card in cards:
            del self._cards[card.id], self._named[card.name]
        keys = [(card.id,) for card in cards]
        database.executemany("DELETE FROM tools WHERE id = ?", keys)
        database.executemany("DELETE FROM words WHERE rowid = ?", keys)

    def _reload(self, database: sqlite3.Connection) -> None:
        """Read the index again if another process may have written it."""
        import orjson

        version = _version(database)
        if version == self._version:
            return
        rows = database.execute("SELECT id, name, mark, kind, tags FROM tools")
        try:
            cards = [
                _Card(number, name, orjson.loads(mark), kind, tuple(orjson.loads(tags)))
                for number, name, mark, kind, tags in rows
            ]
        except (ValueError, TypeError) as error:
            raise sqlite3.DatabaseError(str(error)) from None
        self._cards = {card.id: card for card in cards}
        self._named = {card.name: card for card in cards}
        self._vocabulary = None
        self._version = version

    def _add(
        self,
        database: sqlite3.Connection,
        names: Iterable[str],
        marks: Mapping[str, Mark],
        get: Callable[[str], Tool | None],
    ) -> None:
        import orjson

        tools, texts = [], []
        (number,) = database.execute("SELECT coalesce(max(id), 0) FROM tools").fetchone()
        for name in names:
            tool = get(name)
            if tool is None:
                continue
            number += 1
            card = _Card(number, name, marks[name], tool.kind, tool.tags)
            self._cards[number] = self._named[name] = card
            tools.append((number, name, orjson.dumps(card.mark), card.kind, orjson.dumps(card.tags)))
            texts.append((number, *_texts(tool)))
        database.executemany("INSERT INTO tools VALUES (?, ?, ?, ?, ?)", tools)
        database.executemany(
            "INSERT INTO words (rowid, name, joined, tags, description, arguments) VALUES (?, ?, ?, ?, ?, ?)",
            texts,
        )

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _open_file(self._path) if self._path is not None else sqlite3.connect(":memory:")
            self._database.isolation_level = None
            (form,) = self._database.execute("PRAGMA user_version").fetchone()
            if form != _FORM:
                for name in ("vocabulary", "tools", "words"):
                    self._database.execute(f"DROP TABLE IF EXISTS {name}")
                self._database.executescript(_TABLES + f"PRAGMA user_version = {_FORM};")
        return self._database

    # -- finding ---------------------------------------------------------------------------------

    def find(
        self,
        wanted: Wanted,
        count: int,
        after: Place | None = None,
        sees: Callable[[str], bool] | None = None,
    ) -> Found:
        """The best `count` hits behind `after`. `sees` says of a name whether it may be found at all.

        Raises sqlite3.Error where the file cannot be used: see `forget`.
        """
        levels = list(_levels(wanted.words))
        every = self._fitting(self._ids(levels[-1].query), wanted, sees)
        if len(every) < _ENOUGH and (meant := self._meant(wanted.words)):
            # With so many hits nobody looks further for slips.
            levels += _levels_meant(meant)
            every |= self._fitting(self._ids(levels[-1].query), wanted, sees)
        scores: dict[int, float] = {}
        if not every and len(wanted.words) > 1:
            scores = self._scores(wanted.words)
            every = self._fitting(scores, wanted, sees)
            levels = [_Level("some", "several", "")]
        hits: list[Hit] = []
        rest, first = every, 0 if after is None else after.level
        for number, level in enumerate(levels):
            here = rest.intersection(self._ids(level.query)) if level.query else rest
            rest = rest - here
            if number >= first:
                hits += self._best(count + 1 - len(hits), here, number, level, scores, after)
            if not rest or len(hits) > count:
                break
        cards = [self._cards[one] for one in every]
        kinds = Counter([card.kind for card in cards])
        tags: Counter[str] = Counter()
        for together, number in Counter([card.tags for card in cards]).items():
            for tag in together:
                tags[tag] += number
        return Found(hits[:count], len(hits) > count, len(every), tags, kinds)

    def _best(
        self,
        count: int,
        numbers: Iterable[int],
        level: int,
        how: _Level,
        scores: Mapping[int, float],
        after: Place | None,
    ) -> list[Hit]:
        cards = self._cards

        def order(one: int) -> tuple[float, int, str]:
            card = cards[one]
            return -scores.get(one, 0.0), -card.mark[0], card.name

        if after is not None and after.level == level:
            numbers = [one for one in numbers if order(one) > after[1:]]
        return [
            Hit(
                cards[one].name,
                how.match,
                how.field,
                cards[one].kind,
                cards[one].tags,
                Place(level, *order(one)),
            )
            for one in nsmallest(count, numbers, key=order)
        ]

    def _ids(self, query: str) -> list[int]:
        found = self._open().execute("SELECT rowid FROM words WHERE words MATCH ?", (query,))
        return [number for (number,) in found]

    def _fitting(
        self, numbers: Iterable[int], wanted: Wanted, sees: Callable[[str], bool] | None
    ) -> set[int]:
        cards = self._cards
        found = cards.keys() & numbers
        if wanted.kinds:
            found = {one for one in found if cards[one].kind in wanted.kinds}
        if wanted.tags:
            found = {one for one in found if not set(wanted.tags).isdisjoint(cards[one].tags)}
        return found if sees is None else {one for one in found if sees(cards[one].name)}

    def _words(self) -> Vocabulary:
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self._open().execute("SELECT term, doc FROM vocabulary"))
        return self._vocabulary

    def _meant(self, words: Sequence[str]) -> list[list[str]]:
        """For each word those that it may have been meant for; empty where there is one without."""
        found = [self._words().meant(word) for word in words]
        return found if all(found) and found != [[word] for word in words] else []

    def _scores(self, words: Sequence[str]) -> dict[int, float]:
        """Return a score for each tool that has some of these words; rare words count more."""
        vocabulary, size = self._words(), len(self._cards)
        meant = [found for word in dict.fromkeys(words) if (found := vocabulary.meant(word))]
        counts = [sum(map(vocabulary.count, found)) for found in meant]
        most = max(size // _COMMON, _ENOUGH, 2 * min(counts, default=0))
        scores: dict[int, float] = {}
        for found, count in zip(meant, counts, strict=True):
            if count <= most:
                for number in self._ids(_any_of(found)):
                    scores[number] = scores.get(number, 0.0) + math.log(1 + size / count)
        return scores


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA data_version").fetchone()
    return int(version)


def _levels(words: Sequence[str]) -> Iterator[_Level]:
    """Tools with all of these words, the last perhaps not typed to its end."""
    quoted = [f'"{word}"' for word in words]
    joined = "".join(words)
    phrase = f"^ {' + '.join(quoted)} *"
    yield _Level("prefix", "name", f'joined : "{joined}"')
    together = f'(joined : ^ "{joined}" *)'
    yield _Level("prefix", "name", f"(name : {phrase}) OR {together}")
    for field in FIELDS[1:]:
        yield _Level("prefix", field, f"{field} : {phrase}")
    whole, begun = " AND ".join(quoted), f"{' AND '.join(quoted)} *"
    for field, columns in _COLUMNS.items():
        yield _Level("word", field, f"{columns} : ({whole})")
        yield _Level("word", field, f"{columns} : ({begun})")
    # Holds every tool of the levels before.
    yield _Level("word", "several", f"({begun}) OR {together}")


def _levels_meant(meant: Sequence[Sequence[str]]) -> Iterator[_Level]:
    """Tools with any of the meanings of each word."""
    query = " AND ".join(map(_any_of, meant))
    for field, columns in _COLUMNS.items():
        yield _Level("fuzzy", field, f"{columns} : ({query})")
    yield _Level("fuzzy", "several", query)


def _any_of(terms: Iterable[str]) -> str:
    return "(" + " OR ".join(f'"{term}"' for term in terms) + ")"


def _open_file(path: Path) -> sqlite3.Connection:
    """Open the file, or make it. One that another user could have written is removed."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            facts = path.lstat()
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & _OTHERS:
                path.unlink()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise sqlite3.OperationalError(str(error)) from None
    return sqlite3.connect(path, timeout=1)


def _texts(tool: Tool) -> tuple[str, ...]:
    """The words of a tool, column by column."""
    named = words_of(tool.name)
    properties = tool.input_schema.get("properties")
    keys = map(str, properties) if isinstance(properties, dict) else ()
    return (
        " ".join(named),
        "".join(named),
        " ".join(word for tag in tool.tags for word in words_of(tag)),
        " ".join(words_of(tool.description)),
        " ".join(word for key in keys for word in words_of(key)),
    )
