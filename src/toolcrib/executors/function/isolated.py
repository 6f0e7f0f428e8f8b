"""A registered function in a process of its own (`isolation: process`): it may crash or hang there.

A launcher forks the process, because this one has threads. The process and all its children are killed after
the answer, at the timeout, when the call is cancelled and when this process dies. The answer is JSON; nothing
is unpickled here.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from toolcrib.errors import DefinitionError, ToolFailed
from toolcrib.executors.output import raise_failure

_CHILD = str(Path(__file__).with_name("isolated_child.py").resolve())


async def run_in_process(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call `function(**arguments)` in a new process and wait for its answer.

    Raises DefinitionError if the call cannot be pickled, ToolFailed if the function raises.
    """
    from toolcrib.sandbox.host.function import call_function

    try:
        # Only to the process: what it answers is JSON, because unpickling would run what it likes in here.
        call = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DefinitionError(
            f"the call cannot be sent to a process of its own: {error}",
            hint="Define the function, and the types of its arguments, at the top level of a module.",
        ) from None
    written = await call_function(_CHILD, _needs(function), call)
    if isinstance(written, int):
        code = os.waitstatus_to_exitcode(written)
        raise ToolFailed(_death(code), details={"exitCode": code})
    try:
        answer = orjson.loads(written)
        if "bytes" in answer:
            return base64.b64decode(answer["bytes"])
        return answer["value"] if "value" in answer else raise_failure(**answer)
    except (KeyError, TypeError, ValueError):
        raise ToolFailed("the tool's process wrote an invalid answer") from None


def _needs(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the state of this process that a new one needs to import the function.

    It is that of `multiprocessing.spawn.get_preparation_data`, which cannot be used here: it fixes the start
    method of this process.
    """
    from multiprocessing import process

    if getattr(process.current_process(), "_inheriting", False):
        raise DefinitionError(
            "a tool was called while its own process imported the main script: "
            'put the call below `if __name__ == "__main__":`'
        )
    first: str | None = getattr(process, "ORIGINAL_DIR", None)
    path = [first if entry == "" and first is not None else entry for entry in sys.path]
    like: dict[str, Any] = {"sys_path": path, "sys_argv": list(sys.argv)}
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    file = getattr(main, "__file__", None)
    if name is not None:
        like["init_main_from_name"] = name
    elif file is not None:
        like["init_main_from_path"] = os.path.normpath(os.path.join(first or "", file))
    with suppress(FileNotFoundError):
        like["dir"] = os.getcwd()
    module = getattr(function, "__module__", None) or "builtins"
    return {"env": dict(os.environ), "like": like, "module": module}


def _death(code: int) -> str:
    if code >= 0:
        return f"the tool's process ended with exit code {code} before it answered"
    name = signal.strsignal(-code) or "unknown"
    return f"the tool's process was ended by signal {-code} ({name})"
