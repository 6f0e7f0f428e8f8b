"""A connection to an MCP server, by the official client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from toolcrib.errors import ToolcribError
from toolcrib.executors.mcp.relay import CapabilitiesPassed, Relays


class Link(Protocol):
    """One connection to a server: a transport of the official client, entered once."""

    @property
    def closed(self) -> asyncio.Event:
        """Set when no further message can come."""

    @property
    def stderr(self) -> str:
        """The end of its process's standard error."""

    @property
    def status(self) -> int:
        """The HTTP status of the last answer that was an error; 0 if there is none."""

    def failure(self) -> str | ToolcribError:
        """Return the reason why the connection failed, or ""."""

    def enforcement(self) -> dict[str, Any]:
        """Return the enforcement report of its process."""

    def explain(self, error: ToolcribError, text: str, arguments: Any) -> ToolcribError:
        """Add to an error of its server the permission that it lacks, if there is one."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


@dataclass
class Connected:
    """A connection that is ready."""

    client: Any
    link: Link
    relays: Relays
    stale: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the list of tools may have changed."""
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a call that found the connection closed."""
    calls: int = 0
    """Calls that run."""

    @property
    def in_session(self) -> bool:
        """True in 2025-11-25 and earlier, where `initialize` has announced the capabilities."""
        return self.client.session.initialize_result is not None


@asynccontextmanager
async def connected(
    link: Link,
    relays: Relays,
    version: str,
    mode: Literal["auto", "legacy"] = "auto",
    announced: Mapping[str, Any] | None = None,
) -> AsyncIterator[Connected]:
    """Connect. `announced` are the capabilities of `initialize`; None for all that can be passed on."""
    import mcp_types as types
    from mcp import Client

    up: Connected | None = None
    changes = (
        types.ToolListChangedNotification,
        types.PromptListChangedNotification,
        types.ResourceListChangedNotification,
    )

    async def on_message(message: Any) -> None:
        inner = message.root if hasattr(message, "root") else message
        # Before the connection is ready nothing has been listed, so nothing can be stale.
        if up is not None and isinstance(inner, changes):
            up.stale.set()
        elif isinstance(inner, types.ElicitCompleteNotification):
            relays.completed(inner.params.elicitation_id)

    client = Client(
        CapabilitiesPassed(link, announced),
        mode=mode,
        cache=None,
        message_handler=on_message,
        **relays.callbacks(),
        client_info=types.Implementation(name="toolcrib", version=version),
    )
    async with client:
        up = Connected(client, link, relays)
        yield up
