"""An AgentRun as processes of this machine: what the operator runs as the containers of a pod."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from toolcrib.errors import NotFoundError, UnavailableError
from toolcrib.executors.mcp.process.unconfined import dying_with_us
from toolcrib.manifest import failure, load, read
from toolcrib.pods.operator.resources import AgentRunSpec, InstanceSpec, environment
from toolcrib.pods.protocol import EXEC, MESSAGES, OUTPUT, AgentResult

_TOOLCRIB = (sys.executable, "-P", "-m", "toolcrib")
_NATS = "nats-server"
_END_S = 15.0
_LOG_LINES = 5


class _Metadata(Struct):
    name: str


class AgentRun(Struct):
    """An AgentRun as its file has it."""

    kind: Literal["AgentRun"]
    metadata: _Metadata
    spec: AgentRunSpec


def read_run(path: Path) -> AgentRun:
    """Return the AgentRun of a file. Raises ManifestError for any other content, NotFoundError."""
    try:
        document = load(read(str(path)), str(path))
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}") from None
    try:
        return msgspec.convert(document.data, AgentRun)
    except msgspec.ValidationError as error:
        raise failure([document.diagnostic("dialect", f"this is not an AgentRun: {error}")]) from None


class LocalPod:
    """The folders and processes of one run. An interrupted one goes on when it is run again."""

    def __init__(self, run: AgentRun, folder: Path, workspace: Path | None, skills: Path | None) -> None:
        self._run, self.folder = run, folder
        self.workspace, self._is_own = workspace or folder / "workspace", workspace is None
        self._skills = skills or folder / "skills"
        for path in (folder, self.workspace, self._skills):
            path.mkdir(parents=True, exist_ok=True)

    async def run(self) -> AgentResult:
        """Run it to its end and return the result. Raises UnavailableError if a process ends early."""
        ipc, name = self.folder / "ipc", self._run.metadata.name
        folders = ["--ipc", str(ipc), "--workspace", str(self.workspace)]
        variables = environment(name, self._run.spec, InstanceSpec())
        async with AsyncExitStack() as stack:

            async def start(program: str, *words: str, **more: str) -> None:
                started = self._process(program, (*_TOOLCRIB, program, *words), {**variables, **more})
                processes[program] = await stack.enter_async_context(started)

            processes: dict[str, asyncio.subprocess.Process] = {}
            if url := await self._nats(stack):
                await start(
                    "bridge", "--ipc", str(ipc), "--state", str(self.folder / "bridge.db"), NATS_URL=url
                )
            targets = (f"--target={one.name}" for one in self._skills.iterdir() if one.is_dir())
            await start("sidecar", *folders, *targets, *["--own-workspace"] * self._is_own)
            more = ["--skills", str(self._skills), "--state", str(self.folder / "state"), "--recorded"]
            await start("pod-run", *folders, *more)
            ends = {asyncio.create_task(one.wait()): program for program, one in processes.items()}
            ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            program = ends[ended.pop()]
            for task in ends:
                task.cancel()
            result = ipc / OUTPUT / "result.json"
            if program != "pod-run" or processes[program].returncode:
                raise self._failed(program)
            found = msgspec.json.decode(result.read_bytes(), type=AgentResult)
        # The next run of this name is another one. Messages stay until a bridge has them.
        for folder in (self.folder / "state", ipc / OUTPUT, ipc / EXEC.folder):
            shutil.rmtree(folder)
        return found

    @property
    def waiting(self) -> int:
        """The number of messages that no bridge has taken."""
        return len(list((self.folder / "ipc" / MESSAGES.folder).glob("send-*.json")))

    async def _nats(self, stack: AsyncExitStack) -> str | None:
        """Return the address of NATS: the one that is set, or that of a server that is started here."""
        if url := os.environ.get("NATS_URL"):
            return url
        program = Path(sys.executable).with_name(_NATS)
        found = str(program) if program.exists() else shutil.which(_NATS)
        if found is None or find_spec("nats") is None:
            return None
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = (found, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(self.folder / "nats"))
        await stack.enter_async_context(self._process(_NATS, words, {}))
        return f"nats://127.0.0.1:{port}"

    def _failed(self, name: str) -> UnavailableError:
        lines = self._log(name).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return UnavailableError(f"`{name}` ended: {' '.join(lines) or 'it said nothing'}")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @asynccontextmanager
    async def _process(
        self, name: str, words: Sequence[str], variables: Mapping[str, str]
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a program, which is ended when the block is left. Its log is a file."""
        with self._log(name).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                # Killed, it could not end them.
                *dying_with_us(words[0], *words),
                env={**os.environ, **variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches this process alone, which ends the others in their order.
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
