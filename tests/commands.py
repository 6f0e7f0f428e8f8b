"""Commands of `toolcrib` as processes of their own, without the time that each start of Python takes.

`run` and `Forked` have a server import the package once and fork a process for each command. What the start
itself decides (variables of Python, a program in front) needs the installed program: `PROGRAM`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from io import RawIOBase
from pathlib import Path
from typing import Any, Literal

from tests.crib import accept
from tests.patience import patient
from toolcrib.errors import ToolcribError
from toolcrib.project import find

__all__ = [
    "PROGRAM",
    "CommandServer",
    "Forked",
    "accept_before",
    "complete",
    "decide_before",
    "decides",
    "run",
    "shared_server",
    "text",
]

PROGRAM = str(Path(sys.executable).with_name("toolcrib"))
LIMIT_S = 100
SHARED = "TESTS_COMMAND_SERVER"
"""The variable that names the folder of the server that all processes of a run of tests share."""
_LAZY = (
    *(
        "aiohttp",
        "anyio._backends._asyncio",
        "jsonschema_rs",
        "mcp.client",
        "pydantic_ai.direct",
        "pydantic_ai.models.function",
    ),
    *("rapidfuzz.process", "re2", "ruamel.yaml", "ryaml", "uvloop"),
)
"""Libraries that the package imports when it first needs them."""


class CommandServer:
    """A process of `tests.command_server`.

    If the folder exists, it is that of a server which another process has started, and ends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket = folder / "socket"
        self.process: subprocess.Popen[bytes] | None = None
        if folder.exists():
            return
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", str(self._socket), *_LAZY],
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
        texts = [PROGRAM, *(os.fsdecode(word) for word in words)]
        with ExitStack() as stack:
            # In memory: for a new file a file system looks through all that was deleted lately.
            streams = [stack.enter_context(open(os.memfd_create(""), "w+b")) for _ in range(3)]
            streams[0].write(stdin)
            streams[0].seek(0)
            descriptors = [stream.fileno() for stream in streams]
            answers = stack.enter_context(self.start(texts, cwd, env, descriptors))
            _, status = answers.readline(), answers.readline()
            assert status, "the server of commands has gone"
            out, err = (os.pread(stream, os.fstat(stream).st_size, 0) for stream in descriptors[1:])
            return subprocess.CompletedProcess(texts, int(status), out, err)

    def start(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int], **how: bool
    ) -> RawIOBase:
        """Start a process; its number, and its exit status once it ends, can be read, each on a line.

        Arguments:
            how: `session`, it leads a new one; `terminal`, the streams' terminal is its own.
        """
        if words[0] == PROGRAM:
            decide_before(words[1:], cwd, env)
        request = {"words": words, "cwd": str(cwd), "env": dict(env), "session": False, "terminal": False}
        with self._connected() as client:
            socket.send_fds(client, [json.dumps(request | how).encode() + b"\n"], streams)
            return client.makefile("rb", 0)

    def _connected(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(patient(LIMIT_S))
        began = time.monotonic()
        while True:
            try:
                client.connect(str(self._socket))
                return client
            except (FileNotFoundError, ConnectionRefusedError):
                if self.process is not None:
                    assert self.process.poll() is None, "the server of commands has ended"
                else:  # Another process started it.
                    assert time.monotonic() - began < patient(LIMIT_S), "there is no server of commands"
                time.sleep(0.01)

    def program(self, name: Literal["toolcrib", "python"] = "toolcrib") -> Path:
        """Return a program for others to start, in a folder of such, which has the server run its words."""
        script = self.folder / f"{name}-bin" / name
        if not script.exists():
            script.parent.mkdir(exist_ok=True)
            self._connected().close()
            part = script.with_name(f"{os.getpid()}")
            part.write_text(f"#!{sys.executable} -IS\n" + CLIENT.replace("SOCKET", str(self._socket)))
            part.chmod(0o755)
            part.replace(script)
        return script

    def close(self) -> None:
        """End the server."""
        if self.process is not None:
            self.process.communicate(timeout=patient(LIMIT_S))


CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect("SOCKET")
    request = {"words": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}
    request |= {"session": False, "terminal": False}
    socket.send_fds(client, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
    status = int(client.makefile().read().split()[1])
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@cache
def shared_server() -> CommandServer:
    """Return the server that all tests of a run share; one that is started here ends with this process."""
    if SHARED in os.environ:
        return CommandServer(Path(os.environ[SHARED]))
    folder = Path(tempfile.mkdtemp(prefix="toolcrib-commands-")) / "server"
    made = CommandServer(folder)
    atexit.register(shutil.rmtree, made.folder.parent, ignore_errors=True)
    atexit.register(made.close)
    return made


class Forked(subprocess.Popen[Any]):
    """A process of Python or `toolcrib`, forked from the server instead of started anew.

    Arguments:
        argv: `PROGRAM` or `sys.executable` with its words; Python has the options `-W error`, `-c` and `-m`.
        terminal: the terminal of the streams becomes its own.
        options: those of `Popen`.
    """

    def __init__(self, argv: Sequence[str], *, terminal: bool = False, **options: Any) -> None:
        assert argv[0] in (PROGRAM, sys.executable), argv
        self._how = {"terminal": terminal, "session": terminal or options.pop("start_new_session", False)}
        super().__init__(argv, **options)

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        cwd, env, pipes = more[4], more[5], more[9:15]
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        streams = [given if given != -1 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self._answers = shared_server().start(
            [*map(str, args)], cwd or Path.cwd(), os.environ if env is None else env, streams, **self._how
        )
        self.pid = int(self._answers.readline())
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._has_ended(0):
            self._wait(None)
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        """Wait for the answer; by poll(2), since the tests may have more files open than select(2) takes."""
        answers = select.poll()
        answers.register(self._answers, select.POLLIN)
        return bool(answers.poll(None if timeout is None else timeout * 1000))

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not self._has_ended(timeout):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
        return self.returncode


def complete(
    argv: Sequence[str],
    *,
    input: Any = None,  # noqa: A002 - the name of `subprocess.run`
    capture_output: bool = False,
    timeout: float = LIMIT_S,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a forked process to its end, as `subprocess.run` runs one that is started anew."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Forked(argv, **options) as process:
        out, err = process.communicate(input, patient(timeout))
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


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
    data = env.get("TOOLCRIB_DATA")
    if (root := _root(words, cwd, env)) is not None:
        with suppress(ToolcribError):
            accept(root, Path(data) if data else None)


def decide_before(words: Sequence[str | bytes], cwd: Path, env: Mapping[str, str]) -> None:
    """Allow all decisions without a terminal in the project of a command, in the settings of all tests.

    A test with settings of its own (`TOOLCRIB_CONFIG`) writes them itself.
    """
    settings, root = Path(os.environ["TOOLCRIB_CONFIG"]), _root(words, cwd, env)
    if root is not None and env.get("TOOLCRIB_CONFIG") == str(settings):
        part = settings.with_suffix(f".{threading.get_ident()}")  # Two threads may do this at once.
        part.write_text(decides(root))
        part.replace(settings)


def decides(root: Path, *what: str) -> str:
    """Return the user's settings that allow these decisions, or all, without a terminal in a project."""
    entry = {"what": what or ("trust", "approve", "token"), "where": [str(root)]}
    return f"decide_without_terminal: {json.dumps([entry])}\n"


def _root(words: Sequence[str | bytes], cwd: Path, env: Mapping[str, str]) -> Path | None:
    """Return the path of the project that a command is about; None if there is none that can be opened."""
    named = words[words.index("--root") + 1] if "--root" in words[:-1] else env.get("TOOLCRIB_ROOT", ".")
    try:
        start = (Path(cwd) / os.fsdecode(named)).resolve()
    except (OSError, RuntimeError):  # A loop of links.
        return None
    for folder in (start, *start.parents):
        with suppress(ToolcribError, OSError):
            return find(folder).path
    return None


def text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Decode the output of a command."""
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)
