"""`web_search`, by Brave, SearXNG, or an index of local files."""

from __future__ import annotations

import html
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.settings import BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.builtin.web.client import send, web_failure
from toolcrib.builtin.web.local_index import LocalIndex
from toolcrib.errors import HttpFailed
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.spec import Annotations, CallContext, Example, Network, Output, Permissions, SecretSpec

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
