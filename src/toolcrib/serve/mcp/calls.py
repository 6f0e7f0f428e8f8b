"""Calls of one client: they run side by side, can be cancelled, and each is answered once."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.errors import (
    Cancelled,
    CapabilityMissing,
    InputRequired,
    InvalidOutput,
    ToolcribError,
    ToolNotFound,
)
from toolcrib.serve.mcp.client import ModernClient, OpenQuestions, input_required
from toolcrib.serve.mcp.elicitation import (
    Question,
    UserAnswer,
    question_about,
    read_answer,
    take_answer,
    waiting_for,
)
from toolcrib.serve.mcp.forms import AS_TOOL, ResultForm
from toolcrib.serve.mcp.lists import ListedTool
from toolcrib.serve.mcp.request import McpRequest
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.serve.mcp.state import StateSeal
from toolcrib.serve.mcp.wire import (
    SERVER_KEY,
    ErrorCode,
    JsonRpcError,
    RequestId,
    answer,
    busy,
    error_answer,
    is_request_id,
    notification,
)
from toolcrib.spec import Call, CallEvent, Catalog, Result

__all__ = ["ClientCall", "ClientCalls"]

_log = logging.getLogger("toolcrib.serve.mcp")

_CANCEL_S = 2.0
"""Seconds that cancelled calls may take to end before the connection is given up."""


@dataclass(slots=True, eq=False)
class ClientCall:
    """One `tools/call` request, and the call made for it."""

    request: McpRequest
    call: Call
    listed: ListedTool | None
    can_ask: bool
    """True if the client's user can be asked to approve the call."""
    form: ResultForm = AS_TOOL
    about: Callable[[], bytes] = bytes
    """Describes the call, for the seal of its state."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The state that the call brought, of an earlier round."""
    task: asyncio.Task[None] | None = None


class ClientCalls:
    """The calls of one client that have not been answered."""

    def __init__(
        self,
        catalog: Catalog,
        settings: ServerSettings,
        questions: OpenQuestions,
    ) -> None:
        self._catalog = catalog
        self._settings = settings
        self._questions = questions
        self._seal = StateSeal(settings.state_key)
        self._server_info = settings.server_info
        self._slots = asyncio.Semaphore(settings.max_running)
        self._open: dict[object, ClientCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Also those of cancelled calls, until they have ended."""

    def __contains__(self, key: object) -> bool:
        """Return True if a call with this key has not been answered."""
        return key in self._open

    def __len__(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self._tasks)

    def start(self, one: ClientCall) -> None:
        """Run a call as soon as a slot is free. Raises JsonRpcError if too many calls wait already."""
        if len(self._tasks) >= self._settings.max_running + self._settings.max_waiting:
            raise busy("too many calls are waiting", "Call again later.")
        if self._settings.approver is not None:
            answers = one.request.params.get("inputResponses")
            take_answer(self._settings.approver, one.state.get("approval"), answers, one.call.caller)
        token = one.request.meta.get("progressToken")
        if is_request_id(token):
            one.call.on_event = self._progress(one, token)
        self._open[one.request.key] = one
        one.task = _start(self._run(one))
        if not one.task.done():
            self._tasks.add(one.task)
            one.task.add_done_callback(self._tasks.discard)

    def open_state(self, text: str, about: bytes) -> dict[str, Any]:
        """Return the state that a call brings. Raises JsonRpcError if it was changed."""
        return self._seal.open(text, about)

    def cancel(self, key: object) -> None:
        """Cancel a call at the client's wish. It gets no answer."""
        one = self._open.pop(key, None)
        if one is not None and one.task is not None:
            one.task.cancel()
            one.request.reply(None)

    async def drain(self, grace: float) -> None:
        """Wait `grace` seconds for the calls to end, then cancel the rest and answer them as cancelled."""
        if self._tasks:
            _, rest = await asyncio.wait(self._tasks, timeout=grace)
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest, timeout=_CANCEL_S)

    async def _run(self, one: ClientCall) -> None:
        try:
            async with self._slots:
                result = await self._invoke(one)
        except asyncio.CancelledError:
            result = Result("error", error=Cancelled("the server is shutting down"))
        except BaseException as error:
            # The catalog promises not to raise. If it does, the server and the other calls continue.
            _log.exception("the call path raised")
            result = Result("error", error=ToolcribError(f"the call failed: {type(error).__name__}"))
        key = one.request.key
        if self._open.get(key) is one:
            del self._open[key]
            self._answer(one, result)

    async def _invoke(self, one: ClientCall) -> Result:
        """Make the call. In a session, ask the client's user for approval and make it again."""
        call, approver = one.call, self._settings.approver
        if not one.can_ask or approver is None or "inputResponses" in one.request.params:
            return await self._catalog.invoke(call)
        result = await self._catalog.invoke(replace(call, wait="pending"))
        if waiting_for(result) is None or (one.request.modern and self._question(one, result) is not None):
            return result
        question = self._question(one, result)
        answered = None if question is None else await self._ask(one, question)
        if question is not None and answered is not None:
            approver.decide(question.approval, call.caller, answered)
        elif call.wait == "pending":
            return result
        return await self._catalog.invoke(call)

    async def _ask(self, one: ClientCall, question: Question) -> UserAnswer | None:
        channel = one.request.channel
        return read_answer(await self._questions.ask(question.request(), channel.send))

    def _question(self, one: ClientCall, result: Result) -> Question | None:
        """Return the question to the client's user about a call that waits; None if there is none to ask."""
        return question_about(self._settings.approver, result) if one.can_ask else None

    def _answer(self, one: ClientCall, result: Result) -> None:
        request, error = one.request, result.error
        if one.listed is None and isinstance(error, ToolNotFound):
            # In MCP an unknown tool is an error of the request, not of a tool.
            message = f"{error.message} {error.hint}" if error.hint else error.message
            self._refuse(request, ErrorCode.INVALID_PARAMS, message, {"error": error.as_dict()})
        elif request.modern and isinstance(error, CapabilityMissing):
            data = {"requiredCapabilities": error.details.get("required", {})}
            self._refuse(request, ErrorCode.CAPABILITY_MISSING, error.message, data)
        else:
            try:
                request.reply(self._written(one, result))
            except JsonRpcError as refused:
                request.reply(error_answer(request.id, refused), refused.code)

    def _refuse(self, request: McpRequest, code: ErrorCode, message: str, data: dict[str, Any]) -> None:
        request.reply(error_answer(request.id, JsonRpcError(code, message, data)), code)

    def _written(self, one: ClientCall, result: Result) -> bytes:
        if one.request.modern:
            asked = self._asked(one, result)
            if asked is not None:
                return answer(one.request.id, {**asked, "_meta": {SERVER_KEY: self._server_info}})
        try:
            return self._encode(one, one.form.write(result, one.listed))
        except JsonRpcError:
            raise
        except Exception as broken:
            misfit = InvalidOutput(f"the tool's output cannot be written as JSON: {str(broken)[:200]}")
            failed = Result("error", error=misfit, duration_ms=result.duration_ms, call_id=result.call_id)
            return self._encode(one, one.form.write(failed, None))

    def _asked(self, one: ClientCall, result: Result) -> dict[str, Any] | None:
        """Return the result of 2026-07-28 that asks for input; None if nothing is asked."""
        client, error = one.call.client, result.error
        if isinstance(error, InputRequired) and isinstance(client, ModernClient):
            state = client.kept(error.details)
            sealed = self._seal.seal(state, one.about()) if state else None
            return input_required(error.details, sealed)
        question = self._question(one, result)
        if question is None:
            return None
        sealed = self._seal.seal({"approval": question.approval}, one.about())
        return input_required({"requests": question.input_requests()}, sealed)

    def _encode(self, one: ClientCall, result: dict[str, Any]) -> bytes:
        if one.request.modern:
            result["resultType"] = "complete"
            result["_meta"][SERVER_KEY] = self._server_info
        return answer(one.request.id, result)

    def _progress(self, one: ClientCall, token: RequestId) -> Callable[[CallEvent], None]:
        """Return a function that sends progress while the call runs; MCP wants it to increase."""
        last, channel = -math.inf, one.request.channel

        def report(event: CallEvent) -> None:
            nonlocal last
            live = self._open.get(one.request.key) is one
            done = event.done if event.kind == "progress" and live else None
            if done is None or not last < done < math.inf or channel.congested():
                return
            last = done
            params: dict[str, Any] = {"progressToken": token, "progress": done}
            if event.total is not None and math.isfinite(event.total):
                params["total"] = event.total
            if event.message:
                params["message"] = event.message
            channel.send(notification("notifications/progress", params))

        return report


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        # A call that never waits ends here, one turn of the event loop sooner.
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
