"""The route of artifacts: whole outputs that were too long to be returned."""

from __future__ import annotations

from starlette.responses import FileResponse, Response

from toolcrib.errors import NotFoundError
from toolcrib.serve.http import Routes
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()


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
        "ETag": f'"{found.sha256}"',
        # An output may be HTML: shown as a page of this server, its scripts would act with the session.
        "Content-Disposition": "attachment",
    }
    return FileResponse(found.path, headers=headers, media_type=found.media_type)
