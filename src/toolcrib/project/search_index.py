"""The index of a project's tools, in SQLite: derived, and made anew where it is gone or broken.

Order of the hits: the beginning of a field, then whole words, then words with one or two slips; within each
the name before tags, description and argument names; then what changed last.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolcrib.spec import Tool

__all__ = ["FIELDS", "Hit", "SearchIndex", "Wanted", "words_of"]

FIELDS = ("name", "tags", "description", "arguments")
_FORM = 3
_MOST_LOOKED_AT = 1_000
_ENOUGH = 5
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_TABLES = """
CREATE TABLE tools (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, mark TEXT, kind TEXT, tags TEXT, plain TEXT, changed INTEGER
);
CREATE INDEX plain ON tools (plain);
CREATE VIRTUAL TABLE words USING fts5 (name, tags, description, arguments, prefix = '2 3');
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'col');
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A question: words, and what the tools must be besides."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    """Any of these."""
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that was found."""

    name: str
    match: str
    """`prefix`, `word` or `fuzzy`."""
    field: str
    """Which of `FIELDS`."""
    kind: str
    tags: tuple[str, ...] = ()


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; `camelCase` and `snake_case` are two each."""
    plain = unicodedata.normalize("NFKC", text)
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", plain))]


class SearchIndex:
    """The index of one project. `path` is its file; None keeps it in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._vocabulary: dict[int, list[tuple[str, frozenset[str]]]] = {}
        """The words of names and tags by their length, with the letters of each."""

    def sync(self, marks: Mapping[str, str], get: Callable[[str], Tool | None]) -> None:
        """Hold these tools: those whose mark is another one now are read by `get`, the others are kept."""
        try:
            self._sync(marks, get)
        except sqlite3.Error:
            # Somebody else's, broken or locked: what cannot be used is made anew, for this process alone.
            self.close()
            if self._path is not None:
                with suppress(OSError):
                    self._path.unlink()
            self._path = None
            self._sync(marks, get)

    def _sync(self, marks: Mapping[str, str], get: Callable[[str], Tool | None]) -> None:
        database = self._open()
        held: dict[str, str] = dict(database.execute("SELECT name, mark FROM tools"))
        stale = [name for name, mark in held.items() if marks.get(name) != mark]
        fresh = [name for name, mark in marks.items() if held.get(name) != mark]
        if not stale and not fresh:
            return
        self._vocabulary = {}
        with database:
            for name in stale:
                (row,) = database.execute("SELECT id FROM tools WHERE name = ?", (name,)).fetchone()
                for table, key in (("tools", "id"), ("words", "rowid")):
                    database.execute(f"DELETE FROM {table} WHERE {key} = ?", (row,))  # noqa: S608 - fixed names
            for name in fresh:
                tool = get(name)
                if tool is not None:
                    _add(database, tool, marks[name])

    def find(self, wanted: Wanted) -> list[Hit]:
        """Every tool that fits, at most 1,000, the best first."""
        rows = self._rows(wanted)
        hits = [hit for row in rows if (hit := _judge(row, wanted.words)) is not None]
        hits.sort(key=lambda one: one[0])
        return [hit for _, hit in hits]

    def close(self) -> None:
        """Let go of the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _open_file(self._path) if self._path is not None else sqlite3.connect(":memory:")
            (form,) = self._database.execute("PRAGMA user_version").fetchone()
            if form != _FORM:
                for name in ("vocabulary", "tools", "words"):
                    self._database.execute(f"DROP TABLE IF EXISTS {name}")
                self._database.executescript(_TABLES + f"PRAGMA user_version = {_FORM};")
        return self._database

    def _rows(self, wanted: Wanted) -> list[Sequence[str]]:
        """Candidates, each once: names that begin so, words, then names that look alike."""
        database = self._open()
        phrase = " ".join(wanted.words)
        quoted = [f'"{word}"' for word in wanted.words]
        found: dict[str, Sequence[str]] = {}
        where, values = _filter(wanted)
        columns = "tools.changed, tools.name, tools.kind, tools.tags, words.description, words.arguments"
        joined = f"SELECT {columns} FROM tools JOIN words ON words.rowid = tools.id"  # noqa: S608 - fixed
        begins = f"{joined} WHERE plain >= ? AND plain < ?{where} ORDER BY plain LIMIT {_MOST_LOOKED_AT}"
        weighed = f"{where} ORDER BY bm25(words, 10, 5, 2, 1) LIMIT {_MOST_LOOKED_AT}"
        queries = (
            (begins, (phrase, phrase + "\U0010ffff")),
            (f"{joined} WHERE words MATCH ?{weighed}", (" AND ".join(quoted) + "*",)),
        )
        for query, arguments in queries:
            for row in database.execute(query, (*arguments, *values)):
                found.setdefault(row[1], row)
        # With so many hits nobody looks further for slips.
        if len(found) < _ENOUGH and (meant := self._meant(wanted.words)):
            for row in database.execute(f"{joined} WHERE words MATCH ?{weighed}", (meant, *values)):
                found.setdefault(row[1], row)
        return list(found.values())[:_MOST_LOOKED_AT]

    def _words(self) -> dict[int, list[tuple[str, frozenset[str]]]]:
        if not self._vocabulary:
            rows = self._open().execute("SELECT term FROM vocabulary WHERE col IN ('name', 'tags')")
            for term in {term for (term,) in rows}:
                self._vocabulary.setdefault(len(term), []).append((term, frozenset(term)))
        return self._vocabulary

    def _meant(self, words: Sequence[str]) -> str:
        """The query for names and tags that hold each word, or one that it may have been meant for."""
        vocabulary = self._words()
        parts: list[str] = []
        for word in words:
            most = _slips(word)
            near = range(len(word) - most, len(word) + most + 1)
            letters = set(word)
            alike = [
                term
                for length in near
                for term, held in vocabulary.get(length, ())
                if len(letters - held) <= most and _alike(word, term)
            ]
            if not alike:
                return ""
            parts.append("(" + " OR ".join(f'"{term}"' for term in alike) + ")")
        return "{name tags} : (" + " AND ".join(parts) + ")"


def _open_file(path: Path) -> sqlite3.Connection:
    """The file, made if need be. One that this user alone has not written is put aside."""
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


def _add(database: sqlite3.Connection, tool: Tool, mark: str) -> None:
    name = " ".join(words_of(tool.name))
    described = " ".join(words_of(tool.description))
    named = tool.input_schema.get("properties")
    keys = named if isinstance(named, dict) else {}
    arguments = " ".join(word for key in keys for word in words_of(str(key)))
    cursor = database.execute(
        "INSERT INTO tools (name, mark, kind, tags, plain, changed) VALUES (?, ?, ?, ?, ?, ?)",
        (tool.name, mark, tool.kind, json.dumps(tool.tags), name, int(mark.partition(":")[0] or 0)),
    )
    row = cursor.lastrowid
    tags = " ".join(word for tag in tool.tags for word in words_of(tag))
    database.execute(
        "INSERT INTO words (rowid, name, tags, description, arguments) VALUES (?, ?, ?, ?, ?)",
        (row, f"{name} {name.replace(' ', '')}", tags, described, arguments),
    )


def _filter(wanted: Wanted) -> tuple[str, list[str]]:
    where, values = "", list(wanted.kinds)
    if wanted.kinds:
        where += f" AND tools.kind IN ({', '.join('?' * len(wanted.kinds))})"
    if wanted.tags:
        marks = ", ".join("?" * len(wanted.tags))
        where += f" AND EXISTS (SELECT 1 FROM json_each(tools.tags) WHERE value IN ({marks}))"  # noqa: S608
        values += wanted.tags
    return where, values


def _judge(row: Sequence[str], words: tuple[str, ...]) -> tuple[tuple[int, int, int, str], Hit] | None:
    """How a tool fits, and its place in the order; None where it does not."""
    changed, name, kind, tags, described, arguments = row
    tag_list = tuple(json.loads(tags))
    named = words_of(name)
    tagged = [word for tag in tag_list for word in words_of(tag)]
    texts = ([*named, "".join(named)], tagged, described.split(), arguments.split())
    best: tuple[int, int] | None = None
    for place, text in enumerate(texts):
        how = _match(text, words, fuzzy=place < 2)
        if how is not None and (best is None or (how, place) < best):
            best = how, place
    if best is None:
        together = [word for text in texts for word in text]
        if _match(together, words, fuzzy=False) is None:
            return None
        best = 1, len(texts) - 1
    hit = Hit(name, ("prefix", "word", "fuzzy")[best[0]], FIELDS[best[1]], kind, tag_list)
    return (*best, -int(changed), name), hit


def _match(text: list[str], words: tuple[str, ...], *, fuzzy: bool) -> int | None:
    """0: the text begins so. 1: each word is there, the last perhaps not typed to its end. 2: with slips."""
    if not text:
        return None
    if " ".join(text).startswith(" ".join(words)):
        return 0
    if set(words[:-1]) <= set(text) and any(word.startswith(words[-1]) for word in text):
        return 1
    if fuzzy and all(any(_alike(word, other) for other in text) for word in words):
        return 2
    return None


def _alike(word: str, other: str) -> bool:
    """Whether at most one slip lies between them, two in long words."""
    most = _slips(word)
    return word == other or (abs(len(word) - len(other)) <= most and _distance(word, other) <= most)


def _slips(word: str) -> int:
    return 0 if len(word) < 4 else 1 if len(word) < 8 else 2


def _distance(one: str, other: str) -> int:
    """Letters put in, left out, changed, or swapped with their neighbour (optimal string alignment)."""
    older: list[int] = []
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for at, mate in enumerate(other, 1):
            cost = min(before[at] + 1, line[-1] + 1, before[at - 1] + (letter != mate))
            if row > 1 and at > 1 and letter == other[at - 2] and one[row - 2] == mate:
                cost = min(cost, older[at - 2] + 1)
            line.append(cost)
        older, before = before, line
    return before[-1]
