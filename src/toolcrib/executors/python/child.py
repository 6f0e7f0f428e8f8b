"""Runs inside the sandbox: imports a tool's module, calls its function, answers on descriptor 3.

Standard library only: the tool's `venv` may have any interpreter from Python 3.8. Standard input is the job
as JSON: module, function, args, kwargs, path (folders that no tool may write, put first on sys.path), cwd
(put last, because other tools may write there), returns (`json` or `text`), trace (true to report the hosts
and variables that the tool asks for).
"""

import inspect
import json
import os
import sys
import traceback
from binascii import b2a_base64
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.util import module_from_spec

SIGNALS = ("RetryableError", "ToolCancel", "ToolDiscard", "ToolSnooze")
LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname")
MAX_CAUSES = 10


def call(job: dict) -> object:  # type: ignore[type-arg]  # not in Python 3.8
    """Import the module and call the function; a coroutine is run to its end."""
    sys.path[:0] = job["path"]
    sys.path += job["cwd"]
    for folder in job["path"] + job["cwd"]:
        if has(folder, job["module"]):
            begin(job["module"].partition(".")[0], folder)
            break
    module = import_module(job["module"])
    if hasattr(module, "__path__") and getattr(module, "__file__", None) is None:
        # The tool sees a folder of that name, and no file.
        raise ModuleNotFoundError(f"No module named {job['module']!r}", name=job["module"])
    function = getattr(module, job["function"], None)
    if function is None:
        name = job["function"]
        raise AttributeError(
            f"{job['module']} has no function {name!r}: write it, or fix exec.python.function"
        )
    value = function(*job["args"], **job["kwargs"])
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        import asyncio

        async def wait() -> object:
            return whole([item async for item in value]) if inspect.isasyncgen(value) else await value

        value = asyncio.run(wait())
    elif inspect.isgenerator(value):
        value = whole(list(value))
    return value if job["returns"] == "json" else str(value)


def whole(items: list) -> object:  # type: ignore[type-arg]
    """Return what a generator has yielded: text in one piece, else a list."""
    return "".join(items) if items and all(isinstance(item, str) for item in items) else items


def has(folder: str, name: str) -> bool:
    """Return True if the folder has a file of the module, or of a package above it."""
    base = folder
    for part in name.split("."):
        base += os.sep + part
        files = [base + ending for ending in (os.sep + "__init__.py", ".py", ".pyc", *EXTENSION_SUFFIXES)]
        if any(map(os.path.isfile, files)):
            return True
    return False


def begin(name: str, folder: str) -> None:
    """Import the module, or the package it is in, from this folder, whatever has that name elsewhere."""
    spec = PathFinder.find_spec(name, [folder])
    if name in sys.modules or spec is None:
        return
    sys.modules[name] = module = module_from_spec(spec)
    if spec.loader is not None:
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise


def answer(job: dict) -> bytes:  # type: ignore[type-arg]
    """Return the function's value as JSON, bytes as base64. Raises TypeError for a value that is not JSON."""
    value = call(job)
    if isinstance(value, (bytes, bytearray)):
        return json.dumps({"value": None, "base64": b2a_base64(value, newline=False).decode()}).encode()
    try:
        return json.dumps({"value": value}, allow_nan=False, ensure_ascii=False).encode()
    except (RecursionError, TypeError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TypeError(
            f"{job['function']} returned a value of type {type(value).__name__} that is not JSON: {reason}"
        ) from None


def failure(error: BaseException) -> bytes:
    """An exception by its name, so that the tool needs nothing of Toolcrib to raise one of the signals."""
    names = [kind.__name__ for kind in type(error).__mro__]
    delay = getattr(error, "delay", None)
    try:
        message = str(error)
    except Exception:  # a tool's own __str__
        message = "(its message cannot be read)"
    found = {
        "error": names[0],
        "message": message,
        "signal": next((name for name in names if name in SIGNALS), None),
        "delay": getattr(delay, "total_seconds", lambda: delay)(),
        "cause": cause(error),
    }
    return json.dumps(found, default=str, ensure_ascii=False).encode(errors="replace")


def cause(error: BaseException) -> "dict | None":  # type: ignore[type-arg]
    """Return errno and path of the system error or failed import that is, or led to, this exception."""
    found: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if isinstance(found, (OSError, ImportError)):
            try:
                path = os.path.abspath(os.fsdecode(found.filename))  # type: ignore[union-attr]
            except (AttributeError, OSError, TypeError):  # It has none, or the working folder is gone.
                path = None
            missing = found.name if isinstance(found, ModuleNotFoundError) else None
            return {"errno": getattr(found, "errno", None), "filename": path, "module": missing}
        found = found.__cause__ if found is not None else None
    return None


def observe() -> "dict":  # type: ignore[type-arg]
    """Begin to note the hosts that are looked up, and the variables that are read through `os.environ`.

    This only informs the reader of a trace: code can avoid it.
    """
    hosts: dict = {}  # type: ignore[type-arg]
    names: dict = {}  # type: ignore[type-arg]

    def hear(event: str, args: tuple) -> None:  # type: ignore[type-arg]
        if event in LOOKUPS and args[0]:
            port = args[1] if len(args) > 1 and isinstance(args[1], int) else None
            host = args[0].decode(errors="replace") if isinstance(args[0], bytes) else str(args[0])
            hosts[(host, port)] = None

    sys.addaudithook(hear)

    class Environ(type(os.environ)):  # type: ignore[misc]
        def __getitem__(self, key: str) -> str:
            if isinstance(key, str):
                names[key] = None
            return super().__getitem__(key)  # type: ignore[no-any-return]

    os.environ.__class__ = Environ
    return {"hosts": hosts, "variables": names}


def main() -> None:
    """Answer with {"value": …} or {"error": …, "message": …}; the traceback goes to standard error."""
    # Before the tool's code runs: it may fork, and come back here in both processes.
    ours = os.getpid()
    # A program that the tool starts must not write the answer in its place.
    os.set_inheritable(3, False)
    seen = None
    try:
        job = json.loads(sys.stdin.buffer.read())
        seen = observe() if job.get("trace") else None
        written = answer(job)
    except BaseException as error:  # SystemExit too
        written = failure(error)
        place = error.__traceback__
        while place is not None and place.tb_frame.f_code.co_filename == __file__:
            place = place.tb_next
        traceback.print_exception(type(error), error, place)
    if seen is not None:
        lists = {name: [*found] for name, found in seen.items()}
        written = written[:-1] + b', "trace": ' + json.dumps(lists).encode() + b"}"
    if os.getpid() == ours:  # A forked child of the tool may come this way as well.
        rest = memoryview(written)
        while rest:
            rest = rest[os.write(3, rest) :]
        os.close(3)


if __name__ == "__main__":
    main()
