"""Where a document comes from: a file, or a URL fetched through the guarded client."""

from __future__ import annotations

import os
from pathlib import Path

from toolcrib.errors import HttpFailed, ManifestError, NotFoundError
from toolcrib.manifest.openapi.document import Document, read_document
from toolcrib.manifest.openapi.syntax import MAX_DOCUMENT_BYTES

__all__ = ["MAX_FETCHED_BYTES", "fetch_document", "is_url", "open_document"]

MAX_FETCHED_BYTES = 32 * 1024 * 1024
_TIMEOUT_S = 60.0
_ACCEPT = "application/json, application/yaml;q=0.9, */*;q=0.5"


def is_url(source: str) -> bool:
    """Whether a source is to be fetched."""
    return source.lower().startswith(("http://", "https://"))


def open_document(path: str | os.PathLike[str]) -> Document:
    """A document from a file; its references reach files beneath its folder. Never waits for a pipe.

    Raises NotFoundError when there is no such file, ManifestError when it holds no OpenAPI document.
    """
    real = Path(path).resolve()
    try:
        if not real.is_file():
            if real.exists():
                raise ManifestError(f"{path} is not a file")
            raise NotFoundError(f"there is no file {path}")
        with real.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from None
    return read_document(raw, str(real), folder=str(real.parent))


async def fetch_document(url: str) -> Document:
    """A document from a URL; the person who named it named its host. Other hosts are not followed to.

    Raises HttpFailed, HostNotAllowed, TimedOut and ManifestError.
    """
    from toolcrib.egress import Destination, Egress, EgressRequest, HostPolicy
    from toolcrib.spec import Network

    plain = url.partition("#")[0]
    try:
        own = Destination.parse(plain)
    except ValueError as error:
        raise ManifestError(f"{url} cannot be fetched: {error}") from None
    policy = HostPolicy.of(Network("hosts", (own.authority,)), own.host, own.port)
    request = EgressRequest(
        "GET",
        plain,
        (("Accept", _ACCEPT),),
        timeout_s=_TIMEOUT_S,
        max_response_bytes=MAX_FETCHED_BYTES,
    )
    async with Egress() as egress:
        response = await egress.request(request, policy)
    if response.status != 200:
        raise HttpFailed(f"{url} answered {response.status}", details={"status": response.status})
    if response.truncated:
        raise ManifestError(f"{url} is larger than {MAX_FETCHED_BYTES // 2**20} MiB")
    return read_document(response.body, response.url)
