"""A running interpreter that becomes a script's: what a fresh one would do, without the wait for it.

The launcher of a Python interpreter has loaded part of the standard library and the script itself, which
is ours. Each call is a fork of it that is confined first; only there are the interpreter's own packages
made known (`site` runs what is installed), and only when the server says go does the script's `main` run
and import the tool's module. The process is used once.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `confined`
import ctypes
import gc
import importlib
import os
import sys

from toolcrib.sandbox.kernel.calls import held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

__all__ = [
    "PRELOADED",
    "begin_site",
    "call_main",
    "finish",
    "forget_ourselves",
    "know_ourselves",
    "load",
    "prepare",
    "rehearse",
    "run_main",
    "set_signals",
    "whole_package",
]

PRELOADED = (
    "json", "re", "traceback", "inspect", "datetime", "pathlib", "typing", "dataclasses", "collections.abc",
    "functools", "itertools", "math", "random", "time", "base64", "hashlib", "io", "logging", "shutil",
    "subprocess", "tempfile", "threading", "uuid", "csv", "decimal", "urllib.request", "asyncio", "sqlite3",
    "zipfile", "importlib.resources", "importlib.readers",
)  # fmt: skip
"""Loaded one after the other while the launcher has nothing else to do."""

UNKNOWN = "colorsys"
"""A small module of the standard library that hardly any tool imports, and no tool can put another before."""

scripts: dict[str, ModuleType] = {}
ours: list[str] = []
"""Names of our own modules. Found out in the launcher: a child that goes through all names writes a count of
its own into each, and so takes half a megabyte of what it shares."""


def load(path: str) -> None:
    """Load a script under another name than a program's, so that it defines `main` and does not run it."""
    if path in scripts:
        return
    ours[:] = [name for name in sys.modules if name.partition(".")[0] == "toolcrib"]
    module = type(sys)("toolcrib_script")
    module.__file__ = path
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - a file of ours
    scripts[path] = module


def prepare(warm: dict[str, Any], forget: bool = True) -> ModuleType:
    """In the child: be the interpreter that `executable` names, and know its packages; gives the script."""
    load(warm["script"])
    if forget:
        forget_ourselves()
    sys.executable = warm["executable"]
    sys.argv = [warm["script"]]
    sys.orig_argv = [sys.executable, "-I", "-X", "utf8", warm["script"]]
    find_packages()
    look_into(warm["modules"])
    gc.freeze()  # So that the first collection has nothing to go through, and to write to.
    gc.enable()
    return scripts[warm["script"]]


def rehearse(script: ModuleType) -> None:
    """Do once what each call does, with nothing of the tool's: what that writes to is then no longer shared.

    The first write to a page after a fork makes the kernel copy it, which costs more than most of what runs
    in a call.
    """
    importlib.import_module(UNKNOWN)
    del sys.modules[UNKNOWN]
    script.rehearse()


def know_ourselves(path: list[str]) -> None:
    """Let our whole package be imported, as the modules of the server's functions do, not the launcher alone.

    Arguments:
        path: the server's `sys.path`.
    """
    forget_ourselves()
    sys.path[:] = path


def whole_package() -> bool:
    """Whether `toolcrib` is known as what it is."""
    return getattr(sys.modules.get("toolcrib"), "__file__", None) is not None


def forget_ourselves() -> None:
    """Our modules are kept alive by what runs here; who imports any of these names gets his own."""
    for name in ours:
        sys.modules.pop(name, None)


def find_packages() -> None:
    """What `site` does at the start of an interpreter (site.main)."""
    import builtins
    import site

    if not hasattr(builtins, "exit"):  # A call that came before the launcher had got to it.
        add_names()
    home = os.path.dirname(os.path.dirname(sys.executable))
    if os.path.isfile(os.path.join(home, "pyvenv.cfg")):
        sys.prefix = sys.exec_prefix = home
        site.PREFIXES = [home]
    known = site.removeduppaths()
    known = site.venv(known) or known
    site.addsitepackages(known)
    site.execsitecustomize()
    tell_of_site()


def tell_of_site() -> None:
    """Have `sys.flags` say that `site` was run, as it was: who starts further interpreters goes by that.

    No object of its type can be made, and an attribute cannot be set, so its entry is written to.
    """
    write = held["PyStructSequence_SetItem"]  # an object of its own
    write.argtypes = (ctypes.py_object, ctypes.c_ssize_t, ctypes.py_object)
    write.restype = None
    write(sys.flags, type(sys.flags).__match_args__.index("no_site"), 0)


def begin_site() -> None:
    """The part of `site` that is the same for all, in the launcher: nothing that is installed is run here.

    Folders of installed packages are listed: who imports from them looks only whether they have changed.
    """
    import site

    add_names()
    look_into(site.getsitepackages())


def add_names() -> None:
    """What `site` adds to the names that every module has: `exit`, `help`, `copyright` and their like."""
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()


def look_into(folders: Sequence[str]) -> None:
    """List folders for whoever imports from them: nothing is found, so nothing is run."""
    from importlib.machinery import PathFinder

    PathFinder.find_spec("toolcrib_nothing", folders)


def call_main(warm: dict[str, Any], env: dict[str, str]) -> None:
    """Run the script as the program of this process, which ends with it."""
    if os.environ:  # All of it: the launcher may have one that its interpreter could not start without.
        os.environ.clear()
    for name, value in env.items():  # `update` takes five times as long
        os.environ[name] = value
    if "time" in sys.modules and "TZ" in env:
        sys.modules["time"].tzset()
    set_signals()
    module = scripts[warm["script"]]
    module.__name__ = "__main__"
    sys.modules["__main__"] = module
    finish(run_main(module))


def set_signals() -> None:
    """Signals as an interpreter sets them at its start: what they would tell comes as an exception."""
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(ignored, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def run_main(module: ModuleType) -> int:
    """Call `main`; the exit status that an interpreter would end with."""
    try:
        module.main()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def finish(status: int) -> None:
    """What the end of an interpreter does, but for taking it to pieces."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # noqa: SLF001 - waits for threads that are no daemons
        import atexit

        atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name for it
    except BaseException:
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            status = status or 120
    if not status and alone():
        # The server need not wait until this process is taken to pieces.
        os.closerange(0, 4)
    os._exit(status & 0xFF)


def alone() -> bool:
    """Whether the sandbox holds no process but this one and pid 1 (kill(2): -1 means neither of them)."""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
