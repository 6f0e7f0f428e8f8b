"""Tasks (`io.modelcontextprotocol/tasks`): calls answered by a handle, which continue as durable calls.

A task is a call in the project's store, so every process of the project can read, answer and cancel it, and
it survives all of them. Its id is that of the call. To any other caller it does not exist.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolcrib.errors import CapabilityMissing, ConflictError, NotFoundError, ToolcribError
from toolcrib.serve.mcp.lists import AdvertisedTool
from toolcrib.serve.mcp.questions.elicitation import (
    ApprovalQuestion,
    Approver,
    mode_of,
    question_about,
    take_answer,
)
from toolcrib.serve.mcp.results import call_result
from toolcrib.serve.mcp.wire import CAPABILITIES_KEY, ErrorCode, JsonRpcError, mounted_error
from toolcrib.spec import Call, Result
from toolcrib.spec.moment import written

if TYPE_CHECKING:
    from toolcrib.core.context import Context
    from toolcrib.project.durable.calls import AdoptedCall, ProjectCalls
    from toolcrib.runs import DurableCall

TASKS = "io.modelcontextprotocol/tasks"
_POLL_MS = 500
_NEEDED: dict[str, Any] = {"extensions": {TASKS: {}}}


def knows_tasks(meta: Mapping[str, Any]) -> bool:
    """Return True if the client of a request of 2026-07-28 declares that it knows tasks."""
    capabilities = meta.get(CAPABILITIES_KEY)
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def require_tasks(meta: Mapping[str, Any]) -> None:
    """Raise JsonRpcError if the client of a request does not know tasks."""
    if not knows_tasks(meta):
        text = f"this needs a client with the extension {TASKS}"
        raise JsonRpcError(ErrorCode.CAPABILITY_MISSING, text, {"requiredCapabilities": _NEEDED})


def protocol_error(error: ToolcribError | None) -> JsonRpcError | None:
    """Return the error of a call that is one of the request and not of the tool; None for any other."""
    if isinstance(error, CapabilityMissing):
        data = {"requiredCapabilities": error.details.get("required", {})}
        return JsonRpcError(ErrorCode.CAPABILITY_MISSING, error.message, data)
    return None


def url_needed(error: ToolcribError | None) -> JsonRpcError | None:
    """Return the error of a mounted server whose user must visit an address first; None for any other."""
    found = None if error is None else mounted_error(error)
    return found if found is not None and found.code == ErrorCode.URL_NEEDED else None


class Tasks:
    """The tasks of a project. `calls` returns its durable calls."""

    def __init__(self, calls: Callable[[], ProjectCalls], approver: Approver | None) -> None:
        self._calls, self._approver = calls, approver

    async def create(self, call: Call, approval: str | None = None) -> dict[str, Any]:
        """Store a call, and return it as a new task; `approval` is what it waits for.

        Raises the error of a call that would be refused anyway.
        """
        calls = self._calls()
        # Without a worker in this process the stored call would wait for another process.
        calls.serve()

        return await asyncio.to_thread(lambda: self._created(calls.store(call, approval=approval)))

    def adopt(self, call: Context, running: asyncio.Task[None]) -> AdoptedCall:
        """Store a call that runs already, as `ProjectCalls.adopt` does."""
        return self._calls().adopt(call, running)

    async def adopted(self, call: Call) -> dict[str, Any]:
        """Return a call that was adopted as a new task. Raises ToolcribError."""
        return await asyncio.to_thread(self._created, str(call.call_id))

    async def show(
        self, task: str, caller: str, meta: Mapping[str, Any], listed: Callable[[str], AdvertisedTool | None]
    ) -> dict[str, Any]:
        """Return the state of a task, and what comes with it: its result, its error, or its questions."""
        calls = self._calls()
        calls.serve()  # Perhaps the process that took it is gone.
        found = await asyncio.to_thread(self._find, task, caller)
        shown = await asyncio.to_thread(self._shown, found)
        state = shown["status"]
        if state == "input_required":
            shown["inputRequests"] = await asyncio.to_thread(self._requests, found, meta)
            if found.approval is not None:
                shown["statusMessage"] = f"A person must approve the call: approval {found.approval}."
        elif state == "failed":
            error = _failure(found)
            shown["error"] = {"code": error.code, "message": error.message, "data": error.data}
        elif state == "completed":
            result = call_result(found.outcome(), listed(found.tool))
            shown["result"] = {**result, "resultType": "complete"}
        return shown

    async def update(self, task: str, caller: str, meta: Mapping[str, Any], answers: Any) -> dict[str, Any]:
        """Take the client's answers to a task's questions."""
        if not isinstance(answers, dict):
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, "tasks/update needs inputResponses, an object")

        def take() -> None:
            found = self._find(task, caller)
            # A task waits for a person's approval, or for answers to the tool's own questions.
            if self._question(found, meta) is not None and self._approver is not None:
                take_answer(self._approver, found.approval, answers, caller)
            else:
                self._calls().answer(found.id, answers)

        await asyncio.to_thread(take)
        return {}

    async def cancel(self, task: str, caller: str) -> dict[str, Any]:
        """Cancel a task. One that has ended stays as it is."""

        found = await asyncio.to_thread(self._find, task, caller)
        with suppress(ConflictError):
            await asyncio.to_thread(self._calls().cancel, found.id)
        return {}

    def _find(self, task: str, caller: str) -> DurableCall:
        try:
            return self._calls().find(task, caller)
        except NotFoundError:
            # The same for a task of another caller, so nobody can find out which ids exist.
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"there is no task {task[:100]!r}") from None

    def _created(self, task: str) -> dict[str, Any]:
        return {"resultType": "task", **self._shown(self._calls().find(task))}

    def _shown(self, found: DurableCall) -> dict[str, Any]:
        """Return the fields that every form of a task has."""
        changed = self._calls().stored.changes(found.id)[-1].at
        return {
            "taskId": found.id,
            "status": _status(found),
            "createdAt": written(found.submitted_at),
            "lastUpdatedAt": written(changed),
            "ttlMs": None,
            "pollIntervalMs": _POLL_MS,
        }

    def _requests(self, found: DurableCall, meta: Mapping[str, Any]) -> dict[str, Any]:
        from toolcrib.runs.questions import open_questions

        question = self._question(found, meta)
        return open_questions(json.loads(found.context)) if question is None else question.input_requests()

    def _question(self, found: DurableCall, meta: Mapping[str, Any]) -> ApprovalQuestion | None:
        """Return the question to the client's user about the approval that a task waits for."""
        if found.state != "waiting" or mode_of(meta.get(CAPABILITIES_KEY)) != "form":
            return None
        waits = Result("pending", details={"status": "pending", "approval": found.approval})
        return question_about(self._approver, waits)


def _status(found: DurableCall) -> str:
    if found.state in ("ready", "running"):
        return "working"
    if found.state == "waiting":
        return "input_required"
    if found.state == "cancelled" and found.error is None:
        return "cancelled"
    # The process that ran it died, and the tool may not run twice.
    lost = found.state == "unknown"
    return "failed" if lost or protocol_error(found.outcome().error) is not None else "completed"


def _failure(found: DurableCall) -> JsonRpcError:
    """Return the error of a task that has none of its tool."""
    error = found.outcome().error
    assert error is not None
    data = {"error": error.as_dict()}
    return protocol_error(error) or JsonRpcError(ErrorCode.INTERNAL_ERROR, error.message, data)
