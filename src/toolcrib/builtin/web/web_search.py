"""`web_search`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.settings import BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.builtin.web.providers import BRAVE, PROVIDERS
from toolcrib.spec import Annotations, CallContext, Example, Network, Output, Permissions, SecretSpec

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
    required=["query"],
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
