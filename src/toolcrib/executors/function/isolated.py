"""A registered function in a process of its own (`isolation: process`): it may crash or hang there.

The process comes from a launcher, never from a fork of this (threaded) process. It is killed, with all
that it started, when it has answered, when its time is up, when the call is cancelled, and when this process
dies. Only JSON comes back from it: nothing is unpickled here.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from toolcrib.errors import DefinitionError, ToolFailed
from toolcrib.executors.answers import raise_told

__all__ = ["run_in_process"]

_CHILD = str(Path(__file__).with_name("isolated_child.py").resolve())


async def run_in_process(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    *,
    memory_bytes: int | None = None,
    processes: int | None = None,
) -> Any:
    """Call `function(**arguments)` in a new process and wait for its answer.

    With `memory_bytes` or `processes`, the whole tree is held to that; `SandboxUnavailable` where nothing
    can hold it.
    """
    from toolcrib.sandbox.host.function import FunctionCall, call_function

    try:
        call = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DefinitionError(
            f"the call cannot be sent to a process of its own: {error}",
            hint="Define the function, and the types of its arguments, at the top level of a module.",
        ) from None
    done = await call_function(FunctionCall(_CHILD, _needs(function), call, memory_bytes, processes))
    if done.status is not None:
        code = os.waitstatus_to_exitcode(done.status)
        raise ToolFailed(_death(code, done.out_of_memory), details={"exit_code": code})
    try:
        answer = orjson.loads(done.data)
        return answer["value"] if "value" in answer else raise_told(**answer)
    except (KeyError, TypeError, ValueError):
        raise ToolFailed("the tool's process gave an answer that is none of ours") from None


def _needs(function: Callable[..., Any]) -> dict[str, Any]:
    """What a new process takes to find the function, and to be as this one is.

    As `multiprocessing` has it, but for the key that its processes know each other by.
    """
    from multiprocessing import process

    if getattr(process.current_process(), "_inheriting", False):
        raise DefinitionError(
            "a tool was called while its own process imported the main script: "
            'put the call below `if __name__ == "__main__":`'
        )
    first: str | None = getattr(process, "ORIGINAL_DIR", None)
    path = [first if entry == "" and first is not None else entry for entry in sys.path]
    like: dict[str, Any] = {"sys_path": path, "sys_argv": list(sys.argv), "dir": _folder()}
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    file = getattr(main, "__file__", None)
    if name is not None:
        like["init_main_from_name"] = name
    elif file is not None:
        like["init_main_from_path"] = os.path.normpath(os.path.join(first or "", file))  # noqa: PTH118
    if like["dir"] is None:
        del like["dir"]
    module = getattr(function, "__module__", None) or "builtins"
    return {"env": dict(os.environ), "like": like, "module": module}


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - the text as it is
    except FileNotFoundError:
        return None


def _death(code: int, out_of_memory: bool) -> str:
    if out_of_memory:
        return "the tool's process used up its memory and was ended"
    if code >= 0:
        return f"the tool's process ended with exit code {code} before it answered"
    name = signal.strsignal(-code) or "unknown"
    return f"the tool's process was ended by signal {-code} ({name})"
