"""The page on which a login link ends in a browser, until there is a web page."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

from toolcrib import __version__

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Toolcrib</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body {{ font: 1em/1.5 system-ui; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}</style>
<h1>Toolcrib {version}</h1><p>{state}
<p>There is no web page yet. From a terminal, in the project:
<ul><li><code>toolcrib approvals watch</code>: decide on calls that wait for you
<li><code>toolcrib list</code>, <code>toolcrib status</code>: tools, and what runs
<li><code>toolcrib token create NAME</code>: a token for a program</ul>
<p>What this server answers, as JSON: <a href="{prefix}/tools">tools</a>,
<a href="{prefix}/approvals">approvals</a>, <a href="{prefix}/tools/calls">calls</a>,
<a href="{prefix}/runs">runs</a>; all of it is in <a href="{prefix}/openapi.json">openapi.json</a>.
"""
_HEADERS = {
    "cache-control": "no-store",
    "vary": "accept, cookie",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


def start_page(prefix: str, person: str | None) -> HTMLResponse:
    """Return the page; `person` is the one that is logged in."""
    state = (
        "You are not logged in. A login link works once, for 15 minutes: open the one that the server"
        " printed, or start the server again for another."
    )
    if person is not None:
        state = f"You are logged in as {escape(person)}."
    page = _PAGE.format(version=__version__, state=state, prefix=escape(prefix))
    return HTMLResponse(page, headers=_HEADERS)
