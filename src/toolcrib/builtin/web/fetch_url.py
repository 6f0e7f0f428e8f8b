"""`fetch_url`."""

from __future__ import annotations

from functools import partial

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.site import Site
from toolcrib.builtin.web.client import WEB_OPTIONS, send, web_failure, web_permissions
from toolcrib.builtin.web.readable import readable
from toolcrib.egress import EgressResponse
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.executors.http.answer import text_of
from toolcrib.spec import Annotations, CallContext, Example, Limits, Outcome
from toolcrib.spec.calls.content import content_of, is_binary

DEFAULT_CHARS, MAX_CHARS = 50_000, 100_000
_ACCEPT = "text/html,application/xhtml+xml,application/json,text/plain,*/*"


async def fetch_url(
    site: Site,
    ctx: CallContext,
    url: str,
    maxChars: int = DEFAULT_CHARS,  # noqa: N803 - the name of the argument
    headers: dict[str, str] | None = None,
) -> Outcome:
    """Return the text of a page, or an answer that is JSON or plain text as it is."""
    given = headers or {}
    if not any(name.lower() == "accept" for name in given):
        given = {"Accept": _ACCEPT, **given}
    response = await send(site, ctx, "GET", url, given)
    if response.status >= 400:
        raise web_failure(response)
    details = {"status": response.status, "url": response.url}
    if is_binary(response.body, response.content_type):
        return Outcome(content_of(response.body, response.content_type), (), details)
    # A large page takes long to parse, and other calls use this event loop.
    text: str = await run_in_thread(lambda: _text(response))
    if len(text) > maxChars:
        more = f"call again with a larger maxChars, at most {MAX_CHARS}" if maxChars < MAX_CHARS else ""
        text = f"{text[:maxChars]}\n[cut: the first {maxChars:,} of {len(text):,} characters." + (
            f" To read on, {more}.]" if more else "]"
        )
    warnings = ("the answer is larger than 2 MiB; only its beginning was read",) if response.truncated else ()
    return Outcome(text, warnings, details)


def _text(response: EgressResponse) -> str:
    text, media = text_of(response)[0], response.content_type
    unnamed = media in ("", "application/octet-stream") and text.lstrip().startswith("<")
    if media in ("text/html", "application/xhtml+xml") or unnamed:
        return readable(text, response.url)
    return text


BUILTIN = Builtin(
    name="fetch_url",
    description=(
        "Fetch a web page or an API endpoint. A page is returned as readable plain text, JSON as it is."
        " Use it to read documentation, check services or gather information from the internet."
    ),
    properties={
        "url": string("The address, beginning with http:// or https://."),
        "maxChars": integer(
            "Characters to return at most (default 50000, maximum 100000).",
            minimum=1,
            maximum=MAX_CHARS,
            default=DEFAULT_CHARS,
        ),
        "headers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "HTTP headers to send with the request.",
        },
    },
    run=fetch_url,
    permissions=partial(web_permissions, "fetch_url"),
    options=WEB_OPTIONS,
    annotations=Annotations(read_only=True, idempotent=True, open_world=True),
    limits=Limits(output_bytes=4 * MAX_CHARS + 1_000),
    examples=[Example("Read a page", {"url": "https://example.com/"})],
)
