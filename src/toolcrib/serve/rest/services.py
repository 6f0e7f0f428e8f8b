"""The services that handlers of the REST API use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolcrib.bundles import Store
from toolcrib.project import Project
from toolcrib.serve.auth import Access
from toolcrib.serve.http import HttpRequest
from toolcrib.serve.rest.running import ServerCalls
from toolcrib.spec.naming import stored_name


@dataclass(slots=True)
class Services:
    """The parts of one server."""

    project: Project
    calls: ServerCalls
    access: Access
    closing: asyncio.Event
    """Set when the server stops: requests that last long must end then."""

    def name(self, bundle_id: str, slug: str, version: str) -> str:
        """Return the name by which a tool of a bundle is called, also if there is none."""
        return stored_name(self.bundle_name(bundle_id), slug, version)

    def bundle_name(self, bundle_id: str, slug: str | None = None) -> str:
        """Return the name of a bundle in the names of its tools; with `slug`, of one that may be new."""
        stored = self.project.bundles.stored
        # Another process may have made the bundle, or changed its name, a moment ago.
        stored.catch_up()
        return stored.bundle_name(bundle_id, slug)

    @property
    def store(self) -> Store:
        """The bundles of this user."""
        return self.project.bundles.store

    def store_for(self, request: RestRequest) -> Store:
        """The bundles of this user, to be changed by the client of a request."""
        return self.store.acting(request.client.caller)


RestRequest = HttpRequest[Services]
"""A request to the REST API."""
