"""What the handlers of the REST API use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolcrib.bundles import Store
from toolcrib.project import Project
from toolcrib.serve.auth import Access
from toolcrib.serve.rest.running import CallTable

__all__ = ["Services"]


@dataclass(slots=True)
class Services:
    """The parts of one server."""

    project: Project
    calls: CallTable
    access: Access
    closing: asyncio.Event
    """Set when the server stops: requests that last long must end then."""

    @property
    def store(self) -> Store:
        """The bundles of this user."""
        return self.project.bundles.store
