"""Runs inside the sandbox: imports a tool's module, calls its function, answers on descriptor 3.

Standard library only: it runs in whatever interpreter the tool's `venv` has. Standard input is the job as
JSON: module, function, args, kwargs, path (folders put first on sys.path), returns (`json` or `text`).
"""

import inspect
import json
import os
import sys
import traceback
from importlib import import_module

SIGNALS = ("RetryableError", "ToolCancel", "ToolDiscard", "ToolSnooze")


def call(job: dict) -> object:  # type: ignore[type-arg]  # runs on any Python 3
    """Import and call; coroutines are run to their end."""
    sys.path[:0] = job["path"]
    function = getattr(import_module(job["module"]), job["function"])
    value = function(*job["args"], **job["kwargs"])
    if inspect.isawaitable(value):
        import asyncio

        async def wait() -> object:
            return await value

        value = asyncio.run(wait())
    return value if job["returns"] == "json" else str(value)


def answer(job: dict) -> bytes:  # type: ignore[type-arg]
    """The return value as JSON; one that JSON cannot hold is an error that says so."""
    value = call(job)
    try:
        return json.dumps({"value": value}, allow_nan=False, ensure_ascii=False).encode()
    except (RecursionError, TypeError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TypeError(
            f"{job['function']} returned a {type(value).__name__} that is not JSON: {reason}"
        ) from None


def failure(error: BaseException) -> bytes:
    """An exception by its name, so that the tool needs nothing of Toolcrib to raise one of the signals."""
    names = [kind.__name__ for kind in type(error).__mro__]
    try:
        message = str(error)
    except Exception:  # a tool's own __str__
        message = "(its message cannot be told)"
    told = {
        "error": names[0],
        "message": message,
        "signal": next((name for name in names if name in SIGNALS), None),
        "delay": getattr(error, "delay", 0),
    }
    return json.dumps(told, default=str, ensure_ascii=False).encode(errors="replace")


def main() -> None:
    """Answer with {"value": …} or {"error": …, "message": …}; the traceback goes to standard error."""
    ours = os.getpid()
    os.set_inheritable(3, False)
    try:
        told = answer(json.loads(sys.stdin.buffer.read()))
    except BaseException as error:  # SystemExit too: the caller must be told
        told = failure(error)
        place = error.__traceback__
        while place is not None and place.tb_frame.f_code.co_filename == __file__:
            place = place.tb_next
        traceback.print_exception(error.with_traceback(place))
    if os.getpid() == ours:  # A forked child of the tool may come this way as well.
        with os.fdopen(3, "wb") as answers:
            answers.write(told)


if __name__ == "__main__":
    main()
