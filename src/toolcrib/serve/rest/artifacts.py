"""The route of artifacts: whole outputs that were too long to be returned."""

from __future__ import annotations

import re

from starlette.responses import Response

from toolcrib.errors import NotFoundError
from toolcrib.serve.http import Routes
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


@ROUTES.add(
    "GET",
    "/tools/artifacts/{artifactID}",
    "read",
    {200: "application/octet-stream", 206: "application/octet-stream", 416: None},
    NotFoundError,
)
def get_artifact(request: RestRequest) -> Response:
    """Return the whole output of one of the client's own calls, or the range of bytes it asks for."""
    outputs = request.services.project.outputs
    client = request.client
    owner = None if client.caller == "page" else outputs.readable(client.caller, client.identity)
    found = outputs.store.get(request.path["artifactID"], owner)
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{found.sha256}"',
        # An output may be HTML: shown as a page of this server, its scripts would act with the session.
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    wanted = _range(request.http.headers.get("range", ""), found.size)
    if wanted is None:
        return Response(outputs.store.read(found.id, owner), 200, headers, found.media_type)
    first, last = wanted
    if first > last:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{found.size}"})
    data = outputs.store.read(found.id, owner, first, last - first + 1)
    headers["Content-Range"] = f"bytes {first}-{last}/{found.size}"
    return Response(data, 206, headers, found.media_type)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Return first and last byte of a range (RFC 9110, 14.1.2); None to ignore the header."""
    match = _RANGE.fullmatch(text.strip())
    if match is None or match[0] == "bytes=-":
        return None
    # `(1, 0)` is a range that no byte lies in: 416.
    if not match[1]:
        return (max(0, size - int(match[2])), size - 1) if int(match[2]) else (1, 0)
    first, last = int(match[1]), int(match[2]) if match[2] else size - 1
    # RFC 9110, 14.1.1: such a range is invalid, so it is ignored and the whole output is sent.
    if match[2] and last < first:
        return None
    return (first, min(last, size - 1)) if first < size else (1, 0)
