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
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

from tests.crib import accept
from toolcrib.errors import ToolcribError
from toolcrib.project import find

__all__ = ["PROGRAM", "CommandServer", "accept_before", "run", "shared_server", "text"]

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
        self,
        words: Sequence[str | bytes],
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes = b"",
        *,
        accepted: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command to its end, in a project that its user has accepted as it is."""
        if accepted:
            accept_before(words, cwd, env)
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
    words: Sequence[str | bytes],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    *,
    accepted: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end, by default in the environment of the tests, in an accepted project."""
    environment = os.environ if env is None else env
    return shared_server().run(words, cwd, environment, stdin, accepted=accepted)


def accept_before(words: Sequence[str | bytes], cwd: Path, env: Mapping[str, str]) -> None:
    """Accept the project that a command runs tools of; nothing if there is none that can be opened."""
    if not words or words[0] not in ("run", "serve", "test", "trace"):
        return
    named = words[words.index("--root") + 1] if "--root" in words else env.get("TOOLCRIB_ROOT", ".")
    data = env.get("TOOLCRIB_DATA")
    start = (cwd / os.fsdecode(named)).resolve()
    for folder in (start, *start.parents):
        with suppress(ToolcribError):
            accept(find(folder).root, Path(data) if data else None)
            return


def text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Decode the output of a command."""
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)
