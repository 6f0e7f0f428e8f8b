"""The services that handlers of the REST API use, and the tools that the token of a request covers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from toolcrib.bundles import Store
from toolcrib.errors import DeniedError
from toolcrib.project import Project
from toolcrib.serve.auth import Access
from toolcrib.serve.http import HttpRequest
from toolcrib.serve.rest.changes import Changes
from toolcrib.serve.rest.running import ServerCalls
from toolcrib.state import Decision, token_refused


@dataclass(slots=True)
class Services:
    """The parts of one server."""

    project: Project
    calls: ServerCalls
    access: Access
    changes: Changes
    closing: asyncio.Event
    """Set when the server stops: requests that last long must end then."""

    def name(self, bundle_id: str, slug: str, version: str) -> str:
        """Return the name by which a tool of a bundle is called, also if there is none."""
        return self.project.bundles.stored.name_of(bundle_id, slug, version)

    @property
    def store(self) -> Store:
        """The bundles of this user."""
        return self.project.bundles.store

    def store_for(self, request: RestRequest) -> Store:
        """The bundles of this user, to be changed by the client of a request."""
        return self.store.acting(request.client.caller)


RestRequest = HttpRequest[Services]
"""A request to the REST API."""


@contextmanager
def noting_makers(request: RestRequest, made: Mapping[str, bytes]) -> Iterator[None]:
    """Record that the token of a request makes these tools, by name with their text, in this block.

    Then they count as made by an agent: a person has to see them before they run.
    """
    ledger, caller = request.services.project.trust.ledger, request.client.caller
    named = made.items() if request.client.identity is not None else ()
    # Noted first: a crash in between leaves a note without a tool, never a tool that counts as a person's.
    entries = [ledger.note_maker(name, caller, sha256(text).hexdigest()) for name, text in named]
    try:
        yield
    except BaseException:
        for entry in entries:
            ledger.drop_maker(entry)
        raise


def covers_all(request: RestRequest) -> bool:
    """Return True if the client may see every tool."""
    identity = request.client.identity
    return identity is None or identity.tools is None


def covers(request: RestRequest, tool: str) -> bool:
    """Return True if the client may see the tool of this name."""
    identity = request.client.identity
    return identity is None or identity.covers(tool)


def shown(request: RestRequest, text: str | None) -> str | None:
    """Return a text as the client may see it: without folders of this machine."""
    found: str | None = request.services.project.folders.shown(text, request.client.identity)
    return found


def location(request: RestRequest, path: str) -> dict[str, str]:
    """Return the header that names the address of what a request made."""
    # `root_path`: the application may be mounted below a prefix.
    return {"location": f"{request.http.scope.get('root_path', '')}{path}"}


def require_all(request: RestRequest) -> None:
    """Raise DeniedError for a token that covers some tools only."""
    if not covers_all(request):
        raise DeniedError("this needs a token that covers every tool", hint="Create one without --tool.")


def require_person(request: RestRequest, what: Decision, command: str) -> None:
    """Raise DeniedError unless a person asks, with a session that is no token's."""
    if request.client.identity is not None:
        raise token_refused(what, command)
