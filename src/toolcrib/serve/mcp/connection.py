"""One client's connection, whatever carries its lines: messages in, answers out, calls running in between."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from toolcrib.errors import Cancelled, InvalidOutput, ToolcribError, ToolNotFound, UnavailableError
from toolcrib.serve.mcp.changes import Changes
from toolcrib.serve.mcp.elicitation import ASKED, Asker, Questions, answer_in, is_offered, request, waits_for
from toolcrib.serve.mcp.listing import DEFAULT_PAGE_SIZE, Entry, Listing
from toolcrib.serve.mcp.results import call_result
from toolcrib.serve.mcp.wire import (
    BUSY,
    CAPABILITIES_KEY,
    CLIENT_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_SESSION_VERSION,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    SERVER_KEY,
    SESSION_VERSIONS,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Refusal,
    RequestId,
    answer,
    is_request_id,
    read_batch,
    read_message,
    refuse,
    to_json,
)
from toolcrib.spec import Call, Caller, Catalog, Result

__all__ = ["Connection", "Sender", "ServerSettings"]

_log = logging.getLogger(__name__)

_BATCH_VERSION = "2025-03-26"
"""The one protocol version with batches: 2025-06-18 took them out again."""
_MOST_LISTINGS = 8
"""A client that gives itself another name with each request costs no more lists than these."""
_CANCEL_SECONDS = 2.0
"""How long cancelled calls may take to end before the connection is given up."""

Reply = Callable[[bytes | None], None]
"""Takes the answer of one request, or None for a request that gets none."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server says of itself, and how much it takes on at once."""

    name: str = "toolcrib"
    version: str = "0"
    instructions: str | None = None
    page_size: int = DEFAULT_PAGE_SIZE
    asker: Asker | None = None
    """Asks the client's user about calls that need approval, where the project allows that."""
    max_running: int = 64
    max_waiting: int = 4_096
    """Calls that may wait for one of `max_running` to end; more are refused at once."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a message, as its transport knows it. It goes with each call."""

    caller: str | None = None
    """`Call.caller`; None: `mcp:` and the name that the client gives itself."""
    identity: Caller | None = None
    """The caller of a token; None for this machine's own user."""


@dataclass(frozen=True, slots=True)
class _Request:
    """One request, read so far that it can be answered."""

    params: dict[str, Any]
    id: RequestId
    modern: bool
    """True if it came with the envelope of 2026-07-28."""
    reply: Reply
    sender: Sender


@dataclass(slots=True, eq=False)
class _Flight:
    """One `tools/call` that has not been answered."""

    request: _Request
    call: Call
    entry: Entry | None
    may_ask: bool = False
    """Whether the client's user can be asked to approve the call."""
    task: asyncio.Task[None] | None = None
    started: bool = False
    """Its task has come to run: one cancelled before that would end without ever settling its flight."""
    cancelled: bool = False
    """The client has cancelled it, so it gets no answer."""


_THIS_USER = Sender()


class Connection:
    """Serves a catalog to one client. Feed it lines; it gives each line to send to `send`.

    Each request says itself which protocol it speaks: with the envelope of 2026-07-28 in `params._meta` it
    stands alone, without it it belongs to the session that `initialize` began.
    """

    def __init__(
        self,
        catalog: Catalog,
        send: Callable[[bytes], None],
        settings: ServerSettings | None = None,
        *,
        congested: Callable[[], bool] = lambda: False,
    ) -> None:
        self._catalog = catalog
        self._send = send
        self._settings = settings or ServerSettings()
        self._congested = congested
        self._listings: dict[tuple[str, Caller | None], Listing] = {}
        self._questions = Questions(send)
        self._offers_forms = False
        self._version: str | None = None
        self._caller = "mcp"
        self._flights: dict[RequestId, _Flight] = {}
        self._waiting: deque[_Flight] = deque()
        self._running = 0
        self._pumping = False
        self._server_info = {"name": self._settings.name, "version": self._settings.version}
        self._changes = Changes(catalog, send, congested, self._server_info)
        self._modern_end = b',"_meta":' + orjson.dumps({SERVER_KEY: self._server_info}) + b"}"
        self._session_methods: dict[str, _Handler] = {
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
            "ping": self._ping,
            "initialize": self._initialize,
        }
        self._modern_methods: dict[str, _Handler] = {
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
            "server/discover": self._discover,
            "subscriptions/listen": self._listen,
        }

    def receive(self, line: bytes, sender: Sender = _THIS_USER) -> None:
        """Take one line from the client. Never raises and never waits."""
        try:
            if line.lstrip()[:1] == b"[":
                self._receive_batch(line, sender)
            else:
                self._handle(read_message(line), self._reply, sender)
        except Refusal as refusal:
            self._send(refuse(refusal.request_id, refusal))
        except Exception:
            _log.exception("a message could not be handled")
            self._send(refuse(None, Refusal(INTERNAL_ERROR, "the message could not be handled")))

    def receive_oversize(self, limit: int) -> None:
        """A line longer than `limit` bytes came and was thrown away."""
        self._send(refuse(None, Refusal(INVALID_REQUEST, f"the message is longer than {limit:,} bytes")))

    async def drain(self, grace: float) -> None:
        """Let the calls end within `grace` seconds, then cancel the rest and answer them as cancelled."""
        self._changes.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while (tasks := self._tasks()) and (left := deadline - loop.time()) > 0:
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        waiting, self._waiting = self._waiting, deque()
        for flight in waiting:
            self._settle(flight, _shut_down())
        await asyncio.sleep(0)  # every task has started now, so each can be cancelled
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [flight.task for flight in self._flights.values() if flight.task is not None]

    # --- messages

    def _reply(self, data: bytes | None) -> None:
        if data is not None:
            self._send(data)

    def _receive_batch(self, line: bytes, sender: Sender) -> None:
        if self._version != _BATCH_VERSION:
            # Parse errors come first: what is no JSON is no batch either.
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError:
                read_message(line)
            raise Refusal(INVALID_REQUEST, "batches belong to protocol 2025-03-26 only")
        messages = read_batch(line)
        batch = _Batch(self._send, len(messages))
        for message in messages:
            self._handle(message, batch.reply, sender)

    def _handle(self, message: Any, reply: Reply, sender: Sender) -> None:
        """One message, already parsed. `reply` is called exactly once, sooner or later."""
        request_id = None
        try:
            if not isinstance(message, dict):
                raise Refusal(INVALID_REQUEST, "a message must be a JSON object")
            given = message.get("id")
            request_id = given if is_request_id(given) else None
            method = message.get("method")
            if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
                if method is None and ("result" in message or "error" in message):
                    self._questions.receive(message)
                    return reply(None)
                raise Refusal(INVALID_REQUEST, 'a message needs "jsonrpc": "2.0" and a "method"')
            params = message.get("params")
            if params is None:
                params = {}
            if "id" not in message:
                self._notice(method, params)
                return reply(None)
            if request_id is None:
                raise Refusal(INVALID_REQUEST, "an id must be a string or an integer")
            if not isinstance(params, dict):
                raise Refusal(INVALID_PARAMS, "params must be an object")
            if request_id in self._flights or request_id in self._changes:
                raise Refusal(INVALID_REQUEST, f"the id {request_id!r} belongs to a request still running")
            self._dispatch(method, _Request(params, request_id, _is_modern(method, params), reply, sender))
        except Refusal as refusal:
            reply(refuse(request_id, refusal))
        except Exception:
            _log.exception("a request could not be handled")
            reply(refuse(request_id, Refusal(INTERNAL_ERROR, "the request could not be handled")))

    def _notice(self, method: str, params: Any) -> None:
        """A notification: what is not known is passed over."""
        if method == "notifications/initialized" and self._version is not None:
            self._changes.begin_session()
        if method != "notifications/cancelled" or not isinstance(params, dict):
            return
        request_id = params.get("requestId")
        if not is_request_id(request_id):
            return
        self._changes.cancel(request_id)
        flight = self._flights.get(request_id)
        if flight is None:
            return
        flight.cancelled = True
        if flight.task is None:
            self._waiting.remove(flight)
            self._settle(flight, None)
        elif flight.started:
            flight.task.cancel()

    def _dispatch(self, method: str, request: _Request) -> None:
        if request.modern:
            _check_envelope(_meta(request.params))
            handler = self._modern_methods.get(method)
        else:
            handler = self._session_methods.get(method)
            if method == "server/discover":
                raise Refusal(INVALID_PARAMS, f"params._meta must hold {VERSION_KEY} and {CAPABILITIES_KEY}")
        if handler is None:
            raise Refusal(METHOD_NOT_FOUND, f"there is no method {method[:100]}", {"method": method[:100]})
        if not request.modern and self._version is None and method not in ("initialize", "ping"):
            raise Refusal(INVALID_REQUEST, "the session begins with initialize; this request came before it")
        handler(request)

    # --- methods

    def _ping(self, request: _Request) -> None:
        request.reply(answer(request.id, {}))

    def _initialize(self, request: _Request) -> None:
        params = request.params
        if self._version is not None:
            raise Refusal(INVALID_REQUEST, "the session is initialized already")
        wanted = params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise Refusal(INVALID_PARAMS, "initialize needs protocolVersion, a string")
        self._version = wanted if wanted in SESSION_VERSIONS else LATEST_SESSION_VERSION
        self._caller = _caller_of(params.get("clientInfo"))
        self._offers_forms = is_offered(params.get("capabilities"))
        result: dict[str, Any] = {
            "protocolVersion": self._version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": self._server_info,
        }
        if self._settings.instructions:
            result["instructions"] = self._settings.instructions
        request.reply(answer(request.id, result))

    def _discover(self, request: _Request) -> None:
        result: dict[str, Any] = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": {"tools": {"listChanged": True}},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {SERVER_KEY: self._server_info},
        }
        if self._settings.instructions:
            result["instructions"] = self._settings.instructions
        request.reply(answer(request.id, result))

    def _listen(self, request: _Request) -> None:
        self._changes.listen(request.params, request.id)
        request.reply(None)  # the answer comes when the stream ends

    def _list_tools(self, request: _Request) -> None:
        cursor = request.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise Refusal(INVALID_PARAMS, "cursor must be a string")
        page = self._listing(self._caller_of(request), request.sender.identity).page(cursor)
        head = b'{"jsonrpc":"2.0","id":' + orjson.dumps(request.id) + b',"result":{'
        if request.modern:
            cache = b'"resultType":"complete","ttlMs":0,"cacheScope":"private",'
            request.reply(b"".join((head, cache, page, self._modern_end, b"}")))
        else:
            request.reply(b"".join((head, page, b"}}")))

    def _call_tool(self, request: _Request) -> None:
        params, identity = request.params, request.sender.identity
        name = params.get("name")
        if not isinstance(name, str):
            raise Refusal(INVALID_PARAMS, "tools/call needs name, a string")
        arguments = params.get("arguments")
        if arguments is None:
            arguments = {}
        elif not isinstance(arguments, dict):
            raise Refusal(INVALID_PARAMS, "arguments must be an object")
        if len(self._waiting) >= self._settings.max_waiting:
            busy = UnavailableError("too many calls are waiting", hint="Call again later.", retryable=True)
            raise Refusal(BUSY, busy.message, {"error": busy.as_dict()})
        caller = self._caller_of(request)
        entry = self._listing(caller, identity).entry(name)
        call = Call(name if entry is None else entry.tool.name, arguments, caller, identity=identity)
        flight = _Flight(request, call, entry)
        if self._settings.asker is not None:
            offered = is_offered(_meta(params).get(CAPABILITIES_KEY))
            flight.may_ask = offered if request.modern else self._offers_forms
            self._take_answer(self._settings.asker, params, caller)
        token = _meta(params).get("progressToken")
        if is_request_id(token):
            call.on_progress = self._progress_of(flight, token)
        self._flights[request.id] = flight
        self._waiting.append(flight)
        self._pump()

    @staticmethod
    def _take_answer(asker: Asker, params: dict[str, Any], caller: str) -> None:
        """What the client's user said to the question that a call was answered with before."""
        approval, answers = params.get("requestState"), params.get("inputResponses")
        if isinstance(approval, str) and isinstance(answers, dict):
            answer = answer_in(answers.get(ASKED))
            if answer is not None:
                asker.decide(approval, caller, answer)

    def _caller_of(self, request: _Request) -> str:
        """Return `Call.caller` of a request."""
        if request.sender.caller is not None:
            return request.sender.caller
        return _caller_of(_meta(request.params).get(CLIENT_KEY)) if request.modern else self._caller

    def _listing(self, caller: str, identity: Caller | None) -> Listing:
        """Return the list of tools that this caller sees."""
        listing = self._listings.pop((caller, identity), None)
        if listing is None:
            while len(self._listings) >= _MOST_LISTINGS:
                del self._listings[next(iter(self._listings))]
            page_size = self._settings.page_size
            listing = Listing(self._catalog, page_size, caller=caller, identity=identity)
        self._listings[caller, identity] = listing
        return listing

    # --- calls

    def _pump(self) -> None:
        """Start waiting calls while there is room. Not reentrant: a call may end within its own start."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._waiting and self._running < self._settings.max_running:
                flight = self._waiting.popleft()
                self._running += 1
                flight.task = _start(self._run(flight))
        finally:
            self._pumping = False

    async def _run(self, flight: _Flight) -> None:
        result: Result | None = None
        flight.started = True
        try:
            if not flight.cancelled:
                result = await self._catalog.invoke(flight.call)
                if flight.may_ask and not flight.request.modern:
                    result = await self._asked(flight, result)
        except asyncio.CancelledError:
            result = None if flight.cancelled else _shut_down()
        except BaseException as error:
            # The catalog promises not to raise; whatever does, the server and the other calls go on.
            _log.exception("the call path raised")
            result = Result("error", error=ToolcribError(f"the call broke off: {type(error).__name__}"))
        self._running -= 1
        self._settle(flight, result)
        self._pump()

    async def _asked(self, flight: _Flight, result: Result) -> Result:
        """Where the call waits for approval, ask the client's user, and make it again once they agreed."""
        asker, approval = self._settings.asker, waits_for(result)
        question = None if asker is None or approval is None else asker.question(approval)
        if asker is None or approval is None or question is None:
            return result
        answer = await self._questions.ask(question)
        if answer is None:
            return result
        asker.decide(approval, flight.call.caller, answer)
        return await self._catalog.invoke(flight.call)

    def _settle(self, flight: _Flight, result: Result | None) -> None:
        """The call is over: answer it, unless the client has cancelled it."""
        self._flights.pop(flight.request.id, None)
        if flight.cancelled:
            result = None
        flight.request.reply(None if result is None else self._result_line(flight, result))

    def _result_line(self, flight: _Flight, result: Result) -> bytes:
        error = result.error
        if flight.entry is None and isinstance(error, ToolNotFound):
            # MCP: failing to find the tool is an error of the protocol, not of a tool.
            message = f"{error.message} {error.hint}" if error.hint else error.message
            return refuse(flight.request.id, Refusal(INVALID_PARAMS, message, {"error": error.as_dict()}))
        if flight.may_ask and flight.request.modern and (asks := self._input_required(result)) is not None:
            asks["_meta"] = {SERVER_KEY: self._server_info}
            return answer(flight.request.id, asks)
        try:
            return self._encode(flight, call_result(result, flight.entry))
        except Exception as broken:
            misfit = InvalidOutput(f"the tool's output cannot be written as JSON: {str(broken)[:200]}")
            failed = Result("error", error=misfit, duration_ms=result.duration_ms, call_id=result.call_id)
            return self._encode(flight, call_result(failed))

    def _input_required(self, result: Result) -> dict[str, Any] | None:
        """The question to the client's user that stands for a result; None where there is none to ask."""
        asker, approval = self._settings.asker, waits_for(result)
        question = None if asker is None or approval is None else asker.question(approval)
        if question is None:
            return None
        return {
            "resultType": "input_required",
            "inputRequests": {ASKED: request(question)},
            "requestState": approval,
        }

    def _encode(self, flight: _Flight, result: dict[str, Any]) -> bytes:
        if flight.request.modern:
            result["resultType"] = "complete"
            result["_meta"][SERVER_KEY] = self._server_info
        return to_json({"jsonrpc": "2.0", "id": flight.request.id, "result": result})

    def _progress_of(self, flight: _Flight, token: RequestId) -> Callable[[float, float | None, str], None]:
        """Sends progress notifications while the call runs; the protocol wants them to rise."""
        last = -math.inf

        def progress(done: float, total: float | None, message: str) -> None:
            nonlocal last
            live = self._flights.get(flight.request.id) is flight and not flight.cancelled
            if not live or not last < done < math.inf or self._congested():
                return
            last = done
            params: dict[str, Any] = {"progressToken": token, "progress": done}
            if total is not None and math.isfinite(total):
                params["total"] = total
            if message:
                params["message"] = message
            notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            self._send(to_json(notice))

        return progress


_Handler = Callable[[_Request], None]


class _Batch:
    """Gathers the answers of one batch and sends them as one array when the last has come."""

    def __init__(self, send: Callable[[bytes], None], size: int) -> None:
        self._send = send
        self._open = size
        self._answers: list[bytes] = []

    def reply(self, data: bytes | None) -> None:
        self._open -= 1
        if data is not None:
            self._answers.append(data)
        if not self._open and self._answers:
            self._send(b"[" + b",".join(self._answers) + b"]")


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        # A call that never waits ends here, one turn of the event loop sooner.
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


def _is_modern(method: str, params: dict[str, Any]) -> bool:
    return method != "initialize" and VERSION_KEY in _meta(params)


def _check_envelope(meta: dict[str, Any]) -> None:
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise Refusal(INVALID_PARAMS, f"{VERSION_KEY} must be a string")
    if not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise Refusal(INVALID_PARAMS, f"params._meta must hold {CAPABILITIES_KEY}, an object")
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _shut_down() -> Result:
    return Result("error", error=Cancelled("the server is shutting down"))


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _caller_of(client_info: Any) -> str:
    name = client_info.get("name") if isinstance(client_info, dict) else None
    return _caller(name) if isinstance(name, str) else "mcp"


@lru_cache(maxsize=32)
def _caller(name: str) -> str:
    """`mcp:` and the client's name, cut to characters that cannot disturb a log or a rule."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name[:256]).strip("-")[:64]
    return f"mcp:{plain}" if plain else "mcp"
