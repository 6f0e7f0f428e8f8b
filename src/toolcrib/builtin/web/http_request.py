"""`http_request`."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

import orjson

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.site import Site
from toolcrib.builtin.web.client import WEB_OPTIONS, send, web_permissions
from toolcrib.egress import EgressResponse
from toolcrib.executors.http.answer import text_of
from toolcrib.spec import Annotations, CallContext, Example, Outcome, Output
from toolcrib.spec.calls.content import Content, content_of, is_binary

_SHOWN = ("content-type", "location", "retry-after", "etag", "last-modified", "link", "allow", "date")


async def http_request(
    site: Site,
    ctx: CallContext,
    method: str,
    url: str,
    headers: dict[str, str] | None = None,
    query: dict[str, Any] | None = None,
    body: Any = None,
) -> Outcome:
    """Send one request and return status, headers and body of its answer, whatever its status is."""
    given = dict(headers or {})
    if query:
        lists = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
        pairs = [(name, _text(one)) for name, values in lists.items() for one in values]
        url = url.partition("#")[0]  # A fragment is not sent, and nothing behind it either.
        url += ("&" if "?" in url else "?") + urlencode(pairs)
    data = None
    if body is not None:
        data = body.encode() if isinstance(body, str) else orjson.dumps(body)
        if not isinstance(body, str) and not any(name.lower() == "content-type" for name in given):
            given["Content-Type"] = "application/json"
    response = await send(site, ctx, method, url, given, data)
    warnings = ("the answer is larger than 2 MiB; only its beginning was read",) if response.truncated else ()
    shown = {name.lower(): value for name, value in response.headers if name.lower() in _SHOWN}
    about = {"status": response.status, "url": response.url, "headers": shown}
    details = {"status": response.status}
    if is_binary(response.body, response.content_type):
        block = content_of(response.body, response.content_type)
        return Outcome([Content.text(orjson.dumps(about).decode()), block], warnings, details)
    return Outcome({**about, "body": _body(response)}, warnings, details)


def _body(response: EgressResponse) -> Any:
    media = response.content_type
    if (media == "application/json" or media.endswith("+json")) and not response.truncated:
        try:
            return orjson.loads(response.body)
        except orjson.JSONDecodeError:
            pass
    return text_of(response)[0]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


BUILTIN = Builtin(
    name="http_request",
    description=(
        "Send one HTTP request and return the answer's status, headers and body."
        " A body that is an object or a list is sent as JSON. To read web pages, use fetch_url."
    ),
    properties={
        "method": string("The method.", enum=["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
        "url": string("The address, beginning with http:// or https://."),
        "headers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "HTTP headers to send.",
        },
        "query": {
            "type": "object",
            "description": "Query parameters to add to the address; a list is sent as repeated parameters.",
        },
        "body": {"description": "Text to send as it is, or an object or a list to send as JSON."},
    },
    run=http_request,
    permissions=partial(web_permissions, "http_request"),
    options=WEB_OPTIONS,
    output=Output("json"),
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=True),
    examples=[Example("Call an API", {"method": "GET", "url": "https://api.example.com/status"})],
)
