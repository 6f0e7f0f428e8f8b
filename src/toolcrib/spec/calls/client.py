"""The client that a call came from, as a tool may use it while the call runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["CallClient"]


class CallClient(Protocol):
    """An MCP client that called a tool: what it supports, and requests and notifications to it."""

    @property
    def protocol(self) -> str:
        """The protocol version of the call, such as `2026-07-28`."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's own `ClientCapabilities`, as it sent them."""

    @property
    def responses(self) -> Mapping[str, Any]:
        """The answers that the call brings to requests of an earlier round, by key; empty in a session."""

    @property
    def state(self) -> str | None:
        """The `state` of the `InputRequired` that an earlier round ended with, unchanged."""

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Send requests to the client and return their results by key.

        A request is `{"method": …, "params": …}`: `elicitation/create`, `sampling/createMessage` or
        `roots/list`. In protocol 2026-07-28 the call ends with `InputRequired`, and the tool starts again
        with the answers: ask first, act afterwards.

        Raises CapabilityMissing if the client does not support a request, ToolFailed if it answers an error.
        """

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification that belongs to the call, such as `notifications/message`; never waits.

        Log messages below the level that the client asked for are not sent.
        """
