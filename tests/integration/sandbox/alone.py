"""Runs a script with a bare interpreter, as whoever runs the tests or as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import need
from toolcrib.sandbox.kernel import seccomp

NOBODY = 65534
PATH = "/usr/local/bin:/usr/bin:/bin"
PREAMBLE = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def load(name):
    for package, places in ("toolcrib", []), ("toolcrib.sandbox", [sys.argv[1]]):
        sys.modules[package] = made = type(sys)(package)
        made.__path__ = places
    import importlib
    return importlib.import_module("toolcrib.sandbox.kernel." + name)
def no_new_privs():
    assert libc.prctl(38, 1, 0, 0, 0) == 0
def code(call, *args, **more):
    try:
        call(*args, **more)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
def syscall(number, *args):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "ok"
given = json.loads(sys.argv[2])
"""


@dataclass(frozen=True)
class Alone:
    """A bare interpreter, a folder it can write to, and who it runs as."""

    python: str
    folder: Path
    user: int | None

    def run(self, script: str, given: object = None) -> subprocess.CompletedProcess[str]:
        """Run a script after the preamble; `given` comes in as JSON."""
        argv = [
            self.python,
            "-I",
            "-S",
            "-c",
            PREAMBLE + script,
            str(self.folder / "modules"),
            json.dumps(given),
        ]
        who: dict[str, Any] = {}
        if self.user is not None:
            who = {"user": self.user, "group": self.user, "extra_groups": []}
        return subprocess.run(
            argv,
            **who,
            cwd=self.folder / "room",
            env={"PATH": PATH, "HOME": str(self.folder / "room"), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    def answer(self, script: str, given: object = None) -> Any:
        """The same for a script that writes JSON."""
        done = self.run(script, given)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@contextmanager
def alone(who: str) -> Iterator[Alone]:
    """Prepare for `own` (whoever runs the tests) or `nobody` (an ordinary user, if that is root)."""
    if who == "nobody":
        need("root, to become an ordinary user", os.geteuid() == 0, of_root=True)
    with tempfile.TemporaryDirectory(prefix="alone-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        kernel = Path(str(seccomp.__file__)).parent
        shutil.copytree(kernel, folder / "modules/kernel")
        (folder / "room").mkdir()
        if who == "nobody":
            os.chown(folder / "room", NOBODY, NOBODY)
            python = next((path for path in interpreters() if runs_as_nobody(path)), None)
            need("a Python that an ordinary user may run", python is not None)
            assert python is not None
            yield Alone(python, folder, NOBODY)
        else:
            yield Alone(os.path.realpath(sys.executable), folder, None)


def interpreters() -> Iterator[str]:
    """Pythons of this machine, ours first."""
    yield os.path.realpath(sys.executable)
    for name in (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3"):
        if found := shutil.which(name, path=PATH):
            yield found


@cache
def runs_as_nobody(python: str) -> bool:
    """Whether an ordinary user may run it, and it is new enough."""
    argv = [python, "-I", "-S", "-c", "import sys, ctypes; sys.exit(sys.version_info < (3, 11))"]
    try:
        done = subprocess.run(
            argv, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0
