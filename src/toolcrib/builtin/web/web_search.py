"""`web_search`, by Brave, SearXNG, or an index of local files."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.settings import BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.builtin.web.client import send, web_failure
from toolcrib.builtin.web.readable import readable, title_of
from toolcrib.errors import HttpFailed, TooLarge
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.executors.http.answer import page_text
from toolcrib.sandbox import Roots
from toolcrib.spec import Annotations, CallContext, Example, Network, Output, Permissions, SecretSpec

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


BRAVE = "https://api.search.brave.com"
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")

Found = list[dict[str, str]]
"""Results: `title`, `url` and `description` of each."""
Provider = Callable[[Site, CallContext, str, int, str | None], Awaitable[Found]]
"""Returns results for a query, a number of them, and how new they must be."""


async def _brave(site: Site, ctx: CallContext, query: str, count: int, freshness: str | None) -> Found:
    asked = {"q": query, "count": str(count), "text_decorations": "false"}
    if freshness is not None:
        # Brave's words: pd, pw, pm, py.
        asked["freshness"] = f"p{freshness[0]}"
    key = ctx.secrets["BRAVE_API_KEY"]
    url = f"{site.option('url', BRAVE).rstrip('/')}/res/v1/web/search?{urlencode(asked)}"
    found = await _json(site, ctx, url, {"X-Subscription-Token": key})
    # An answer without results has no `web`, but always repeats the query.
    web = found.get("web", {"results": []} if isinstance(found.get("query"), dict) else None)
    return _results(web, "description")


async def _searxng(site: Site, ctx: CallContext, query: str, _count: int, freshness: str | None) -> Found:
    asked = {"q": query, "format": "json"}
    if freshness is not None:
        asked["time_range"] = freshness
    found = await _json(site, ctx, f"{site.option('url').rstrip('/')}/search?{urlencode(asked)}", {})
    return _results(found, "content")


async def _index(site: Site, ctx: CallContext, query: str, count: int, freshness: str | None) -> Found:
    index = site.kept.setdefault("index", LocalIndex())
    folder = str(Path(site.host.workspace().root, site.option("folder")))
    files = await site.in_files(ctx, folder, "read", index.refresh)
    found: Found = await run_in_thread(lambda: files.search(query, count, freshness))
    return found


PROVIDERS: Mapping[str, Provider] = {"brave": _brave, "searxng": _searxng, "index": _index}


async def _json(site: Site, ctx: CallContext, url: str, headers: dict[str, str]) -> dict[str, Any]:
    response = await send(site, ctx, "GET", url, {"Accept": "application/json", **headers})
    if response.status != 200:
        raise web_failure(response)
    try:
        found = orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        raise HttpFailed(f"the search provider did not answer with JSON: {error}") from None
    if not isinstance(found, dict):
        raise _other_shape("it is not an object")
    return found


def _results(found: Any, description: str) -> Found:
    results = found.get("results") if isinstance(found, dict) else None
    if not isinstance(results, list):
        raise _other_shape("it has no list of results")
    if not all(isinstance(one, dict) and isinstance(one.get("url"), str) for one in results):
        raise _other_shape("it has a result without a URL")
    return [
        {"title": _plain(one.get("title")), "url": one["url"], "description": _plain(one.get(description))}
        for one in results
    ]


def _other_shape(why: str) -> HttpFailed:
    return HttpFailed(
        f"the search provider answered in another shape: {why}",
        hint="Check the options `provider` and `url` of web_search in config.yml.",
    )


def _plain(text: Any) -> str:
    return html.unescape(_TAG.sub("", str(text or ""))).strip()


MAX_COUNT = 20
_FRESHNESS = {"pd": "day", "pw": "week", "pm": "month", "py": "year"}
"""Brave's words, which are understood too."""


async def web_search(
    site: Site, ctx: CallContext, query: str, count: int = 10, freshness: str | None = None
) -> list[dict[str, str]]:
    """Return the results of the configured provider, in one shape."""
    search = PROVIDERS[site.option("provider", "brave")]
    within = None if freshness is None else _FRESHNESS.get(freshness, freshness)
    return (await search(site, ctx, query, count, within))[:count]


def _permissions(settings: BuiltinSettings) -> Permissions:
    options = settings.of("web_search")
    provider = options.get("provider", "brave")
    if provider == "index":
        return Permissions(read=(options["folder"],))
    parts = urlsplit(options.get("url", BRAVE))
    host = parts.netloc.rpartition("@")[2] if parts.port else parts.hostname or ""
    network = Network("hosts", (host.lower(),))
    secrets: Any = (SecretSpec("BRAVE_API_KEY"),) if provider == "brave" else ()
    return Permissions(network, secrets=secrets)


_TEXT = {"type": "string"}
_OPTIONS = {
    "properties": {
        "provider": {
            "description": "`brave` (default; secret `BRAVE_API_KEY`), `searxng` or `index`.",
            "enum": ["brave", "searxng", "index"],
        },
        "url": {
            "description": "The address of SearXNG, or of another server with Brave's API.",
            "type": "string",
            "pattern": "^https?://[^/?#]+",
        },
        "folder": {
            "description": "For `index`: the folder of text, Markdown and HTML files to search.",
            "type": "string",
            "minLength": 1,
        },
    },
    "allOf": [
        {
            "if": {"properties": {"provider": {"const": provider}}, "required": ["provider"]},
            "then": {"required": [needed]},
        }
        for provider, needed in (("searxng", "url"), ("index", "folder"))
    ],
}
BUILTIN = Builtin(
    name="web_search",
    description=(
        "Search the web and return titles, addresses and short descriptions."
        " Use it to find pages; read one with fetch_url."
    ),
    properties={
        "query": string("The search query.", minLength=1),
        "count": integer(
            "Number of results (default 10, maximum 20).", minimum=1, maximum=MAX_COUNT, default=10
        ),
        "freshness": string(
            "Only results of the past day (or pd), week (pw), month (pm) or year (py).",
            enum=[*_FRESHNESS.values(), *_FRESHNESS],
        ),
    },
    run=web_search,
    permissions=_permissions,
    options=_OPTIONS,
    output=Output(
        "json",
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"title": _TEXT, "url": _TEXT, "description": _TEXT},
                "required": ["title", "url", "description"],
            },
        },
    ),
    annotations=Annotations(read_only=True, idempotent=True, open_world=True),
    examples=[Example("Search", {"query": "best python frameworks", "count": 5})],
)
