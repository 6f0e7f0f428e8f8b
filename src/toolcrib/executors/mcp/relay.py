"""Requests and notifications of a mounted server, passed on to the client whose call they belong to.

In protocol 2026-07-28 a request names its caller's capabilities, and a server's questions are its result. In
a session they come while a call runs, without its name; they are passed on while all calls that run belong to
one session of a client, or only one call runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolcrib.errors import CapabilityMissing, InputRequired, ToolcribError, ToolUnavailable
from toolcrib.executors.mcp.definitions import LISTS, as_json, repair_list
from toolcrib.spec import CallContext

if TYPE_CHECKING:
    from mcp_types import ErrorData

    from toolcrib.executors.mcp.process.stdio import StdioLink
    from toolcrib.executors.mcp.remote import HttpLink

# The official client builds each request itself; the context leads from the call to `_Outgoing`.
_CAPABILITIES: ContextVar[Mapping[str, Any]] = ContextVar("capabilities", default=MappingProxyType({}))
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
_KNOWN = ("elicitation", "sampling", "roots")
_MOST_ROUNDS = 20
_MOST_OPEN = 64
"""Questions of a server that have no answer yet; further ones are refused."""
_MOST_ELICITED = 1_000
_MOST_UNANSWERED = 64 << 20
"""Bytes of a server's requests whose answers it has not taken."""
_REQUEST = 8_192
"""Bytes that a request takes besides its text."""
_Send = Callable[..., Awaitable[Any]]


class CallRelay:
    """One call of a mounted server, and the client that made it."""

    def __init__(self, ctx: CallContext) -> None:
        self._client = client = ctx.client
        given = {} if client is None else client.capabilities
        self.capabilities = {name: given[name] for name in _KNOWN if isinstance(given.get(name), Mapping)}
        """The capabilities of its client that can be passed on."""
        self.session = None if client is None else client.session
        self._asked = 0
        self._over = asyncio.Event()
        self._suspended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def meta(self) -> dict[str, Any] | None:
        """The metadata of its request: the level of log messages that its client wants."""
        level = getattr(self._client, "log_level", None)
        return None if level is None else {_LOG_LEVEL_KEY: level}

    async def run(self, send: _Send) -> Any:
        """Send the request, and again with the client's answers for as long as the server asks for input.

        Raises InputRequired where the client brings its answers with its next request.
        """
        _CAPABILITIES.set(self.capabilities)
        client = self._client
        state = None if client is None else client.state
        responses: Mapping[str, Any] | None = None if client is None else client.responses or None
        # A server that never stops asking must not hold a call forever.
        for _ in range(_MOST_ROUNDS):
            result = await self._unless_suspended(send(responses, state))
            if getattr(result, "result_type", "complete") != "input_required":
                return result
            requests = {key: as_json(one) for key, one in (result.input_requests or {}).items()}
            state = result.request_state
            responses = await self._answers(requests, state)
        raise ToolUnavailable(f"the server asked for input {_MOST_ROUNDS} times")

    async def _answers(self, requests: Mapping[str, Any], state: str | None) -> Mapping[str, Any]:
        if self._client is None:
            raise ToolUnavailable("the server asks for input, and there is no client to ask")
        answered = self._client.responses
        if any(key not in answered for key in requests) or not requests:
            try:
                return await self._client.ask(requests) if requests else {}
            except InputRequired as rest:
                # The server's state goes out with the questions, and comes back with their answers.
                rest.details["state"] = state
                raise
        # The answers of this round were sent already, so these are new questions under the same names.
        raise InputRequired(details={"requests": dict(requests), "state": state})

    async def _unless_suspended(self, work: Awaitable[Any]) -> Any:
        """Wait for the server's answer, or until a question ends the call."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task, self._suspended], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self._suspended.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self._over.set()

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """Ask the client during the call, in a session. Raises ToolcribError if it cannot be asked."""
        self._asked += 1
        key = f"request-{self._asked}"
        if self._client is None:
            raise ToolUnavailable("there is no client to ask")
        try:
            return (await self._client.ask({key: request}))[key]
        except (InputRequired, CapabilityMissing) as rest:
            # In 2026-07-28 both end the call; in a session the server may continue without the client.
            if self.session is None:
                if not self._suspended.done():
                    self._suspended.set_exception(rest)
                # The server gets the cancellation first: an answer would let the call continue meanwhile.
                await self._over.wait()
            raise

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on."""
        if self._client is not None:
            self._client.notify(method, params)


@asynccontextmanager
async def passing_capabilities(
    link: StdioLink | HttpLink, announced: Mapping[str, Any] | None
) -> AsyncIterator[Any]:
    """Open a transport whose requests of 2026-07-28 name the capabilities of the client they are made for.

    `initialize` names `announced`; None for all.
    """
    async with link as (stream, outgoing):
        incoming = _Incoming(stream, link)
        yield incoming, _Outgoing(outgoing, announced, incoming)


class _Incoming:
    """The incoming messages of a transport. They end if the server asks on and on and takes no answers.

    The official client keeps each request of the server until its answer is taken.
    """

    def __init__(self, stream: Any, link: StdioLink | HttpLink) -> None:
        self._stream, self._link = stream, link
        self._unanswered: dict[Any, int] = {}
        """Id to the bytes of the requests."""
        self._held = 0
        """Bytes of all of them."""
        self.lists: dict[Any, tuple[str, str]] = {}
        """Id of a request for a list to its method and protocol version."""

    def answered(self, request_id: Any) -> None:
        """Note that an answer was taken."""
        self._held -= self._unanswered.pop(request_id, 0)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        message = getattr(item, "message", None)  # The item may be an exception.
        request_id = getattr(message, "id", None)
        if message is not None and request_id is not None and hasattr(message, "method"):
            size = len(message.model_dump_json()) + _REQUEST
            self._unanswered[request_id] = self._unanswered.get(request_id, 0) + size
            self._held += size
            if self._held > _MOST_UNANSWERED:
                self._link.fault = "it sends requests without end, and does not take the answers"
                self._link.closed.set()
                raise StopAsyncIteration
        elif request_id in self.lists:
            asked = self.lists.pop(request_id)
            if isinstance(result := getattr(message, "result", None), dict):
                repair_list(*asked, result)
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> Any:
        return await self._stream.__aexit__(*exc_info)


class _Outgoing:
    """The outgoing messages of a transport. Each is sent in the context of the call that it belongs to."""

    def __init__(self, stream: Any, announced: Mapping[str, Any] | None, incoming: _Incoming) -> None:
        self._stream = stream
        self._announced, self._incoming = announced, incoming

    async def send(self, item: Any) -> None:
        params = getattr(item.message, "params", None) or {}
        method = getattr(item.message, "method", "")
        if self._announced is not None and method == "initialize":
            params["capabilities"] = dict(self._announced)
        meta = params.get("_meta")
        if method in LISTS:
            version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
            # The newest session protocol; the official client checks all of them by it.
            self._incoming.lists[item.message.id] = method, version or "2025-11-25"
        # Only requests of 2026-07-28 have this key; a session has announced them by `initialize`.
        if isinstance(meta, dict) and _CAPABILITIES_KEY in meta:
            meta[_CAPABILITIES_KEY] = dict(_CAPABILITIES.get())
        await self._stream.send(item)
        if not method:
            self._incoming.answered(item.message.id)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> Any:
        return await self._stream.__aexit__(*exc_info)


class Relays:
    """The running calls of one connection, and the official client's callbacks that lead to them."""

    def __init__(self) -> None:
        self.asked = False
        """True once the server has asked anything."""
        self._open = 0
        """The number of its questions without an answer."""
        self._running: dict[CallRelay, None] = {}
        self._elicited: dict[str, CallRelay] = {}
        """Elicitation by URL to the call that it belongs to."""

    def callbacks(self) -> dict[str, Any]:
        """Return the callbacks as arguments of the official client."""
        import mcp_types as types

        def asking(method: str, kind: Any) -> Callable[..., Awaitable[Any]]:
            async def ask(_: Any, params: Any = None) -> Any:
                return await self._ask(method, params, kind)

            return ask

        return {
            "elicitation_callback": asking("elicitation/create", types.ElicitResult),
            "sampling_callback": asking("sampling/createMessage", types.CreateMessageResult),
            "list_roots_callback": asking("roots/list", types.ListRootsResult),
            "logging_callback": self._log,
        }

    async def run(self, relay: CallRelay, send: _Send) -> Any:
        """Make one call."""
        from mcp import MCPError

        with self.while_running(relay):
            try:
                return await relay.run(send)
            except MCPError as error:
                # Error -32042 sends the user to addresses; the server reports later that one was visited.
                asked = error.data.get("elicitations") if isinstance(error.data, dict) else None
                for one in asked if isinstance(asked, list) else ():
                    self._expect(one, relay)
                raise

    @contextmanager
    def while_running(self, relay: CallRelay) -> Iterator[None]:
        """Pass on to this call what the server asks meanwhile."""
        self._running[relay] = None
        try:
            yield
        finally:
            del self._running[relay]

    def _asked_call(self) -> CallRelay | None:
        """Return a call of the client that the server asks; None if that is not clear."""
        calls = list(self._running)
        # In a session a request does not name its call. Passed to the wrong client it would show one
        # caller's data to another.
        sessions = {id(call.session or call) for call in calls}
        return calls[-1] if len(sessions) == 1 else None

    async def _ask(self, method: str, params: Any, kind: Any) -> Any | ErrorData:
        from mcp_types import INVALID_REQUEST, ErrorData

        self.asked = True
        if (call := self._asked_call()) is None:
            return ErrorData(code=INVALID_REQUEST, message="no single call is known that this belongs to")
        if self._open >= _MOST_OPEN:
            return ErrorData(code=INVALID_REQUEST, message=f"{_MOST_OPEN} questions have no answer yet")
        request: dict[str, Any] = {"method": method}
        if params is not None:
            request["params"] = shown = as_json(params)
            shown.pop("_meta", None)
            self._expect(shown, call)
        self._open += 1
        try:
            return kind.model_validate(await call.ask(request))
        except (ToolcribError, ValueError) as error:
            return ErrorData(code=INVALID_REQUEST, message=str(error)[:500])
        finally:
            self._open -= 1

    def _expect(self, asked: Any, relay: CallRelay) -> None:
        """Remember the call that an elicitation belongs to: the server says when its user has been there."""
        name = asked.get("elicitationId") if isinstance(asked, Mapping) else None
        if isinstance(name, str):
            # The server chooses how many it begins, and need not end any: the oldest is forgotten first.
            if len(self._elicited) >= _MOST_ELICITED:
                del self._elicited[next(iter(self._elicited))]
            self._elicited[name] = relay

    def completed(self, elicitation: str) -> None:
        """Tell the client that its user has done what an elicitation by URL asked for."""
        if (relay := self._elicited.pop(elicitation, None)) is not None:
            relay.notify("notifications/elicitation/complete", {"elicitationId": elicitation})

    async def _log(self, params: Any) -> None:
        if (call := self._asked_call()) is not None:
            call.notify("notifications/message", as_json(params))
