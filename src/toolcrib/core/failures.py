"""The error that replaces an exception of a tool."""

from __future__ import annotations

import asyncio

from toolcrib.errors import (
    InvalidInput,
    RetryableError,
    ToolCancel,
    ToolCancelled,
    ToolcribError,
    ToolDiscard,
    ToolFailed,
    ToolSnooze,
)

_MAX_MESSAGE = 10_000
"""Characters kept of an error's message."""


def to_error(error: Exception) -> ToolcribError:
    """Return the error that a caller gets for an exception; one of ours stays what it is."""
    if isinstance(error, ToolcribError):
        return error
    if isinstance(error, ToolCancel):
        ours: ToolcribError = ToolCancelled(error.reason)
    elif isinstance(error, ToolDiscard):
        ours = InvalidInput(error.reason, details={"raisedBy": "tool"})
    elif isinstance(error, (RetryableError, ToolSnooze)):
        ours = ToolFailed(error.reason, retryable=True)
    else:
        ours = failed(error)
    ours.__cause__ = error
    return ours


def failed(error: BaseException) -> ToolFailed:
    """Return the failure that replaces any exception."""
    return ToolFailed(_message(error), details={"exception": type(error).__name__})


def own_exception(error: BaseException) -> Exception:
    """Return a tool's own SystemExit or the like as its failure.

    What came from outside is raised again: an interrupt, and the cancellation of the call.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        # Above zero only if somebody cancelled this task. Otherwise the tool cancelled a task of its own,
        # or raised the error itself: its failure, not the end of the call.
        if task is None or task.cancelling():
            raise error
        return ToolFailed("the tool's own work was cancelled")
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        raise error
    if isinstance(error, SystemExit):
        return ToolFailed(f"the tool called sys.exit({error.code!r})")
    return failed(error)


def shorten(error: ToolcribError) -> None:
    """Cut an endless message, and escape what no JSON text can hold: the name of a file that is not UTF-8.

    Mask it first: a part of a secret is not recognized as one.
    """
    message = error.message.encode("utf-8", "backslashreplace").decode()
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}…"
    error.message, error.args = message, (message,)


def _message(error: BaseException) -> str:
    """Return an exception in one line: its type, unless that says nothing, and its message."""
    name = type(error).__name__
    try:
        message = str(error)
    except (Exception, asyncio.CancelledError, GeneratorExit, SystemExit):  # Its own `__str__` fails.
        message = ""
    if isinstance(error, BaseExceptionGroup):
        message = f"{message}: {'; '.join(_message(inner) for inner in error.exceptions[:5])}"
    if not message:
        return name
    return message if name in ("Exception", "RuntimeError") else f"{name}: {message}"
