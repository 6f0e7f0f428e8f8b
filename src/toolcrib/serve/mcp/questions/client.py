"""The client of a call, for tools that ask it: requests in a session, `input_required` in 2026-07-28."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolFailed
from toolcrib.serve.mcp.request import Channel
from toolcrib.serve.mcp.wire import notification, to_json
from toolcrib.spec import CallSession, RoundClient
from toolcrib.spec.calls.client import require_capabilities

if TYPE_CHECKING:
    from toolcrib.core.results import Mask

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG = "notifications/message"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class OpenQuestions(CallSession):
    """A session, and the requests that its client has not answered yet."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._sent = 0

    async def send(self, request: Mapping[str, Any], send: Callable[[bytes], None]) -> dict[str, Any]:
        """Send a request, and return the whole answer. If cancelled, withdraw the request."""
        self._sent += 1
        name = f"toolcrib-{self._sent}"
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[name] = answered
        try:
            send(to_json({"jsonrpc": "2.0", "id": name, **request}))
            return await answered
        except asyncio.CancelledError:
            # Otherwise the user would still see a question whose answer changes nothing.
            params = {"requestId": name, "reason": "the call was cancelled"}
            send(notification("notifications/cancelled", params))
            raise
        finally:
            del self._open[name]

    def receive(self, message: dict[str, Any]) -> None:
        """Take a client's answer. An answer to a question that is not open is ignored."""
        name = message.get("id")
        waiting = self._open.get(name) if isinstance(name, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


class _Client:
    """The part that both protocols share."""

    def __init__(
        self, channel: Channel, protocol: str, capabilities: Any, log_level: Any, mask: Mask
    ) -> None:
        self.protocol, self._mask = protocol, mask
        self.capabilities: Mapping[str, Any] = capabilities if isinstance(capabilities, dict) else _NOTHING
        self.log_level = log_level
        """The lowest level of log messages that the client wants; None for no messages."""
        self.channel = channel

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification that belongs to the call."""
        if method == _LOG and not self._wants(params.get("level")):
            return
        if not self.channel.congested():
            self.channel.send(notification(method, self._mask(dict(params))))

    def _wants(self, level: Any) -> bool:
        wanted = self.log_level
        if wanted not in LOG_LEVELS or level not in LOG_LEVELS:
            return False
        return LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)


class SessionClient(_Client):
    """The client of a session: it gets requests while the call runs."""

    responses = _NOTHING
    state = None

    def __init__(
        self,
        channel: Channel,
        protocol: str,
        capabilities: Any,
        log_level: Any,
        mask: Mask,
        questions: OpenQuestions,
    ) -> None:
        super().__init__(channel, protocol, capabilities, log_level, mask)
        self._questions = questions

    @property
    def session(self) -> CallSession:
        """The session of its connection."""
        return self._questions

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Send requests and return their results by key."""
        require_capabilities(self.capabilities, requests)
        send = self.channel.send
        asked = [self._mask(dict(one)) for one in requests.values()]
        answers = await asyncio.gather(*(self._questions.send(one, send) for one in asked))
        for one in answers:
            if "error" in one:
                error = one["error"]
                reason = error.get("message") if isinstance(error, dict) else error
                raise ToolFailed(f"the client refused: {reason}", details={"error": error})
        return {key: one.get("result") for key, one in zip(requests, answers, strict=True)}


class ModernClient(_Client, RoundClient):
    """The client of a stateless request: it gets requests as the result, and calls again."""

    def __init__(
        self,
        channel: Channel,
        protocol: str,
        capabilities: Any,
        log_level: Any,
        mask: Mask,
        responses: Any,
        state: Mapping[str, Any],
    ) -> None:
        super().__init__(channel, protocol, capabilities, log_level, mask)
        self.state: str | None = state.get("state")
        self._used: dict[str, Any] = dict(state.get("answers", ()))
        self.responses: Mapping[str, Any] = self._used
        if isinstance(responses, dict):
            given = {key: one for key, one in responses.items() if isinstance(one, dict)}
            self.responses = self._used | given

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the answers, or end this round with the requests that have none."""
        found = await super().ask(requests)
        self._used.update(found)
        return found

    def leave(self) -> None:
        """Send nothing more: the call continues as a task."""
        self.channel = Channel(self.channel.sender, lambda _: None, lambda: True)

    def kept(self, details: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state that the next round needs, after an `InputRequired` with these details."""
        state = {"answers": self._used, "state": details.get("state")}
        return {key: value for key, value in state.items() if value}


def input_required(details: Mapping[str, Any], sealed: str | None) -> dict[str, Any]:
    """Return the result of 2026-07-28 for the details of an `InputRequired`."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if details.get("requests"):
        result["inputRequests"] = details["requests"]
    if sealed is not None:
        result["requestState"] = sealed
    return result
