"""A warm interpreter: a Python call is a fork of one that already runs, instead of a fresh start.

The launcher of an interpreter has loaded part of the standard library, and the script, which is ours. Each
call is a fork of it that is confined first. Only when the call comes `site` adds the packages of a virtual
environment, which runs its `.pth` files, and the script's `main` imports the tool's module. Nothing else of
the launcher's code is on the stack by then (`RunScript`), so the interpreter ends like any other. A process
is used once.

docs/sandbox.md names what a tool could notice of it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `privileges`
import atexit
import errno
import gc
import os
import sys

from toolcrib.sandbox.kernel.messages import RunScript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

PRELOADED = (
    "json", "re", "traceback", "inspect", "datetime", "pathlib", "typing", "dataclasses", "collections.abc",
    "functools", "itertools", "math", "random", "time", "base64", "hashlib", "io", "logging", "shutil",
    "subprocess", "tempfile", "threading", "uuid", "csv", "decimal", "urllib.request", "asyncio", "sqlite3",
    "zipfile", "importlib.resources", "importlib.readers", "site",
)  # fmt: skip
"""Loaded one after the other while the launcher has nothing else to do. Importing `site` under -S runs
nothing."""

scripts: dict[str, ModuleType] = {}
ours: list[str] = []
"""Names of our own modules. Collected in the launcher: a child that goes through `sys.modules` writes a
reference count into each entry, and so copies half a megabyte of memory that it shares."""
succeeded_in: list[int] = []
"""The process whose script has come to its end."""


def load(path: str) -> ModuleType:
    """Load a script under another name than `__main__`, so that it defines `main` and does not run it."""
    if path not in scripts:
        ours[:] = [name for name in sys.modules if name.partition(".")[0] == "toolcrib"]
        module = type(sys)("toolcrib_script")
        module.__file__ = path
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - a file of ours
        scripts[path] = module
    return scripts[path]


def prepare(warm: dict[str, Any], *, keep_package: bool = False) -> ModuleType:
    """Do, in the child, what can be done before the call; return the script.

    The packages of a virtual environment are not added here: their `.pth` files are code of the tool's.

    Arguments:
        keep_package: leave `toolcrib` importable as it is, for functions of the server's own.
    """
    script = load(warm["script"])
    if not keep_package:
        forget_package()
    sys.argv = [warm["script"]]
    if warm["executable"] == sys.executable:  # The machine's own packages, which no project can bring.
        add_packages(sys.executable)
    gc.freeze()  # Otherwise the first collection would write to, and so copy, all that is shared.
    gc.enable()
    return script


def add_packages(executable: str) -> None:
    """Become the interpreter of this name, with its packages; runs their `.pth` files."""
    sys.executable = executable
    home = os.path.dirname(os.path.dirname(executable))
    if os.path.isfile(os.path.join(home, "pyvenv.cfg")):
        sys.prefix = sys.exec_prefix = home
    import site

    site.main()


def know_package(path: list[str]) -> None:
    """Make our whole package importable, as functions of the server need it, not only the launcher's part.

    Arguments:
        path: the server's `sys.path`.
    """
    forget_package()
    sys.path[:] = path


def forget_package() -> None:
    """Make the names of our modules free for others; what runs here keeps its own alive."""
    for name in ours:
        sys.modules.pop(name, None)


def run_script(script: ModuleType, executable: str, env: dict[str, str]) -> None:
    """Leave the launcher's code and run the script as the program of this process.

    Arguments:
        executable: the interpreter as the tool knows it. Packages of a virtual environment are added here.
    """
    import time

    # Through `os.environ`, so that code in C finds the variables as well (putenv(3)).
    os.environ.clear()
    os.environ.update(env)
    # The C library read TZ when the launcher started.
    time.tzset()
    set_signals()
    script.__name__ = "__main__"
    sys.modules["__main__"] = script

    def main() -> None:
        if sys.executable != executable:
            add_packages(executable)
        script.main()
        succeeded_in.append(os.getpid())

    raise RunScript(main)


def set_signals() -> None:
    """Set signals as an interpreter does at its start: some come as exceptions."""
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(ignored, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


@atexit.register
def skip_teardown() -> None:
    """End a process at once, when its script has succeeded and every other exit function has run.

    Registered before all others, so it runs last. Freeing each object of the interpreter would take longer
    than a call. A process that a tool forked ends as it likes.
    """
    if succeeded_in != [os.getpid()]:
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # The interpreter reports it.
            return
    if is_alone():
        # The server sees the end of the streams and does not wait until the kernel has freed the memory.
        os.closerange(0, 4)
    os._exit(0)


def is_alone() -> bool:
    """Return True if the sandbox has no process but this one and pid 1 (kill(2): -1 means neither of
    them)."""
    try:
        os.kill(-1, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False
