"""The route of artifacts: whole outputs that were too long to be returned."""

from __future__ import annotations

import re

from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from toolcrib.errors import NotFoundError
from toolcrib.serve.http import Routes
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_MEDIA_TYPE = re.compile(r"[!-~]+/[ -~]{1,200}")
_RANGE = re.compile(rb"bytes=(\d{0,15})-(\d{0,15})")


@ROUTES.add(
    "GET",
    "/tools/artifacts/{artifactId}",
    "read",
    {200: "application/octet-stream", 206: "application/octet-stream", 416: None},
    NotFoundError,
)
def get_artifact(request: RestRequest) -> Response:
    """Return the whole output of one of the client's own calls, or the range of bytes it asks for."""
    outputs = request.services.project.outputs
    client = request.client
    owner = None if client.caller == "page" else outputs.readable(client.caller, client.identity)
    found = outputs.store.get(request.path["artifactId"], owner)
    outputs.store.read(found.id, owner, limit=0)  # Raises NotFoundError if its file is gone.
    headers = {
        "ETag": f'"{found.sha256}"',
        # An output may be HTML: shown as a page of this server, its scripts would act with the session.
        "Content-Disposition": "attachment",
    }
    # A mounted server may name a type that no header can have.
    is_plain = _MEDIA_TYPE.fullmatch(found.media_type) is not None
    media_type = found.media_type if is_plain else "application/octet-stream"
    return _Output(found.path, headers=headers, media_type=media_type)


class _Output(FileResponse):
    """A file. `FileResponse` refuses ranges that RFC 9110 (14.1.1 and 14.2) lets a server ignore."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kept = [one for one in scope["headers"] if one[0] != b"range" or _is_range(one[1])]
        await super().__call__({**scope, "headers": kept}, receive, send)


def _is_range(text: bytes) -> bool:
    match = _RANGE.fullmatch(text)
    if match is None or match[0] == b"bytes=-":
        return False
    return not (match[1] and match[2] and int(match[2]) < int(match[1]))
