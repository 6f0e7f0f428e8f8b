"""Calls of one client: they run side by side, can be cancelled, and each is answered once."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from toolcrib.core.context import Context
from toolcrib.core.results import mask_result
from toolcrib.errors import Cancelled, InputRequired, InvalidOutput, ToolcribError, ToolNotFound
from toolcrib.serve.mcp.lists import AdvertisedTool
from toolcrib.serve.mcp.questions.approval_page import AnswerPage
from toolcrib.serve.mcp.questions.client import ModernClient, OpenQuestions, input_required
from toolcrib.serve.mcp.questions.elicitation import (
    ApprovalQuestion,
    Mode,
    accepts,
    opens_page,
    question_about,
    read_answer,
    take_answer,
    waiting_for,
)
from toolcrib.serve.mcp.questions.state import StateSeal
from toolcrib.serve.mcp.request import McpRequest
from toolcrib.serve.mcp.results import ResultForm, call_result
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.serve.mcp.tasks import Tasks, protocol_error, url_needed
from toolcrib.serve.mcp.wire import (
    SERVER_KEY,
    ErrorCode,
    JsonRpcError,
    RequestId,
    answer,
    busy,
    error_answer,
    is_request_id,
    mounted_error,
    notification,
)
from toolcrib.spec import Call, CallEvent, Catalog, Result

if TYPE_CHECKING:
    from toolcrib.project.durable.calls import AdoptedCall

_log = logging.getLogger("toolcrib.serve.mcp")

Wait = Literal["raise", "block", "pending"]
_CANCEL_S = 2.0
"""Seconds that cancelled calls may take to end before the connection is given up."""
_CHUNK = 0.000_001
"""The progress that a part of the output counts."""


@dataclass(slots=True, eq=False)
class ClientCall:
    """One `tools/call` request, and the call made for it."""

    request: McpRequest
    call: Call
    listed: AdvertisedTool | None
    asks_by: Mode | None
    """The mode in which the client's user can be asked to approve the call."""
    form: ResultForm = call_result
    about: Callable[[], bytes] = bytes
    """Describes the call, for the seal of its state."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The state that the call brought, of an earlier round."""
    may_be_task: bool = False
    """True if the client knows tasks, and there is a store for them."""
    running: Context | None = None
    """The call as it runs."""
    adopted: AdoptedCall | None = None
    """Keeps a call that takes long in the store."""
    answering: asyncio.Task[None] | None = None
    """Answers such a call as a task."""
    task: asyncio.Task[None] | None = None
    question: ApprovalQuestion | None = None
    """The question to the client's user."""


class CallLoad:
    """Counts calls and the bytes of their messages by caller, and refuses what is too much.

    All connections of a server share one: a client could otherwise begin any number of sessions.
    """

    def __init__(self) -> None:
        self._open: dict[str | None, tuple[int, int]] = {}
        """Caller to the number of its calls and the bytes of their messages."""

    def add(self, request: McpRequest, settings: ServerSettings) -> None:
        """Count a call that begins. Raises JsonRpcError if its caller has too many calls open."""
        caller = request.channel.sender.caller
        calls, size = self._open.get(caller, (0, 0))
        # While nothing else is open, even a message above the limit is taken: else it could never run.
        full = size and size + request.size > settings.max_bytes
        if full or calls >= settings.max_running + settings.max_waiting:
            raise busy("too many calls are waiting", "Call again later.")
        self._open[caller] = calls + 1, size + request.size

    def remove(self, request: McpRequest) -> None:
        """Count a call no longer, as it has ended."""
        caller = request.channel.sender.caller
        calls, size = self._open[caller]
        if calls > 1:
            self._open[caller] = calls - 1, size - request.size
        else:
            del self._open[caller]


class ClientCalls:
    """The calls of one client that have not been answered."""

    def __init__(
        self, catalog: Catalog, settings: ServerSettings, questions: OpenQuestions, load: CallLoad
    ) -> None:
        self._catalog, self._settings, self._questions, self._load = catalog, settings, questions, load
        self.tasks = None if settings.tasks is None else Tasks(settings.tasks, settings.approver)
        """The calls that were answered as tasks; None if there is no store for them."""
        self._page = None if settings.approver is None else AnswerPage(settings.approver)
        self.seal = StateSeal(settings.state_key)
        """Seals what a call leaves for its next round."""
        self._server_info = settings.server_info
        self._slots = defaultdict[str | None, asyncio.Semaphore](
            lambda: asyncio.Semaphore(settings.max_running)
        )
        """By caller: stateless requests over HTTP share one connection, and none may keep the others out."""
        self._open: dict[object, ClientCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of the calls, also of cancelled ones until they have ended."""
        self._ended = ""
        """Says why the calls that ran were ended."""

    def __contains__(self, key: object) -> bool:
        """Return True if a call with this key has not been answered."""
        return key in self._open

    def __len__(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self._tasks)

    def start(self, one: ClientCall) -> None:
        """Run a call as soon as a slot is free. Raises JsonRpcError if too many calls wait already."""
        if one.asks_by == "url" and opens_page(one.request.params.get("inputResponses")):
            # The user goes to the page now, so this request waits for the decision and asks no more.
            one.asks_by = None
            one.call.wait = "pending" if one.may_be_task else "block"
        token = one.request.meta.get("progressToken")
        if is_request_id(token):
            one.call.on_event = self._progress(one, token)
        self._load.add(one.request, self._settings)
        self._open[one.request.key] = one
        one.task = self._keep(self._run(one), one.request)
        if one.may_be_task and not one.task.done():
            asyncio.get_running_loop().call_later(self._settings.task_after_s, self._make_task, one)

    def answer_later(self, request: McpRequest, work: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Answer a request with a result that has to be waited for. Raises JsonRpcError as `start`."""
        self._load.add(request, self._settings)
        _ = self._keep(self._answer_later(request, work), request)

    def _keep(self, work: Coroutine[Any, Any, None], request: McpRequest) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._load.remove(request)

        task = _start(work)
        if task.done():
            ended(task)
        else:
            self._tasks.add(task)
            task.add_done_callback(ended)
        return task

    def cancel(self, key: object) -> None:
        """Cancel a call at the client's wish. It gets no answer."""
        # Taken out first: `_run` then finds that the call is not open, and sends no second answer.
        one = self._open.pop(key, None)
        if one is not None and one.task is not None:
            if one.running is not None:
                one.running.stored = False  # The call ends, and not only its run here.
            one.task.cancel()
            one.request.reply(None)

    async def drain(self, grace: float, reason: str) -> None:
        """Wait `grace` seconds for the calls to end, then cancel the rest and answer them with `reason`."""
        self._ended = reason
        if self._tasks:
            _, rest = await asyncio.wait(self._tasks, timeout=grace)
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest, timeout=_CANCEL_S)
        if self._page is not None:
            await self._page.close()

    async def _run(self, one: ClientCall) -> None:
        result: Result | dict[str, Any] | None
        try:
            async with self._slots[one.request.channel.sender.caller]:
                if "approval" in one.state:
                    await self._take_answer(one)
                result = await (self._result(one) if one.may_be_task else self._invoke(one))
                if isinstance(result, Result) and not result.ok and one.request.modern:
                    await self._question(one, result)
        except asyncio.CancelledError:
            result = None
        except BaseException as error:
            # The catalog promises not to raise. If it does, the server and the other calls continue.
            _log.exception("the call path raised")
            result = Result("error", error=ToolcribError(f"the call failed: {type(error).__name__}"))
        key = one.request.key
        if one.adopted is not None and not isinstance(result, dict):
            await one.adopted.end(result or Result("error", error=Cancelled("the call was cancelled")))
        if self._open.get(key) is one:
            # A cancelled call never comes here, even if its id belongs to a later request by now.
            del self._open[key]
            self._answer(one, result or Result("error", error=Cancelled(self._ended)))

    async def _take_answer(self, one: ClientCall) -> None:
        """Take the user's answer that came with a request."""
        if (approver := self._settings.approver) is not None:
            answers = one.request.params.get("inputResponses")
            await asyncio.to_thread(take_answer, approver, one.state["approval"], answers, one.call.caller)

    async def _result(self, one: ClientCall) -> Result | dict[str, Any]:
        """Make a call that may be a task, and return its result, or the task that continues with it."""
        assert self.tasks is not None
        assert one.listed is not None
        approval = None
        # A tool with `mcp: {task: true}` is stored before it runs. Any other runs first, and is stored here
        # only if it waits for a person whom this client cannot ask.
        if not one.listed.tool.mcp.task:
            result = await self._invoke(one)
            approval = waiting_for(result)
            if approval is None or one.adopted is not None or await self._question(one, result) is not None:
                return result
        # The timer of `_make_task` may end while the call is stored, and would store it again.
        one.may_be_task = False
        try:
            return await self.tasks.create(one.call, approval)
        except ToolcribError as error:
            return Result("error", error=error)

    def _make_task(self, one: ClientCall) -> None:
        """Answer a call as a task because it takes long. It stays a call where it cannot be stored."""
        running = one.running
        if self._open.get(one.request.key) is one and one.may_be_task and running and one.task:
            assert self.tasks is not None
            one.adopted = self.tasks.adopt(running, one.task)
            one.answering = asyncio.create_task(self._answer_as_task(one, one.adopted))

    async def _answer_as_task(self, one: ClientCall, adopted: AdoptedCall) -> None:
        assert self.tasks is not None
        if not await adopted.is_stored():
            return
        with suppress(ToolcribError):  # Then its result is the answer.
            task = await self.tasks.adopted(one.call)
            if self._open.get(one.request.key) is one:
                del self._open[one.request.key]
                if isinstance(one.call.client, ModernClient):
                    one.call.client.leave()
                self._answer(one, task)

    async def _answer_later(self, request: McpRequest, work: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        try:
            done = self._settings.mask(await work())
            if request.modern:
                done = {"resultType": "complete", **done, "_meta": {SERVER_KEY: self._server_info}}
            request.reply(answer(request.id, done))
            return
        except JsonRpcError as refused:
            error = refused
        except ToolcribError as failed:
            mask_result(Result("error", error=failed), self._settings.mask)
            self._settings.hide(failed, request.channel.sender.identity)
            ours = JsonRpcError(ErrorCode.INTERNAL_ERROR, failed.message, {"error": failed.as_dict()})
            error = mounted_error(failed) or ours
        except asyncio.CancelledError:
            error = JsonRpcError(ErrorCode.INTERNAL_ERROR, self._ended)
        except Exception:
            # Nobody else would answer, and the client would wait for ever.
            _log.exception("a request could not be answered")
            error = JsonRpcError(ErrorCode.INTERNAL_ERROR, "the request could not be answered")
        request.reply(error_answer(request.id, error), error.code)

    async def _invoke(self, one: ClientCall) -> Result:
        """Make the call. In a session, ask the client's user for approval and make it again."""
        call, approver = one.call, self._settings.approver
        # The decision of an answer that came with the request is recorded already.
        if one.asks_by is None or approver is None or "inputResponses" in one.request.params:
            return await self._made(one)
        # Without waiting first, to find out which approval the call needs.
        result = await self._made(one, "pending")
        if waiting_for(result) is None:
            return result
        question = await self._question(one, result)
        if question is not None and one.request.modern:
            return result
        if question is None:
            return result if call.wait == "pending" else await self._made(one)
        send = one.request.channel.send
        answered = (await self._questions.send(question.request(), send)).get("result")
        if question.url is not None and accepts(answered):
            # The client says only that its user opens the page. The decision comes from there, later.
            result = await self._made(one, "block")
            send(notification("notifications/elicitation/complete", {"elicitationId": question.approval}))
            return result
        if (decision := read_answer(answered)) is not None:
            await asyncio.to_thread(approver.decide, question.approval, call.caller, decision)
        elif call.wait == "pending":
            return result
        return await self._made(one)

    async def _made(self, one: ClientCall, wait: Wait | None = None) -> Result:
        one.running = Context.of(one.call)
        one.running.wait = wait or one.call.wait
        return await self._catalog.invoke(one.running)

    async def _question(self, one: ClientCall, result: Result) -> ApprovalQuestion | None:
        """Return the question to the client's user about a call that waits; None if there is none to ask."""
        approval = waiting_for(result)
        if one.asks_by is None or approval is None:
            return None
        if one.question is None or one.question.approval != approval:
            question = await asyncio.to_thread(question_about, self._settings.approver, result)
            if question is not None and self._page is not None and one.asks_by == "url":
                question = replace(question, url=self._page.url(question, one.call.caller))
            one.question = question
        return one.question

    def _answer(self, one: ClientCall, result: Result | dict[str, Any]) -> None:
        request, found = one.request, result
        try:
            if isinstance(result, Result) and not result.ok:
                found = self._asked(one, result) or result
            if isinstance(found, Result):
                request.reply(self._written(one, found))
            else:
                request.reply(answer(request.id, {**found, "_meta": {SERVER_KEY: self._server_info}}))
        except JsonRpcError as refused:
            request.reply(error_answer(request.id, refused), refused.code)

    def _written(self, one: ClientCall, result: Result) -> bytes:
        try:
            return self._encode(one, one.form(result, one.listed))
        except JsonRpcError:
            raise
        except Exception as broken:
            misfit = InvalidOutput(f"the tool's output cannot be written as JSON: {str(broken)[:200]}")
            failed = Result("error", error=misfit, duration_ms=result.duration_ms, call_id=result.call_id)
            return self._encode(one, one.form(failed, None))

    def _encode(self, one: ClientCall, result: dict[str, Any]) -> bytes:
        if one.request.modern:
            result["resultType"] = "complete"
            result["_meta"][SERVER_KEY] = self._server_info
        return answer(one.request.id, result)

    def _asked(self, one: ClientCall, result: Result) -> dict[str, Any] | None:
        """Return the result of 2026-07-28 that asks for input; None if nothing is asked.

        Raises JsonRpcError for an error that is one of the request and not of the tool.
        """
        client, error = one.call.client, result.error
        if one.listed is None and isinstance(error, ToolNotFound):
            message = f"{error.message}. {error.hint}" if error.hint else error.message
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, message, {"error": error.as_dict()})
        if (refused := (protocol_error if one.request.modern else url_needed)(error)) is not None:
            raise refused
        if not one.request.modern:
            return None
        if isinstance(error, InputRequired) and isinstance(client, ModernClient):
            state = client.kept(error.details)
            sealed = self.seal.seal(state, one.about()) if state else None
            return input_required(error.details, sealed)
        question = one.question
        if question is None or question.approval != waiting_for(result):
            return None
        # Sealed, so that a client cannot answer one question and have another call approved by it.
        sealed = self.seal.seal({"approval": question.approval}, one.about())
        return input_required({"requests": question.input_requests()}, sealed)

    def _progress(self, one: ClientCall, token: RequestId) -> Callable[[CallEvent], None]:
        """Return a function that sends progress while the call runs; MCP wants it to increase.

        Until the tool itself counts, the parts of its output are messages that count next to nothing.
        """
        last, counts, channel = -math.inf, False, one.request.channel

        def report(event: CallEvent) -> None:
            nonlocal last, counts
            done, message = event.done, event.message
            counts = counts or event.kind == "progress"
            if event.kind == "chunk" and not counts:
                message = event.text.rstrip().rpartition("\n")[2]
                done = round(max(last, 0.0) + _CHUNK, 6) if message else None
            live = event.kind in ("progress", "chunk") and self._open.get(one.request.key) is one
            # JSON has neither NaN nor infinities; both fail the comparison.
            if not live or done is None or not last < done < math.inf or channel.congested():
                return
            last = done
            params: dict[str, Any] = {"progressToken": token, "progress": done}
            if event.total is not None and math.isfinite(event.total):
                params["total"] = event.total
            if message:
                params["message"] = message
            channel.send(notification("notifications/progress", params))

        return report


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        # A call that never waits ends here, one turn of the event loop sooner.
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
