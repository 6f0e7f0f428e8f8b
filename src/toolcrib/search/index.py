"""The search index of tools, by tantivy. It is derived: missing or damaged, it is made again.

Only one process can write an index at a time, so the writer holds a lock; a process that dies loses it. The
file `state.json` describes the content of the index, in the words of whoever keeps it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.search.meanings import stemmer
from toolcrib.search.ranking import FIELDS, START_LENGTH
from toolcrib.search.words import indexed_words, words_of
from toolcrib.state.private import is_shared, make_private, open_plain

if TYPE_CHECKING:
    from tantivy import Index


# Raised with every change of the fields or the state: an index of another form is made again.
_FORM = 9
_WAIT_S = 1.0
_HEAP = 50_000_000
"""Bytes in memory of a writer."""
_MOST_TEXT = 200
"""Words of a description behind its first sentence that say what a tool is about."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


class IndexUnavailable(Exception):
    """The files of the index cannot be used; `busy` if only another process holds them."""

    def __init__(self, reason: str, *, busy: bool = False) -> None:
        super().__init__(reason)
        self.busy = busy


class SearchEntry(NamedTuple):
    """The searched texts of one tool."""

    names: Sequence[str]
    kind: str
    tags: Sequence[str]
    description: str
    arguments: Iterable[str]
    labels: Sequence[str] = ()
    """Words to filter by, which nobody searches."""


class Update(NamedTuple):
    """A change of an index."""

    gone: Iterable[str]
    """Keys to remove, where they are in it."""
    new: Iterable[tuple[str, int, SearchEntry]]
    """Tools to add, each with its key and its rank: of two equally good hits the higher one comes first. No
    two tools of one index have the same rank."""
    state: Any
    """Describes the content of the index then, as JSON."""
    whole: bool = False
    """True if nothing that was in it stays."""


class SearchIndex:
    """An index in `folder`, which belongs to it alone; None keeps it in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.index: Index | None = None
        self.state: Any = None
        """The state that its last writer gave it; None for an empty or unfinished index."""
        self._seen: object = None

    def forget(self, error: IndexUnavailable) -> None:
        """Give up the files for this error: the index is in memory from now on. Files in use stay."""
        self.close()
        if self.folder is not None and not error.busy:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def close(self) -> None:
        """Close the files."""
        self.index, self.state, self._seen = None, None, None

    @property
    def is_current(self) -> bool:
        """True if no other process has written since it was last read or written here."""
        return self.index is not None and self._seen == _version(self.folder)

    def read(self) -> bool:
        """Take up what another process has written; return False if there is nothing to read.

        Raises IndexUnavailable: see `forget`.
        """
        if not self.is_current:
            # The version first: what another process writes from here on then shows as new at the next look.
            seen, state = _version(self.folder), _saved_state(self.folder)
            if state is None:
                return False
            with explained():
                if self.index is None:
                    self.index = _opened(self.folder)
                else:
                    self.index.reload()
            self._seen, self.state = seen, state
        return True

    def write(
        self, change: Callable[[Any], Update | None], *, wait_s: float = _WAIT_S, safe: bool = False
    ) -> None:
        """Change the index as `change` says, which gets its state; None for nothing to do.

        `safe`: the same change, made twice, is as good as once; then a writer that dies leaves a usable
        index. Raises IndexUnavailable: see `forget`.
        """
        with _locked(self.folder, wait_s), explained():
            index = self._open()
            update = change(self.state)
            if update is None:
                return
            # If this process dies while it writes, there is no state, and the next one makes the index again.
            if not safe:
                _save_state(self.folder, None)
            self._seen = None
            self._write(index, update)
            self.state = update.state
            # After the commit: a state must never promise what the index does not contain.
            _save_state(self.folder, update.state)
            self._seen = _version(self.folder)

    def _open(self) -> Index:
        """Open the index as it is on disk; begin an empty one if that cannot be read."""
        if self.index is None or not self.is_current:
            seen, self.state = _version(self.folder), _saved_state(self.folder)
            if self.state is None and self.folder is not None:
                _clear(self.folder)
            self.index = _opened(self.folder)
            self._seen = seen
        return self.index

    def _write(self, index: Index, update: Update) -> None:
        from tantivy import Document

        writer = index.writer(_HEAP, 1)
        if update.whole:
            writer.delete_all_documents()
        for key in update.gone:
            writer.delete_documents_by_term("key", key)
        for key, rank, entry in update.new:
            writer.add_document(Document.from_dict(_document(key, rank, entry), index.schema))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()


def _document(key: str, rank: int, entry: SearchEntry) -> dict[str, Any]:
    """Return the fields of one tool; see `_schema`."""
    first, *rest = map(indexed_words, _SENTENCE.split(entry.description, maxsplit=1))
    parts = {
        "name": [indexed_words(name) for name in entry.names],
        "tags": [indexed_words(tag) for tag in entry.tags],
        "description": [list(chain(first, *rest))],
        "arguments": [indexed_words(argument) for argument in entry.arguments],
    }
    words = {field: list(dict.fromkeys(chain(*found))) for field, found in parts.items()}
    begun = {f"begun_{field}": found for field, found in words.items()}
    starts = {
        f"start_{field}": [" ".join(part[:START_LENGTH]) for part in found] for field, found in parts.items()
    }
    whole = ["".join(words_of(name)) for name in entry.names]
    every = list(dict.fromkeys(chain(*words.values())))
    return {
        "key": key,
        "rank": rank,
        "kind": [entry.kind],
        "tag": list(entry.tags),
        "label": list(entry.labels),
        "whole": whole,
        "start_joined": whole,
        "all": " ".join(every),
        "begun_all": every,
        "heading": " ".join(chain(*parts["name"], first)),
        "text": " ".join(chain(*parts["arguments"], *parts["tags"], *(part[:_MOST_TEXT] for part in rest))),
        **{field: " ".join(found) for field, found in words.items()},
        **starts,
        **begun,
    }


def _opened(folder: Path | None) -> Index:
    from tantivy import Index, SchemaBuilder, TextAnalyzerBuilder, Tokenizer

    schema = SchemaBuilder()
    schema.add_unsigned_field("rank", stored=True, indexed=True, fast=True)
    schema.add_text_field("key", tokenizer_name="raw", index_option="basic")
    schema.add_text_field("label", tokenizer_name="raw", index_option="basic")
    for name in ("kind", "tag"):
        schema.add_text_field(name, tokenizer_name="raw", index_option="basic")
    schema.add_text_field("whole", tokenizer_name="raw", index_option="basic")
    for name in ("joined", *FIELDS):
        schema.add_text_field(f"start_{name}", tokenizer_name="starts", index_option="basic")
    for name in ("all", *FIELDS):
        schema.add_text_field(f"begun_{name}", tokenizer_name="starts", index_option="basic")
    for name in ("all", *FIELDS):
        schema.add_text_field(name, tokenizer_name="words", index_option="basic")
    for name in ("heading", "text"):
        schema.add_text_field(name, tokenizer_name="stems", index_option="freq")
    index = Index(schema.build(), path=None if folder is None else str(folder / "tantivy"))
    index.register_tokenizer("words", TextAnalyzerBuilder(Tokenizer.whitespace()).build())
    index.register_tokenizer("stems", stemmer())
    # Every beginning of a text, and in `begun_` fields of each word, so a search for one is one look-up.
    starts = Tokenizer.ngram(1, START_LENGTH, prefix_only=True)
    index.register_tokenizer("starts", TextAnalyzerBuilder(starts).build())
    return index


# -- the files -------------------------------------------------------------------------------------


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the index's files into IndexUnavailable. Tantivy raises ValueError for all of them."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise IndexUnavailable(str(error)) from None


@contextmanager
def _locked(folder: Path | None, wait_s: float) -> Iterator[None]:
    """Hold the lock of the index, in a folder that only this user can write."""
    if folder is None:
        yield
        return
    with explained():
        descriptor = _open_lock(folder)
    try:
        until = time.monotonic() + wait_s
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
    # Through a link, the index would be written, or removed, in another place.
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    make_private(folder)
    # Not trusted: another user may have put an index of their own there, or may do so later.
    if is_shared(folder.lstat()):
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
        facts = os.lstat(f"{folder}/state.json")  # A `Path` would take longer.
    except OSError:
        return -1
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _saved_state(folder: Path | None) -> Any:
    """Return the state on disk; None if there is none, or the index was not written to its end."""
    import orjson

    if folder is None:
        return None
    try:
        with os.scandir(folder / "tantivy") as entries:
            plain = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        # To open a FIFO, tantivy would wait for a writer.
        if "meta.json" not in plain or not all(plain.values()):
            return None
        with open_plain(folder / "state.json") as file:
            stored = orjson.loads(file.read())
        return stored["state"] if stored["form"] == _FORM else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _save_state(folder: Path | None, state: Any) -> None:
    """Write the state in one step; None while the index is being written."""
    import orjson

    if folder is not None:
        new = folder / f"state.{os.getpid()}"
        with suppress(FileNotFoundError):
            # A process with the same number may have died before it renamed its file.
            new.unlink()
        new.write_bytes(orjson.dumps({"form": _FORM, "state": state}))
        new.replace(folder / "state.json")


_MOST_FOREIGN = 64
"""Tools of other processes, or gone by now, that may stay in an index: to leave out so few costs nothing."""
_Marks = dict[str, tuple[int, list[Any]]]
"""Key of a tool to its rank and mark."""


class MarkedIndex(SearchIndex):
    """Such an index; its state is the marks."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self.keys: dict[int, str] = {}
        """The key of every tool by its rank: the time of its last change, in ns."""
        self.foreign: tuple[str, ...] = ()
        """Keys that another process may have and this one has not. Nothing of them may be found."""
        self._of: object = None
        self._known: _Marks = {}

    def sync(self, marks: Mapping[str, Sequence[Any]], get: Callable[[str], SearchEntry | None]) -> None:
        """Index these tools: those with another mark than before are read by `get`, the others stay.

        The first item of a mark is the time of the last change, in ns. Raises IndexUnavailable: see `forget`.
        """
        # What another process has stays. Otherwise the two would write the index in turn, at each search.
        most = 0 if self.folder is None else _MOST_FOREIGN
        self.write(lambda state: _difference(self._marks(state), marks, get, most))
        self.foreign = tuple(self._marks(self.state).keys() - marks.keys())

    def _marks(self, state: Any) -> _Marks:
        if self._of is not state:
            self._of, self._known = state, _read(state)
            self.keys = {rank: key for key, (rank, _) in self._known.items()}
        return self._known


def _difference(
    known: _Marks, marks: Mapping[str, Sequence[Any]], get: Callable[[str], SearchEntry | None], most: int
) -> Update | None:
    gone = [key for key, one in known.items() if key in marks and marks[key] != one[1]]
    foreign = known.keys() - marks.keys()
    gone += foreign if len(foreign) > most else ()
    kept = known.keys() - gone
    new = [key for key in marks if key not in kept]
    if not gone and not new:
        return None
    state = {key: known[key] for key in kept}
    ranks = {one[0] for one in state.values()}
    entries: list[tuple[str, int, SearchEntry]] = []
    # Of those that changed at the same time, the first name gets the highest rank.
    for key in sorted(new, reverse=True):
        # Odd ranks are those of the store.
        rank = int(marks[key][0]) & ~1
        while rank in ranks:
            rank += 2
        ranks.add(rank)
        entry = get(key)
        state[key] = (rank, list(marks[key]))
        if entry is not None:
            entries.append((key, rank, entry))
    return Update(gone, entries, state, whole=not known)


def _read(state: Any) -> _Marks:
    try:
        return {str(key): (int(rank), list(mark)) for key, (rank, mark) in (state or {}).items()}
    except (ValueError, TypeError, AttributeError):
        return {}
