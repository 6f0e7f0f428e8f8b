"""The surroundings of an executor: what the tool's project or toolset provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.spec import Call, Catalog, Executor, Invoke, Retry, Tool
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors.connections import Connections
    from toolcrib.executors.workspace.workspace import Workspace


def _single_use() -> Connections:
    from toolcrib.executors.connections import Connections

    return Connections(keep=False)


@record
class Host:
    """The surroundings of one tool. What is heavy is a function that makes it on first use."""

    _: KW_ONLY
    catalog: Catalog
    """The toolset that has the tool."""
    invoke: Invoke
    """The call path to other tools."""
    workspace: Callable[[], Workspace]
    """Return the folders as a confined tool sees them."""
    egress: Callable[[], Egress]
    """Return the client for requests."""
    function: Callable[[Tool, str], Executor]
    """Return the executor of a registered Python function. Raises ToolUnavailable if there is none."""
    admit: Callable[[Tool, Call], None]
    """Refuse a call that leads to calls that its caller may never make."""
    allowed_hosts: tuple[str, ...] | None = None
    """The only hosts that requests may go to; None: those that the tool's permission names."""
    retry: Retry | None = None
    """The attempts that the call path makes for a tool that does not say."""
    connections: Callable[[], Connections] = _single_use
    """Return the connections to databases."""
    token_folder: Callable[[], Path] | None = None
    """Return the user's folder for access tokens; None: one for tools without a project."""
    learn: Callable[[Mapping[str, str]], None] = lambda _: None
    """Receives values that must be masked like secrets, by name."""
    observe_host: Callable[[str, int, bool], None] | None = None
    """Receives host, port and whether it was allowed, for each request."""
