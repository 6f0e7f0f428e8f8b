"""Runs in the process of a registered function: imports the function, calls it, answers with JSON.

The launcher loads it, so it imports only the standard library until `sys.path` is set.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from typing import Any

SIGNALS = ("RetryableError", "ToolCancel", "ToolDiscard", "ToolSnooze")
given: tuple[int, int] = (-1, -1)
"""Descriptors: the call is read from the first, the answer is written to the second."""
trouble: BaseException | None = None


def prepare(needs: dict[str, Any]) -> None:
    """Take over the server's environment, search path, working folder and main script; import the function.

    The main script is run under the name `__mp_main__`, as `multiprocessing` does.
    """
    global trouble
    from multiprocessing import process, spawn

    os.environ.clear()
    os.environ.update(needs["env"])
    if "time" in sys.modules:
        sys.modules["time"].tzset()
    current: Any = process.current_process()
    current._inheriting = True  # noqa: SLF001 - as multiprocessing does: a script without a guard must not call itself
    try:
        spawn.prepare(needs["like"])
        import toolcrib.schema.decode  # noqa: F401 - before the function can change the search path

        if needs["module"] not in sys.modules:
            importlib.import_module(needs["module"])
    except BaseException as error:
        trouble = error
    finally:
        del current._inheriting  # noqa: SLF001


def main() -> None:
    """Call the function and write a line of JSON."""
    source, target = given
    with os.fdopen(source, "rb") as file:
        call = file.read()
    try:
        if trouble is not None:
            raise trouble
        function, arguments = pickle.loads(call)  # noqa: S301 - from the server
        answer = value_of(function, arguments)
    except BaseException as error:
        answer = failure(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass
    with os.fdopen(target, "wb") as answers:
        answers.write(answer + b"\n")


def value_of(function: Any, arguments: dict[str, Any]) -> bytes:
    """Call the function and return its value as JSON. A coroutine or generator is run to its end."""
    import asyncio
    import inspect

    from toolcrib.executors.function.executor import drained, exhausted
    from toolcrib.schema.decode import to_json_text

    value: Any = function(**arguments)
    stream: Any = value
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    elif inspect.isasyncgen(value):
        value = asyncio.run(drained(stream, None))
    elif inspect.isgenerator(value):
        value = exhausted(stream, None)
    try:
        # Whole bytes become content; those inside of a value are text there.
        kind = b'{"bytes":' if isinstance(value, bytes) else b'{"value":'
        return kind + to_json_text(value) + b"}"
    except TypeError as error:
        raise RuntimeError(
            f"the tool returned a value of type {type(value).__name__} that is not JSON: {error}"
        ) from None


def failure(error: BaseException) -> bytes:
    """Return the name and message of an exception as JSON."""
    import json

    name = type(error).__name__
    try:
        message = str(error).encode(errors="replace").decode()
    except Exception:
        message = ""
    names = [kind.__name__ for kind in type(error).__mro__]
    if isinstance(error, SystemExit):
        message = f"the tool called sys.exit({error.code!r})"
    found = {
        "name": "RuntimeError" if name in ("SystemExit", "ToolFailed") else name,
        "message": message,
        "signal": next((known for known in names if known in SIGNALS), None),
        "delay": getattr(error, "delay", None),
    }
    return json.dumps(found, default=str).encode()
