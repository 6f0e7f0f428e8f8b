"""Settings of an MCP server."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from toolcrib import __version__
from toolcrib.errors import ToolcribError
from toolcrib.serve.mcp.lists import DEFAULT_PAGE_SIZE
from toolcrib.serve.mcp.questions.elicitation import Approver
from toolcrib.spec import Caller, Tool
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.durable.calls import ProjectCalls

Completer = Callable[[Tool, str, str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Returns MCP's result for a tool, the name of its argument, the text typed, and the other arguments."""


@record
class ServerSettings:
    """The description that a server gives of itself, and its limits."""

    name: str = "toolcrib"
    version: str = "0"
    instructions: str | None = None
    page_size: int = DEFAULT_PAGE_SIZE
    approver: Approver | None = None
    """Lets the client's user approve calls; None if the project does not allow that."""
    max_running: int = 64
    max_waiting: int = 4_096
    """Calls that may wait until one of `max_running` ends; further ones are refused at once."""
    max_bytes: int = 64 << 20
    """Bytes of the messages of a client's calls that run or wait; further calls are refused at once."""
    state_key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    """Seals the state of calls that continue in a later request; servers that share calls share it."""
    max_streams: int = 64
    """Streams of `subscriptions/listen` that a client may have open at once."""
    tasks: Callable[[], ProjectCalls] | None = None
    """Returns the store of calls that are answered as tasks; None if there is none."""
    complete: Completer | None = None
    """Completes arguments of prompts and resource templates of mounted servers; None if there are none."""
    mask: Callable[[Any], Any] = lambda value: value
    """Masks secrets in a JSON value that is sent while a call runs."""
    hide: Callable[[ToolcribError, Caller | None], None] = lambda *_: None
    """Shortens the paths in an error for a caller who may not know them, in place."""
    task_after_s: float = 0.5
    """Seconds after which a call becomes a task, if its client knows tasks."""

    @classmethod
    def of_project(cls, project: Project) -> ServerSettings:
        """Return the settings of a server of an open project."""
        return cls(
            version=__version__,
            approver=project.elicitation,
            tasks=lambda: project.calls,
            state_key=project.vault.key(),
            mask=project.redact,
            hide=project.folders.hide,
            complete=None if project.servers is None else project.servers.complete,
        )

    @property
    def server_info(self) -> dict[str, str]:
        """MCP's `serverInfo`."""
        return {"name": self.name, "version": self.version}
