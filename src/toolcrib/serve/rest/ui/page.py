"""The files of the web page, as `scripts/page.py` writes them beside this package."""

from __future__ import annotations

import gzip
import mimetypes
from functools import cache
from pathlib import Path

from starlette.responses import FileResponse, PlainTextResponse, Response

import toolcrib
from toolcrib.errors import NotFoundError
from toolcrib.serve.http import Routes
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_FOLDER = Path(toolcrib.__file__).parent / "page"
NOT_BUILT = (
    "The web page is not built here: run `make setup` in the checkout, or install Toolcrib from a wheel.\n"
)
# Only files of this server, and no other site may show it in a frame.
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; object-src 'none'",
    "vary": "accept",
}
# A file with other content has another name.
_FILE_HEADERS = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}


def page_or_nothing(folder: Path = _FOLDER) -> Response:
    """Return the page, or 503 with the way to get it."""
    index = folder / "index.html"
    if not index.is_file():
        return PlainTextResponse(NOT_BUILT, 503)
    return FileResponse(index, headers=_PAGE_HEADERS)


@ROUTES.add("GET", "/assets/{asset}", None, {200: "application/octet-stream"}, NotFoundError)
def get_page_file(request: RestRequest) -> Response:
    """Return a file of the web page."""
    name = request.path["asset"]
    path = _FOLDER / "assets" / name
    if "/" in name or "\0" in name or not path.is_file():
        raise NotFoundError(f"the web page has no file {name[:100]!r}", hint="Load the page again.")
    if "gzip" not in request.http.headers.get("accept-encoding", ""):
        return FileResponse(path, headers=_FILE_HEADERS)
    headers = {**_FILE_HEADERS, "content-encoding": "gzip"}
    return Response(_compressed(path), headers=headers, media_type=mimetypes.guess_type(name)[0])


@cache
def _compressed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes())
