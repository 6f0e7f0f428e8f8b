"""Notices what changes in a project, whatever process changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2s
from typing import Any, Literal

from toolcrib.errors import StateUnavailable
from toolcrib.project import Project
from toolcrib.serve.rest.running import ServerCalls
from toolcrib.spec import Scope

Topic = Literal["catalogue", "approvals", "runs", "calls", "audit"]
Marks = Mapping[Topic, str]
SCOPES: Mapping[Topic, Scope] = {
    "catalogue": "read",
    "approvals": "approve",
    "runs": "read",
    "calls": "read",
    "audit": "admin",
}
"""The topics, with the right that a token needs to follow them."""
_INTERVAL_S = 0.25


class Changes:
    """Notices changes of one project, while somebody waits for one. One look is for all who wait."""

    def __init__(self, project: Project, calls: ServerCalls) -> None:
        self._project, self._calls = project, calls
        self._next: asyncio.Future[Marks] | None = None

    async def after(self, seen: Marks) -> Marks:
        """Return the marks once they differ from these."""
        marks = seen
        while marks == seen:
            if self._next is None:
                self._next = asyncio.ensure_future(self._look())
            # Shielded: others wait for the same look.
            marks = {**seen, **await asyncio.shield(self._next)}
        return marks

    async def _look(self) -> Marks:
        await asyncio.sleep(_INTERVAL_S)
        self._next = None  # Who comes from now on waits for another look: this one may be too early.
        with suppress(StateUnavailable, OSError):  # The next look tells.
            return await self.marks()
        return {}

    async def marks(self) -> Marks:
        """Return a short text for each topic, which differs once something of it has changed."""
        return await asyncio.to_thread(self._marks, self._calls.mark())

    def _marks(self, here: tuple[object, ...]) -> Marks:
        project = self._project
        found: dict[Topic, Any] = {"catalogue": project.revision, "calls": here}
        with suppress(FileNotFoundError):
            state = project.place.audit.stat()
            found["audit"] = state.st_ino, state.st_size
        if project.has_state:
            found["approvals"] = project.approval_service.approvals.mark()
            found["runs"] = project.runs.store.events.last
            found["calls"] = here, project.calls.stored.mark()
        return {topic: _digest(found.get(topic)) for topic in SCOPES}


def _digest(value: object) -> str:
    return blake2s(repr(value).encode(), digest_size=5).hexdigest()
