"""An index of the text, Markdown and HTML files of one folder, kept in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from toolcrib.builtin.web.readable import readable, title_of
from toolcrib.errors import TooLarge
from toolcrib.executors.http.answer import page_text
from toolcrib.sandbox import Roots

_HTML = (".html", ".htm", ".xhtml")
_NAMES = (".md", ".markdown", ".txt", ".rst", *_HTML)
_MAX_FILES = 10_000
_MAX_BYTES = 1_000_000
"""Bytes that are read of one file."""
_SECONDS = {"day": 86_400, "week": 7 * 86_400, "month": 31 * 86_400, "year": 366 * 86_400}
_HEAP = 50_000_000
_SNIPPET = 240
_TITLE = re.compile(r"^#{1,3}\s+(.+?)\s*#*\s*$", re.MULTILINE)

Stamp = dict[str, tuple[int, float]]
"""Path from the folder to size and time of the last change."""


class LocalIndex:
    """Made again whenever a file has changed since."""

    def __init__(self) -> None:
        self._stamp: Stamp | None = None
        self._index: Any = None

    def refresh(self, roots: Roots, folder: str) -> LocalIndex:
        """Read the folder if it has changed. Raises TooLarge for more than 10,000 files."""
        stamp = {path: (size, modified) for path, size, modified in _files(roots, folder)}
        if stamp != self._stamp:
            self._index, self._stamp = _made(roots, folder, stamp), stamp
        return self

    def search(self, query: str, count: int, freshness: str | None) -> list[dict[str, str]]:
        """Return the best files for a query; `url` is the path from the folder."""
        import tantivy

        assert self._stamp is not None
        oldest = 0.0 if freshness is None else time.time() - _SECONDS[freshness]
        searcher = self._index.searcher()
        wanted, _ = self._index.parse_query_lenient(query, ["title", "body"], {"title": 2.0})
        snippets = tantivy.SnippetGenerator.create(searcher, wanted, self._index.schema, "body")
        snippets.set_max_num_chars(_SNIPPET)
        found = []
        # All hits, since those that are too old are left out afterwards.
        for _, address in searcher.search(wanted, len(self._stamp) or 1).hits:
            document = searcher.doc(address)
            path = document.get_first("path")
            if self._stamp[path][1] < oldest:
                continue
            snippet = snippets.snippet_from_doc(document).fragment()
            text = " ".join((snippet or document.get_first("body")[:_SNIPPET]).split())
            found.append({"title": document.get_first("title"), "url": path, "description": text})
            if len(found) == count:
                break
        return found


def _files(roots: Roots, folder: str) -> Iterator[tuple[str, int, float]]:
    """Yield path, size and time of every file below the folder that is indexed. No link is followed."""
    waiting, count = [""], 0
    while waiting:
        below = waiting.pop()
        for entry in roots.entries(f"{folder}/{below}".rstrip("/")):
            path = f"{below}{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.kind == "dir":
                waiting.append(f"{path}/")
            elif entry.kind == "file" and entry.name.lower().endswith(_NAMES):
                count += 1
                if count > _MAX_FILES:
                    raise TooLarge(f"the folder to search has more than {_MAX_FILES:,} files")
                yield path, entry.size, entry.modified


def _made(roots: Roots, folder: str, stamp: Stamp) -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("title", stored=True, tokenizer_name="en_stem")
    builder.add_text_field("body", stored=True, tokenizer_name="en_stem")
    builder.add_text_field("path", stored=True, tokenizer_name="raw")
    index = tantivy.Index(builder.build())
    writer = index.writer(_HEAP, 1)
    for path in sorted(stamp):
        data, title = roots.read(f"{folder}/{path}", 0, _MAX_BYTES).data, ""
        text = data.decode(errors="replace")
        if path.lower().endswith(_HTML):
            page = page_text(data)
            title, text = title_of(page, "web_search"), readable(page, "", "web_search")
        elif match := _TITLE.search(text):
            title = match[1]
        writer.add_document(tantivy.Document(title=title or path, body=text, path=path))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index
