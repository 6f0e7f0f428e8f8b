"""The status of a run, by its pod."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson

from toolcrib.spec.moment import written

ENDED = ("Succeeded", "Failed")
DELETED = "the pod was deleted before its result was read"
RESULT = "result: "
"""The last line of the agent's log that begins so ends with the result as JSON."""
_MAX_RESULT = 256_000
"""Characters: Kubernetes stores a resource of about 1 MiB."""


def failed(message: str) -> dict[str, str]:
    """Return the status of a run that fails now."""
    return {"phase": "Failed", "message": message, "completedAt": written(time.time())}


def standing_of(pod: Mapping[str, Any], log: str, *, gone: bool = False) -> dict[str, str]:
    """Return the status of the run of a pod; `log` is that of its agent, `gone` says that it was deleted."""
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    agent: Mapping[str, Any] = next(
        (one for one in status.get("containerStatuses", ()) if one["name"] == "agent"), {}
    )
    state = agent.get("state", {})
    found = {"phase": phase if phase in ("Pending", "Running", *ENDED) else "Running", "message": ""}
    if began := status.get("startTime"):
        found["startedAt"] = began
    end = state.get("terminated", {})
    # A pod that is gone has no log, but its last status has a result that is short.
    result = _result_in(log) or _result_in(RESULT + end.get("message", ""))
    if gone and phase != "Failed" and not result:
        return found | failed(DELETED)
    if phase in ENDED or gone:
        found["phase"] = "Succeeded"
        if at := end.get("finishedAt"):
            found["completedAt"] = at
        found["result"] = str(result.get("result", ""))[:_MAX_RESULT]
        if phase == "Failed" or result.get("error"):
            # A container that ended without an error is not started again, whatever its run came to.
            found |= {"phase": "Failed", "message": _why(status, end, result)}
    elif waiting := state.get("waiting"):
        found["message"] = ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    return found


def _why(status: Mapping[str, Any], end: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if status.get("reason") == "DeadlineExceeded":
        return "the run took longer than its timeoutSeconds"
    message = result.get("error") or status.get("message") or ("" if result else end.get("message"))
    reason = end.get("reason") or status.get("reason") or "Error"
    return (
        str(message)
        if message
        else f"{reason}: the agent ended with exit code {end.get('exitCode', 'unknown')}"
    )


def _result_in(log: str) -> Mapping[str, Any]:
    for line in reversed(log.splitlines()):
        _, mark, text = line.partition(RESULT)
        if mark:
            try:
                found = orjson.loads(text)
            except orjson.JSONDecodeError:
                continue
            if isinstance(found, dict):
                return found
    return {}
