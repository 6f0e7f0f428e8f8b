"""The connection to one MCP client, on any transport that carries lines."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import orjson

from toolcrib.core.context import Context
from toolcrib.errors import InvalidToken
from toolcrib.manifest.kinds import is_served
from toolcrib.serve.mcp.calls import CallLoad, ClientCall, ClientCalls
from toolcrib.serve.mcp.lists import AdvertisedTool, CallerListing, ListChanges, Listings, ListName
from toolcrib.serve.mcp.questions.client import LOG_LEVELS, ModernClient, OpenQuestions, SessionClient
from toolcrib.serve.mcp.questions.elicitation import Mode, mode_of
from toolcrib.serve.mcp.request import (
    LOCAL_USER,
    Channel,
    McpRequest,
    Reply,
    Sender,
    caller_name,
    check_envelope,
    meta_of,
    options_of,
)
from toolcrib.serve.mcp.results import ResultForm, call_result, completions, prompt_result, resource_result
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.serve.mcp.tasks import TASKS, knows_tasks, require_tasks
from toolcrib.serve.mcp.wire import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LATEST_SESSION_VERSION,
    LOG_LEVEL_KEY,
    MODERN_VERSIONS,
    SERVER_KEY,
    SESSION_VERSIONS,
    UNTRUSTED_KEY,
    VERSION_KEY,
    ErrorCode,
    JsonRpcError,
    answer,
    error_answer,
    is_request_id,
    read_batch,
    read_message,
)
from toolcrib.spec import Caller, Catalog
from toolcrib.spec.identifier import new_id
from toolcrib.spec.naming import wire_name

if TYPE_CHECKING:
    from toolcrib.serve.auth import Client

_log = logging.getLogger("toolcrib.serve.mcp")

_BATCH_VERSION = "2025-03-26"
"""The one protocol version with batches; 2025-06-18 removed them."""
_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
_Method = Callable[[McpRequest], None]


class Connection:
    """Serves a catalog to one client. `receive` takes its lines; `send` gets each line for it.

    A request with the envelope of 2026-07-28 in `params._meta` is stateless. One without it belongs to the
    session that `initialize` began.
    """

    def __init__(
        self,
        catalog: Catalog,
        send: Callable[[bytes], None],
        settings: ServerSettings | None = None,
        *,
        congested: Callable[[], bool] = lambda: False,
        listings: Listings | None = None,
        load: CallLoad | None = None,
    ) -> None:
        self._settings = settings = settings or ServerSettings()
        self._listings = listings or Listings(catalog, settings.page_size)
        self._capabilities: Any = None
        """Capabilities of the session's client."""
        self._log_level: Any = "info"
        self.version: str | None = None
        """Protocol version of the session; None before `initialize`."""
        self._client_name = "mcp"
        self._known: _McpCaller | None = None
        """The caller of the last request."""
        self._session = new_id()
        """An approval with scope `session` holds as long as this connection."""
        self._channel = Channel(LOCAL_USER, send, congested)
        """Everything that belongs to no request goes here."""
        self._questions = OpenQuestions()
        self._client: SessionClient | None = None
        """The client of the last call of a session: on one channel it is the same for all."""
        self._calls = ClientCalls(catalog, settings, self._questions, load or CallLoad())
        self._changes = ListChanges(catalog, self._listings.marks, settings.server_info, settings.max_streams)
        self._server_meta = {SERVER_KEY: settings.server_info}
        self._described: dict[str, Any] = {"capabilities": _CAPABILITIES}
        if settings.instructions:
            self._described["instructions"] = settings.instructions
        both: dict[str, _Method] = {
            "tools/call": self._call_tool,
            "tools/list": partial(self._list, name="tools"),
            "prompts/get": self._get_prompt,
            "prompts/list": partial(self._list, name="prompts"),
            "resources/read": self._read_resource,
            "resources/list": partial(self._list, name="resources"),
            "resources/templates/list": partial(self._list, name="resourceTemplates"),
            "completion/complete": self._complete,
        }
        self._session_methods = {
            **both,
            "ping": self._ping,
            "initialize": self._initialize,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self._modern_methods = {
            **both,
            "server/discover": self._discover,
            "subscriptions/listen": self._listen,
        }
        if self._calls.tasks is not None:
            for name in ("get", "update", "cancel"):
                self._modern_methods[f"tasks/{name}"] = partial(self._task, method=name)

    @property
    def running(self) -> int:
        """The number of calls that have not ended."""
        return len(self._calls)

    def receive(self, line: bytes, sender: Sender = LOCAL_USER) -> None:
        """Take one line from the client. Never raises and never waits."""
        channel = self._channel
        if channel.sender is not sender:
            channel.sender = sender
        self.take(line, channel, self._reply)

    def take(self, data: bytes, channel: Channel, reply: Reply) -> None:
        """Take one message or batch. `reply` gets the answer, now or later. Never raises and never waits."""
        try:
            if data.lstrip()[:1] == b"[":
                self._receive_batch(data, channel, reply)
            else:
                self.handle(read_message(data), channel, reply, len(data))
        except JsonRpcError as error:
            reply(error_answer(error.request_id, error), error.code)
        except Exception:
            reply(error_answer(None, _logged()), ErrorCode.INTERNAL_ERROR)

    def receive_oversize(self, limit: int) -> None:
        """Refuse a line of more than `limit` bytes, which was discarded."""
        error = JsonRpcError(ErrorCode.INVALID_REQUEST, f"the message is longer than {limit:,} bytes")
        self._channel.send(error_answer(None, error))

    def abandon(self, channel: Channel) -> None:
        """Cancel the request of a channel whose client is gone."""
        self._changes.cancel(channel)
        self._calls.cancel(channel)

    async def drain(self, grace: float, reason: str = "the server is shutting down") -> None:
        """Wait `grace` seconds for the calls to end, then cancel the rest and answer them with `reason`."""
        self._changes.close()
        await self._calls.drain(grace, reason)
        self._questions.end()

    # --- messages

    def _reply(self, data: bytes | None, _error: int | None = None, /) -> None:
        if data is not None:
            self._channel.send(data)

    def _receive_batch(self, line: bytes, channel: Channel, reply: Reply) -> None:
        messages = read_batch(line)
        if self.version != _BATCH_VERSION:
            raise JsonRpcError(ErrorCode.INVALID_REQUEST, "only protocol 2025-03-26 has batches")
        collect = _collecting(reply, len(messages))
        for message in messages:
            # Each message counts with its share, so the limit on the bytes that wait holds for batches too.
            self.handle(message, channel, collect, len(line) // len(messages))

    def handle(self, message: Any, channel: Channel, reply: Reply, size: int) -> None:
        """Handle one parsed message of this many bytes. `reply` is called exactly once, now or later."""
        request_id = None
        try:
            if not isinstance(message, dict):
                raise JsonRpcError(ErrorCode.INVALID_REQUEST, "a message must be a JSON object")
            given, method = message.get("id"), message.get("method")
            request_id = given if is_request_id(given) else None
            if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
                if method is not None or not ("result" in message or "error" in message):
                    text = 'a message needs "jsonrpc": "2.0" and a "method"'
                    raise JsonRpcError(ErrorCode.INVALID_REQUEST, text)
                # A result or an error without a method is the client's answer to a request of ours.
                self._questions.receive(message)
                return reply(None)
            params = message.get("params")
            params = {} if params is None else params
            if "id" not in message:
                self._take_notification(method, params, channel)
                return reply(None)
            if request_id is None:
                raise JsonRpcError(ErrorCode.INVALID_REQUEST, "an id must be a string or an integer")
            if not isinstance(params, dict):
                raise JsonRpcError(ErrorCode.INVALID_PARAMS, "params must be an object")
            meta = meta_of(params)
            # The channel of one request belongs to no session. `server/discover` exists only in 2026-07-28,
            # and `initialize` only before it, whatever the envelope says.
            modern = (
                not channel.shared
                or method == "server/discover"
                or (VERSION_KEY in meta and method != "initialize")
            )
            # Ids of different clients may be equal where each request has a channel of its own.
            key = request_id if channel.shared else channel
            # A second request with this id would take the place of the first, which then gets no answer.
            if key in self._calls or key in self._changes:
                text = f"the id {request_id!r} belongs to a request still running"
                raise JsonRpcError(ErrorCode.INVALID_REQUEST, text)
            self._dispatch(method, McpRequest(params, meta, request_id, modern, reply, channel, size, key))
        except JsonRpcError as error:
            reply(error_answer(request_id, error), error.code)
        except Exception:
            reply(error_answer(request_id, _logged()), ErrorCode.INTERNAL_ERROR)

    def _take_notification(self, method: str, params: Any, channel: Channel) -> None:
        """Take a notification. An unknown one is ignored."""
        if method == "notifications/initialized" and self.version is not None:
            self._changes.begin_session(self._channel)
        elif method == "notifications/cancelled" and isinstance(params, dict):
            request_id = params.get("requestId")
            # Stateless requests over HTTP share one connection, and their ids may be equal. Such a
            # client cancels by closing the stream of its request.
            if is_request_id(request_id) and channel.shared:
                self._changes.cancel(request_id)
                self._calls.cancel(request_id)

    def _dispatch(self, method: str, request: McpRequest) -> None:
        if request.modern and method != "tools/call":
            self._caller_of(request)  # Checks the envelope, as a call does by itself.
        run = (self._modern_methods if request.modern else self._session_methods).get(method)
        if run is None:
            text, data = f"there is no method {method[:100]}", {"method": method[:100]}
            raise JsonRpcError(ErrorCode.METHOD_NOT_FOUND, text, data)
        if not request.modern and self.version is None and method not in ("initialize", "ping"):
            text = "the session begins with initialize; this request came before it"
            raise JsonRpcError(ErrorCode.INVALID_REQUEST, text)
        run(request)

    # --- methods

    def _ping(self, request: McpRequest) -> None:
        request.reply(answer(request.id, {}))

    def _set_level(self, request: McpRequest) -> None:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
        self._log_level = level
        request.reply(answer(request.id, {}))

    def _initialize(self, request: McpRequest) -> None:
        params = request.params
        if self.version is not None:
            raise JsonRpcError(ErrorCode.INVALID_REQUEST, "the session is initialized already")
        wanted = params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, "initialize needs protocolVersion, a string")
        # MCP, Lifecycle: the server answers with a version that it knows, and the client decides.
        self.version = wanted if wanted in SESSION_VERSIONS else LATEST_SESSION_VERSION
        self._client_name = caller_name(params.get("clientInfo"))
        self._capabilities, self._known = params.get("capabilities"), None
        result = {"protocolVersion": self.version, "serverInfo": self._settings.server_info}
        request.reply(answer(request.id, result | self._described))

    def _discover(self, request: McpRequest) -> None:
        result = {
            "supportedVersions": list(MODERN_VERSIONS),
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": self._server_meta,
        }
        if self._calls.tasks is not None:
            result["capabilities"] = {**_CAPABILITIES, "extensions": {TASKS: {}}}
        request.reply(answer(request.id, self._described | result))

    def _listen(self, request: McpRequest) -> None:
        wanted = request.params.get("notifications")
        if isinstance(wanted, dict) and "taskIds" in wanted:
            require_tasks(request.meta)
        self._changes.listen(request)  # The answer comes when the stream ends.

    def _subscribe(self, request: McpRequest) -> None:
        uri = _text_of(request.params, "uri")
        # Raises if there is no such resource, or the caller may not see it.
        self._resource(request, uri)
        self._changes.subscribe(self._channel, uri)
        request.reply(answer(request.id, {}))

    def _unsubscribe(self, request: McpRequest) -> None:
        self._changes.unsubscribe(self._channel, _text_of(request.params, "uri"))
        request.reply(answer(request.id, {}))

    def _list(self, request: McpRequest, name: ListName) -> None:
        cursor = request.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, "cursor must be a string")
        listing = self._verified_listing(request)
        page = listing.page(cursor, name)
        # The page is JSON already, so the answer is put together from bytes.
        head, end = b'{"jsonrpc":"2.0","id":' + orjson.dumps(request.id) + b',"result":{', b"}}"
        meta: dict[str, Any] = dict(self._server_meta) if request.modern else {}
        if name == "tools" and listing.untrusted:
            meta[UNTRUSTED_KEY] = listing.untrusted
        if request.modern:
            head += b'"resultType":"complete","ttlMs":0,"cacheScope":"private",'
        if meta:
            end = b',"_meta":' + orjson.dumps(meta) + end
        request.reply(b"".join((head, page, end)))

    def _call_tool(self, request: McpRequest) -> None:
        caller, name = self._caller_of(request), _text_of(request.params, "name")
        try:
            listed = caller.listing.get(name)
        except InvalidToken:
            listed = None  # The call itself is refused, and recorded.
        tool, arguments = name if listed is None else listed.tool.name, _arguments_of(request.params)
        if listed is not None:
            arguments = listed.own_arguments(arguments)
        if listed is not None and request.channel.check is not None:
            request.channel.check(listed, arguments)
        if listed is not None and listed.tool.mcp.task and self._calls.tasks is not None:
            require_tasks(request.meta)
        self._call(request, caller, tool, listed, arguments, call_result)

    def _get_prompt(self, request: McpRequest) -> None:
        name = _text_of(request.params, "name")
        listed = self._verified_listing(request).prompt(name)
        if listed is None:
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"there is no prompt named {name[:200]!r}")
        caller = self._caller_of(request)
        self._call(request, caller, listed.tool.name, listed, _arguments_of(request.params), prompt_result)

    def _read_resource(self, request: McpRequest) -> None:
        uri = _text_of(request.params, "uri")
        listed, arguments = self._resource(request, uri)
        form = partial(resource_result, uri, request.modern)
        self._call(request, self._caller_of(request), listed.tool.name, listed, arguments, form)

    def _complete(self, request: McpRequest) -> None:
        ref, argument = _object_of(request.params, "ref"), _object_of(request.params, "argument")
        listing = self._verified_listing(request)
        if ref.get("type") == "ref/resource":
            listed = listing.template(_text_of(ref, "uri"))
        else:
            listed = listing.prompt(_text_of(ref, "name"))
        name, typed = _text_of(argument, "name"), _text_of(argument, "value")
        tool, complete = None if listed is None else listed.tool, self._settings.complete
        # A completion is computed by the mounted server, so none is asked for before a person has
        # trusted the tool.
        identity = request.channel.sender.identity
        may = identity is None or identity.may("invoke")
        if complete and tool is not None and is_served(tool) and may and not tool.approval.required:
            given = _object_of(_object_of(request.params, "context"), "arguments")
            self._calls.answer_later(request, lambda: complete(tool, name, typed, given))
            return
        result = completions(listed, name, typed)
        if request.modern:
            result |= {"resultType": "complete", "_meta": self._server_meta}
        request.reply(answer(request.id, result))

    def _verified_listing(self, request: McpRequest) -> CallerListing:
        """Return what the caller may see. Raises JsonRpcError once its token is no longer valid."""
        try:
            if (verify := request.channel.sender.verify) is not None:
                verify()
            return self._caller_of(request).listing
        except InvalidToken as error:
            data = {"error": error.as_dict()}
            raise JsonRpcError(ErrorCode.INVALID_REQUEST, error.message, data) from None

    def _resource(self, request: McpRequest, uri: str) -> tuple[AdvertisedTool, dict[str, Any]]:
        found = self._verified_listing(request).resource(uri)
        if found is None:
            code = ErrorCode.INVALID_PARAMS if request.modern else ErrorCode.NO_RESOURCE
            raise JsonRpcError(code, "Resource not found", {"uri": uri})
        return found

    def _call(
        self,
        request: McpRequest,
        caller: _McpCaller,
        tool: str,
        listed: AdvertisedTool | None,
        arguments: dict[str, Any],
        form: ResultForm,
    ) -> None:
        params = request.params
        about: Callable[[], bytes] = bytes
        state: dict[str, Any] = {}
        if request.modern:
            # Not computed yet: most calls neither bring nor leave a state.
            about = partial(_about, caller.name, tool, arguments)
            if isinstance(sealed := params.get("requestState"), str):
                state = self._calls.seal.open(sealed, about())
        wait, key, dry_run = options_of(request.meta)
        tasks = form is call_result and caller.knows_tasks and self._calls.tasks is not None
        # Keywords would more than double the time that this takes.
        call = Context(tool, arguments, caller.name)
        call.session_id, call.identity = self._session, caller.identity
        # With tasks, a call that waits for a person is stored as one, so the request itself never blocks.
        call.wait = "pending" if tasks else wait
        call.idempotency_key, call.dry_run = key, dry_run
        call.client = self._client_of(request, state)
        tasks = tasks and listed is not None and not dry_run
        if tasks:
            # The id of a task is that of its call, so it must be known before the call begins.
            call.call_id = new_id()
        self._calls.start(ClientCall(request, call, listed, caller.asks_by, form, about, state, tasks))

    def _task(self, request: McpRequest, method: str) -> None:
        """Answer `tasks/get`, `tasks/update` or `tasks/cancel`."""
        require_tasks(request.meta)
        listing, tasks = self._verified_listing(request), self._calls.tasks
        assert tasks is not None
        task, caller = _text_of(request.params, "taskId"), self._caller_of(request).name
        work: Callable[[], Awaitable[dict[str, Any]]] = partial(tasks.cancel, task, caller)
        if method == "get":
            work = partial(tasks.show, task, caller, request.meta, lambda name: listing.get(wire_name(name)))
        elif method == "update":
            work = partial(tasks.update, task, caller, request.meta, request.params.get("inputResponses"))
        self._calls.answer_later(request, work)

    def _caller_of(self, request: McpRequest) -> _McpCaller:
        """Return the caller of a request. Raises JsonRpcError for a wrong envelope of 2026-07-28."""
        meta, sender, known = request.meta, request.channel.sender, self._known
        wanted = request.channel.wanted
        described: tuple[Any, ...] = (wanted,)
        if request.modern:
            described = wanted, meta.get(VERSION_KEY), meta.get(CLIENT_KEY), meta.get(CAPABILITIES_KEY)
        # Clients repeat one envelope, so the last one is not read again.
        if known is None or sender is not known.sender or described != known.described:
            client, capabilities = self._client_name, self._capabilities
            if request.modern:
                check_envelope(meta)
                client, capabilities = caller_name(meta.get(CLIENT_KEY)), meta[CAPABILITIES_KEY]
            name = client if sender.caller is None else sender.caller
            identity = None if sender.identity is None else _with_client(sender.identity, client)
            known = self._known = _McpCaller(
                sender,
                described,
                name,
                identity,
                mode_of(capabilities),
                request.modern and knows_tasks(meta),
                self._listings.of(name, client, identity, wanted),
            )
        return known

    def _client_of(self, request: McpRequest, state: dict[str, Any]) -> ModernClient | SessionClient:
        """Return the client of a call, as the tool may use it."""
        mask = self._settings.mask
        if request.modern:
            meta = request.meta
            version, level = meta[VERSION_KEY], meta.get(LOG_LEVEL_KEY)
            responses = request.params.get("inputResponses")
            offered = meta[CAPABILITIES_KEY]
            return ModernClient(request.channel, version, offered, level, mask, responses, state)
        client = self._client
        if client is None or client.channel is not request.channel or client.log_level != self._log_level:
            version = self.version or LATEST_SESSION_VERSION
            level = self._log_level
            offered = self._capabilities
            client = SessionClient(request.channel, version, offered, level, mask, self._questions)
            self._client = client
        return client


@dataclass(eq=False, slots=True)
class _McpCaller:
    """The sender of a request, with what its client says of itself."""

    sender: Sender | Client
    described: tuple[Any, ...]
    """The host that its list is made for, and the parts of the envelope that it was read from."""
    name: str
    """`Call.caller`."""
    identity: Caller | None
    asks_by: Mode | None
    """The mode in which the client can ask its user."""
    knows_tasks: bool
    listing: CallerListing
    """The tools, prompts and resources that it may see."""


@lru_cache(maxsize=256)
def _with_client(identity: Caller, client: str) -> Caller:
    return replace(identity, client=client)


def _text_of(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"the request needs {key}, a string")
    return value


def _object_of(params: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = params.get(key)
    return value if isinstance(value, dict) else {}


def _arguments_of(params: Mapping[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise JsonRpcError(ErrorCode.INVALID_PARAMS, "arguments must be an object")
    return arguments or {}


def _about(caller: str, tool: str, arguments: dict[str, Any]) -> bytes:
    """Describe a call for the seal of its state."""
    return b"\0".join((caller.encode(), tool.encode(), orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)))


def _logged() -> JsonRpcError:
    """Log the current exception, which is a fault of ours, and return the error for the client."""
    _log.exception("a message could not be handled")
    return JsonRpcError(ErrorCode.INTERNAL_ERROR, "the message could not be handled")


def _collecting(reply: Reply, size: int) -> Reply:
    """Return a function that collects the answers of a batch, and sends them as one array with the last."""
    answers: list[bytes] = []

    def collect(data: bytes | None, _error: int | None = None, /) -> None:
        nonlocal size
        size -= 1
        if data is not None:
            answers.append(data)
        # JSON-RPC 2.0, Batch: notifications alone get no answer, not an empty array.
        if not size:
            reply(b"[" + b",".join(answers) + b"]" if answers else None)

    return collect
