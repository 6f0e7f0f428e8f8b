"""Commands of `toolcrib` as processes of their own, without the time that each start of Python takes.

`run` has a server import the package once and fork a process for each command. What the start itself decides
(variables of Python, a program in front, a terminal) needs the installed program: `PROGRAM`.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

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
        self._socket = folder / "socket"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", str(self._socket), *modules],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
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
        texts = [os.fsdecode(word) for word in words]
        request = {"words": texts, "cwd": str(cwd), "env": dict(env)}
        with ExitStack() as stack:
            streams = [stack.enter_context(TemporaryFile()) for _ in range(3)]
            streams[0].write(stdin)
            streams[0].seek(0)
            client = stack.enter_context(self._connected())
            descriptors = [stream.fileno() for stream in streams]
            socket.send_fds(client, [json.dumps(request).encode() + b"\n"], descriptors)
            answer = client.recv(100)
            assert answer, "the server of commands has gone"
            out, err = (os.pread(stream, os.fstat(stream).st_size, 0) for stream in descriptors[1:])
            return subprocess.CompletedProcess(["toolcrib", *texts], int(answer), out, err)

    def _connected(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                client.connect(str(self._socket))
                return client
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < deadline, "the server of commands has not started"
                time.sleep(0.01)

    def program(self) -> Path:
        """Return a folder with a program `toolcrib` for shells, which has the server run its command."""
        folder = self.folder / "bin"
        if not folder.exists():
            folder.mkdir()
            self._connected().close()
            script = folder / "toolcrib"
            script.write_text(f"#!{sys.executable} -IS\n" + CLIENT.replace("SOCKET", str(self._socket)))
            script.chmod(0o755)
        return folder

    def close(self) -> None:
        """End the server."""
        self.process.communicate(timeout=LIMIT_S)


CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect("SOCKET")
    request = {"words": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}
    socket.send_fds(client, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
    status = int(client.recv(100))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


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
