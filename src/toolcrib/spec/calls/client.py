"""The client that a call came from, as a tool may use it while the call runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from toolcrib.errors import CapabilityMissing, InputRequired, ToolFailed

_NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class CallSession:
    """A session of a client, and what ends with it."""

    def __init__(self) -> None:
        self._at_end: list[Callable[[], object]] = []

    def on_end(self, action: Callable[[], object]) -> None:
        """Do this when the session ends."""
        self._at_end.append(action)

    def end(self) -> None:
        """End the session."""
        # Taken away first: an action that ends the session again finds nothing left.
        actions, self._at_end = self._at_end, []
        for action in actions:
            action()


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

    @property
    def session(self) -> CallSession | None:
        """The session that the call belongs to; None in 2026-07-28."""

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


class RoundClient:
    """A client that answers in rounds. A question without an answer ends one; the tool starts again."""

    session = None

    def __init__(
        self,
        protocol: str,
        capabilities: Mapping[str, Any],
        responses: Mapping[str, Any] = _NOTHING,
        state: str | None = None,
    ) -> None:
        self.protocol, self.capabilities = protocol, capabilities
        self.responses, self.state = responses, state

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the answers, or end this round with the requests that have none."""
        require_capabilities(self.capabilities, requests)
        missing = {key: dict(one) for key, one in requests.items() if key not in self.responses}
        if missing:
            # All that are missing at once, because each round starts the tool again.
            raise InputRequired(details={"requests": missing, "state": None})
        return {key: self.responses[key] for key in requests}

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send nothing: nobody listens between two rounds."""


def require_capabilities(capabilities: Mapping[str, Any], requests: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise CapabilityMissing if a client does not support one of these requests."""
    for request in requests.values():
        method = request.get("method")
        needed = _NEEDS.get(method) if isinstance(method, str) else None
        if needed is None:
            raise ToolFailed(f"a client cannot be asked for {method!r}")
        mode = _mode(request) if needed == "elicitation" else None
        if not _offers(capabilities.get(needed), mode):
            by_url = mode == "url"
            raise CapabilityMissing(
                f"the tool needs a client with the capability {needed!r}{' by URL' if by_url else ''}",
                details={"required": {needed: {"url": {}} if by_url else {}}},
            )


def _mode(request: Mapping[str, Any]) -> str:
    params = request.get("params")
    return "url" if isinstance(params, Mapping) and params.get("mode") == "url" else "form"


def _offers(capability: Any, mode: str | None) -> bool:
    """Return True if a client has a capability; one that names no mode of elicitation shows forms."""
    if not isinstance(capability, dict):
        return False
    return mode is None or mode in capability or (mode == "form" and not capability)
