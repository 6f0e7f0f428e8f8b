"""Commands of `toolcrib` as processes of their own, without the time that each start of Python takes.

`run` has a server import the package once and fork a process for each command. What the start itself decides
(variables of Python, a program in front, a terminal) needs the installed program: `PROGRAM`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock

__all__ = ["PROGRAM", "CommandServer", "run", "shared_server", "text"]

PROGRAM = str(Path(sys.executable).with_name("toolcrib"))
LIMIT_S = 100


class CommandServer:
    """A process of `tests.command_server`; `modules` are further ones that it imports once."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.folder = folder
        folder.mkdir()
        self._lock = Lock()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", *modules],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(
        self, words: Sequence[str | bytes], cwd: Path, env: Mapping[str, str], stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command to its end."""
        with self._lock:
            (self.folder / "stdin").write_bytes(stdin)
            files = {name: self.folder / name for name in ("stdin", "stdout", "stderr")}
            texts = [os.fsdecode(word) for word in words]
            request = {"words": texts, "cwd": str(cwd), "env": dict(env)}
            request |= {name: str(file) for name, file in files.items()}
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
            assert ready, f"{words} is still running after {LIMIT_S} s"
            answer = self.process.stdout.readline()
            assert answer, "the server of commands has gone"
            out, err = files["stdout"].read_bytes(), files["stderr"].read_bytes()
            return subprocess.CompletedProcess(["toolcrib", *texts], int(answer), out, err)

    def close(self) -> None:
        """End the server."""
        self.process.communicate(timeout=LIMIT_S)


@cache
def shared_server() -> CommandServer:
    """Start the server that all tests of this process share; it ends with the process."""
    made = CommandServer(Path(tempfile.mkdtemp(prefix="toolcrib-commands-")) / "server")
    atexit.register(shutil.rmtree, made.folder.parent, ignore_errors=True)
    atexit.register(made.close)
    return made


def run(
    words: Sequence[str | bytes], cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end, by default in the environment of the tests."""
    return shared_server().run(words, cwd, os.environ if env is None else env, stdin)


def text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Decode the output of a command."""
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)
