"""Search over a project's tools, with facets."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolcribError, UsageError
from toolcrib.manifest import uncollected
from toolcrib.project.catalog.registry import ToolRegistry
from toolcrib.search import Entry, Found, Hit, IndexUnavailable, Place, SearchIndex, Wanted, words_of
from toolcrib.spec import Tool

__all__ = ["Search"]

_MOST_WORDS = 32
_MOST_HITS = 256
_HERE = secrets.randbits(62)
"""Marks tools that are not from manifests: they live as long as this process."""
_MOST_TAGS = 50


class Search:
    """Finds tools of one project. The index is kept in `folder`, or in memory without one."""

    def __init__(self, registry: ToolRegistry, toolset: Toolset, folder: Path | None) -> None:
        self._registry = registry
        self._toolset = toolset
        self._index = SearchIndex(None if folder is None else folder / "search")
        self._revision = -1

    def find(
        self,
        query: str,
        tags: Sequence[str],
        kinds: Sequence[str],
        limit: int,
        page: str | None,
        sees: Callable[[str], bool] | None,
    ) -> dict[str, Any]:
        """Search as `Project.search`; `sees` returns True for a tool that the caller may see."""
        words = tuple(words_of(query)[:_MOST_WORDS])
        if not words:
            raise UsageError("a search needs at least one word", hint="`toolcrib list` shows every tool.")
        wanted = Wanted(words, tuple(tags), tuple(kinds))
        if not 1 <= limit <= _MOST_HITS:
            raise UsageError(f"a page of {limit} hits", hint=f"Ask for 1 to {_MOST_HITS}.")
        after = None if page is None else _read_page(page, wanted)
        unusable: set[str] = set()

        def finds(name: str) -> bool:
            return name not in unusable and name in self._toolset and (sees is None or sees(name))

        while True:
            found = self._found(wanted, limit, after, finds if sees is not None or unusable else None)
            shown = [self._as_json(hit) for hit in found.hits]
            bad = {hit.key for hit, one in zip(found.hits, shown, strict=True) if one is None}
            if not bad:
                break
            unusable |= bad
        return {
            "hits": shown,
            "total": found.total,
            "facets": {
                "tags": dict(found.tags.most_common(_MOST_TAGS)),
                "kinds": dict(found.kinds.most_common()),
            },
            "next": _page(found.hits[-1].place, wanted) if found.more else None,
        }

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _found(
        self, wanted: Wanted, limit: int, after: Place | None, finds: Callable[[str], bool] | None
    ) -> Found:
        try:
            self._sync()
            return self._index.find(wanted, limit, after, finds)
        except IndexUnavailable as error:
            self._index.forget(error)
            self._sync()
            return self._index.find(wanted, limit, after, finds)

    def _sync(self) -> None:
        revision = self._toolset.revision
        if revision != self._revision or not self._index.is_current:
            marks, bound = self._registry.marks, self._toolset.bound
            with uncollected():
                known = {name: marks.get(name) or [0, _HERE, id(bound(name))] for name in self._toolset.names}
                self._index.sync(known, self._entry)
            self._revision = revision

    def _entry(self, name: str) -> Entry | None:
        tool = self._tool(name)
        if tool is None:
            return None
        properties = tool.input_schema.get("properties")
        arguments = properties if isinstance(properties, dict) else ()
        return Entry(tool.name, tool.kind, tool.tags, tool.description, arguments)

    def _tool(self, name: str) -> Tool | None:
        try:
            return self._toolset.get(name)
        except ToolcribError:  # its manifest went bad since, and is reported where it is used
            return None

    def _as_json(self, hit: Hit) -> dict[str, Any] | None:
        """Return a hit as JSON; None for a tool that proves unusable."""
        self._registry.check(hit.key)
        tool = self._tool(hit.key)
        if tool is None:
            return None
        return {
            "name": hit.key,
            "kind": hit.kind,
            "tags": list(hit.tags),
            "match": hit.match,
            "field": hit.field,
            "description": tool.description,
        }


def _page(place: Place, wanted: Wanted) -> str:
    """Return the token of the next page, valid for this question only."""
    import orjson

    return base64.urlsafe_b64encode(orjson.dumps([_digest(wanted), *place])).decode().rstrip("=")


def _read_page(token: str, wanted: Wanted) -> Place:
    import orjson

    try:
        digest, number, rank = orjson.loads(
            base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        )
        place = Place(int(number), int(rank))
    except (ValueError, TypeError):
        raise UsageError("this is not a token of a page", hint="Use `next` of the page before.") from None
    if digest != _digest(wanted):
        raise UsageError(
            "this page belongs to another search", hint="Repeat the words, tags and kinds that it came from."
        )
    return place


def _digest(wanted: Wanted) -> str:
    question = repr((wanted.words, sorted(wanted.tags), sorted(wanted.kinds)))
    return hashlib.sha256(question.encode()).hexdigest()[:16]
