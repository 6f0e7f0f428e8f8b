"""An AgentRun as processes of this machine: what the operator runs as the containers of a pod."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from toolcrib.errors import ManifestError, UnavailableError
from toolcrib.manifest import failure, load, read
from toolcrib.pods.operator.resources import AgentRunSpec, InstanceSpec, environment
from toolcrib.pods.protocol import OUTPUT, AgentResult

_END_S = 15.0
_LOG_LINES = 5


class _Metadata(Struct):
    name: str


class AgentRun(Struct, rename="camel"):
    """One task of an agent."""

    api_version: str
    kind: str
    metadata: _Metadata
    spec: AgentRunSpec

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its runner."""
        return environment(self.metadata.name, self.spec, InstanceSpec())


def read_run(path: Path) -> AgentRun:
    """Return the AgentRun of a file. Raises ManifestError for any other content."""
    document = load(read(str(path)), str(path))
    try:
        run = msgspec.convert(document.data, AgentRun)
    except msgspec.ValidationError as error:
        raise failure([document.diagnostic("dialect", f"this is not an AgentRun: {error}")]) from None
    if run.kind != "AgentRun":
        raise ManifestError(f"{path} is a {run.kind}, and only an AgentRun can be run here")
    return run


class LocalPod:
    """The folders and processes of one run. An interrupted one goes on when it is run again."""

    def __init__(self, run: AgentRun, folder: Path, workspace: Path | None, skills: Path | None) -> None:
        self._run, self.folder = run, folder
        self.workspace = workspace or folder / "workspace"
        self._skills = skills or folder / "skills"
        for path in (folder, self.workspace, self._skills):
            path.mkdir(parents=True, exist_ok=True)

    async def run(self) -> AgentResult:
        """Run it to its end and return the result. Raises UnavailableError if a process ends early."""
        ipc = str(self.folder / "ipc")
        folders = ["--ipc", ipc, "--workspace", str(self.workspace)]
        async with AsyncExitStack() as stack:
            others = [await stack.enter_async_context(self._process("sidecar", *folders))]
            more = ["--skills", str(self._skills), "--state", str(self.folder / "state")]
            runner = await stack.enter_async_context(
                self._process("pod-run", *folders, *more, environment=self._run.environment)
            )
            waits = {asyncio.create_task(one.wait()): one for one in (runner, *others)}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if runner.returncode is None:
                raise self._failed("sidecar")
            for task in waits:
                task.cancel()
        try:
            result = msgspec.json.decode(
                (self.folder / "ipc" / OUTPUT / "result.json").read_bytes(), type=AgentResult
            )
        except FileNotFoundError:
            raise self._failed("pod-run") from None
        # The next run of this name is another one.
        shutil.rmtree(self.folder / "state")
        shutil.rmtree(self.folder / "ipc")
        return result

    def _failed(self, name: str) -> UnavailableError:
        lines = self._log(name).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return UnavailableError(f"`toolcrib {name}` ended: {' '.join(lines) or 'it said nothing'}")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @asynccontextmanager
    async def _process(
        self, name: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a command of this program, which is ended when the block is left. Its log is a file."""
        with self._log(name).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "toolcrib", name, *words),
                env={**os.environ, **(environment or {})},
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
