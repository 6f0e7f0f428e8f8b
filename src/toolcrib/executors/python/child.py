"""Runs inside the sandbox: imports a tool's module, calls its function, answers on descriptor 3.

Standard library only: it runs in whatever interpreter the tool's `venv` has. Standard input is the job as
JSON: module, function, args, kwargs, path (folders that no tool may write, put first on sys.path), cwd (put
last: what other tools may write there takes no name that stands for something else), returns (`json` or
`text`), trace (whether to tell which hosts and variables were asked for).
"""

import inspect
import json
import os
import re
import sys
import traceback
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.util import module_from_spec

SIGNALS = ("RetryableError", "ToolCancel", "ToolDiscard", "ToolSnooze")
# linux/socket.h, linux/net.h
INET, STREAM = (2, 10), 1
BY_FOLDER = ("_rmtree_safe_fd", "_rmtree_safe_fd_step", "fwalk", "_fwalk")
"""What names files without the folder that they are in."""
LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname")
# Lines of source that change something: of a file that is not there the kernel says the same to all.
ENTRIES = r"\b(mkdir|makedirs|rename|replace|unlink|remove|rmdir|rmtree|symlink|link)\("
WRITES = r"""\b(write_text|write_bytes|touch|chmod|utime)\(|,\s*(mode\s*=\s*)?['"][rbt+]*[wax+][rbt+]*['"]"""
READS = r"""\b(read_text|read_bytes|listdir|scandir|iterdir|stat)\(|,\s*['"]rb?t?['"]"""


def call(job: dict) -> object:  # type: ignore[type-arg]  # runs on any Python 3
    """Import and call; coroutines are run to their end."""
    sys.path[:0] = job["path"]
    sys.path += job["cwd"]
    for folder in job["path"] + job["cwd"]:
        if has(folder, job["module"]):
            begin(job["module"].partition(".")[0], folder)
            break
    function = getattr(import_module(job["module"]), job["function"])
    value = function(*job["args"], **job["kwargs"])
    if inspect.isawaitable(value):
        import asyncio

        async def wait() -> object:
            return await value

        value = asyncio.run(wait())
    return value if job["returns"] == "json" else str(value)


def has(folder: str, name: str) -> bool:
    """Whether any file of the module, or of the packages above it, is in the folder."""
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
        "cause": cause(error),
    }
    return json.dumps(told, default=str, ensure_ascii=False).encode(errors="replace")


def cause(error: BaseException) -> "dict | None":  # type: ignore[type-arg]
    """What the system refused, where it is that: which path and what for, which host, or which module."""
    for one in chain(error):
        if isinstance(one, ModuleNotFoundError) and one.name:
            return {"module": one.name}
        if not isinstance(one, OSError) or one.errno is None:
            continue
        places = traceback.extract_tb(one.__traceback__)
        lookup = type(one).__name__ == "gaierror"
        if one.filename is None and (lookup or any(p.filename.endswith("/socket.py") for p in places)):
            family, kind = socket_of(one)
            if family not in INET:
                return None
            host, port = host_of(one)
            direct = kind != STREAM
            return {"errno": one.errno, "network": True, "host": host, "port": port, "direct": direct}
        if isinstance(one.filename, (str, bytes, os.PathLike)):
            if os.sep not in os.fsdecode(one.filename) and any(place.name in BY_FOLDER for place in places):
                continue
            told = {"errno": one.errno, "filename": absolute(one.filename), "access": access(places)}
            if isinstance(one.filename2, (str, bytes, os.PathLike)):
                told["filename2"] = absolute(one.filename2)
            return told
    return None


def absolute(path: "str | bytes | os.PathLike") -> str:  # type: ignore[type-arg]
    """The path from the folder that the tool is in now."""
    try:
        return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - as text
    except OSError:  # The folder is gone.
        return os.fsdecode(path)


def socket_of(error: BaseException) -> "tuple":  # type: ignore[type-arg]
    """Family and kind of the socket that was asked for; those of most, where that is not known."""
    step = error.__traceback__
    while step is not None:
        known = step.tb_frame.f_locals
        if step.tb_frame.f_code.co_name == "__init__" and "family" in known and "type" in known:
            return known["family"], known["type"] & 0xF
        step = step.tb_next
    return INET[0], STREAM


def chain(error: BaseException) -> "list[BaseException]":
    """The exception and those it was raised from."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting and len(found) < 10:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or any(one is other for other in found):
            continue
        found.append(one)
        context = None if one.__suppress_context__ else one.__context__
        waiting += [one.__cause__, getattr(one, "reason", None), context]
    return found


def access(places: "traceback.StackSummary") -> str:
    """What the lines of source were about to do, the innermost that says so first."""
    for place in reversed(places[-6:]):
        for kind, pattern in (("entry", ENTRIES), ("write", WRITES), ("read", READS)):
            if re.search(pattern, place.line or ""):
                return kind
    return "read"


def host_of(error: BaseException) -> "tuple":  # type: ignore[type-arg]
    """Host and port that the functions of `socket` were called with."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_name in ("create_connection", "getaddrinfo"):
            known = step.tb_frame.f_locals
            address = known.get("address")
            asked = (known.get("host"), known.get("port"))
            host, port = address[:2] if isinstance(address, tuple) and len(address) > 1 else asked
            if isinstance(host, str) and host:
                return host, port if isinstance(port, int) else None
        step = step.tb_next
    return None, None


def observe() -> "dict":  # type: ignore[type-arg]
    """Begin to note the hosts that are looked up, and the variables that are read through `os.environ`.

    This helps whoever reads the trace, and holds nothing: code that wants to can go round it.
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


def rehearse() -> None:
    """Make a call that does nothing (see `zygote.rehearse`)."""
    job = {"module": "json", "function": "loads", "args": ["1"], "kwargs": {}, "returns": "json"}
    answer(json.loads(json.dumps({**job, "path": [], "cwd": []})))


def main() -> None:
    """Answer with {"value": …} or {"error": …, "message": …}; the traceback goes to standard error."""
    ours = os.getpid()
    os.set_inheritable(3, False)
    seen = None
    try:
        job = json.loads(sys.stdin.buffer.read())
        seen = observe() if job.get("trace") else None
        told = answer(job)
    except BaseException as error:  # SystemExit too: the caller must be told
        told = failure(error)
        place = error.__traceback__
        while place is not None and place.tb_frame.f_code.co_filename == __file__:
            place = place.tb_next
        traceback.print_exception(error.with_traceback(place))
    if seen is not None:
        lists = {name: [*found] for name, found in seen.items()}
        told = told[:-1] + b', "trace": ' + json.dumps(lists).encode() + b"}"
    if os.getpid() == ours:  # A forked child of the tool may come this way as well.
        rest = memoryview(told)
        while rest:
            rest = rest[os.write(3, rest) :]
        os.close(3)


if __name__ == "__main__":
    main()
