"""The runner of an agent in a pod: one task, configured by the environment, its result in files.

The run is a durable one of a project that only this pod has. So a runner that is started again continues it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.settings import BuiltinSettings, RootFolder
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import BuiltinFunction
from toolcrib.core.bound import BoundTool
from toolcrib.errors import ToolcribError, UsageError
from toolcrib.executors.directory import host_of
from toolcrib.guard import EnvironmentSecrets
from toolcrib.pods.ipc import Client
from toolcrib.pods.prompt import find_skills, system_prompt
from toolcrib.pods.protocol import EXEC, MESSAGES, OUTPUT, AgentResult, StatusUpdate, StreamChunk
from toolcrib.pods.spool import Spool
from toolcrib.pods.tools import execute_command, find_packs, send_channel_message, sidecar_tool
from toolcrib.project import Config, Project, find
from toolcrib.runs.agents import Agent
from toolcrib.runs.agents.providers import PROVIDERS
from toolcrib.runs.sessions import Run
from toolcrib.spec import Call, CallContext, views
from toolcrib.spec.model_provider import ModelProvider
from toolcrib.spec.moment import written
from toolcrib.spec.record import record
from toolcrib.state import Vault

_log = logging.getLogger("toolcrib.pods")
_NATIVE = ("read_file", "write_file", "list_directory", "fetch_url")
_TOOLS = ("execute_command", *_NATIVE, "send_channel_message")
_END_BYTES = 4_096
"""Bytes of a result that Kubernetes keeps in the status of a pod."""
_FALSE = ("false", "0", "no", "off")


@record
class Task:
    """A task for an agent, as the environment of its container describes it."""

    task: str
    provider: str
    model: str
    system: str = ""
    base_url: str = ""
    script: str = ""
    """JSON: the answers of the model `scripted`."""
    tools: bool = True
    channel: str = ""
    chat: str = ""
    instance: str = ""
    run_id: str = ""
    target: str = ""
    """The sidecar that runs commands; empty for any."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Task:
        """Read it. Raises UsageError for what is missing."""
        get = environ.get
        for name in ("TASK", "MODEL_PROVIDER", "MODEL_NAME"):
            if not get(name) and not (name == "MODEL_NAME" and get("MODEL_PROVIDER") == "scripted"):
                raise UsageError(
                    f"{name} is not set", hint="The environment of the container describes the task."
                )
        return cls(
            environ["TASK"],
            environ["MODEL_PROVIDER"],
            get("MODEL_NAME", ""),
            get("SYSTEM_PROMPT", ""),
            get("MODEL_BASE_URL", ""),
            get("MODEL_SCRIPT", ""),
            get("TOOLS_ENABLED", "true").lower() not in _FALSE,
            get("SOURCE_CHANNEL", ""),
            get("SOURCE_CHAT_ID", ""),
            get("INSTANCE_NAME", ""),
            get("AGENT_RUN_ID", ""),
            get("EXEC_TARGET", ""),
        )

    @property
    def providers(self) -> tuple[ModelProvider, ...]:
        """The provider, where it is not at its usual address."""
        if not self.base_url:
            return ()
        usual = {one.name: one for one in PROVIDERS}.get(self.provider)
        api, key = ("openai", f"{self.provider.upper().replace('-', '_')}_API_KEY") if usual is None else (
            usual.api, usual.key
        )  # fmt: skip
        return (ModelProvider(self.provider, api, self.base_url, key if os.environ.get(key or "") else None),)


@record
class Folders:
    """The folders of a runner, which its tools know by their names in a pod."""

    ipc: str = "/ipc"
    workspace: str = "/workspace"
    skills: str = "/skills"
    tmp: str = "/tmp"  # noqa: S108 - that of the container
    state: str = "/state"
    """The database of the run. No other container needs it."""
    end: str = "/dev/termination-log"
    """A file of Kubernetes, whose text stays in the status of the pod; used if it exists."""

    @property
    def roots(self) -> tuple[RootFolder, ...]:
        """The folders that tools may use: two of them for writing."""
        named = ("workspace", self.workspace), ("skills", self.skills), ("tmp", self.tmp), ("ipc", self.ipc)
        return tuple(
            RootFolder(f"/{name}", os.path.realpath(path), name in ("workspace", "tmp"))
            for name, path in named
            if os.path.isdir(path)
        )


class PodRunner:
    """Runs one task to its end."""

    def __init__(self, task: Task, folders: Folders) -> None:
        self._task, self._folders = task, folders
        self._began = time.monotonic()
        self._output = Spool(folders.ipc, OUTPUT)
        self._calls = self._parts = 0
        self._written = ""
        """The parts of the answer that is being written."""

    async def run(self) -> AgentResult:
        """Return the result, which is in its file then too. It never raises for a run that fails."""
        self._status("starting")
        try:
            done = await self._finished()
            result = AgentResult("success", done.answer or "")
            # An event of a part is gone once the whole answer is stored.
            if result.response.startswith(self._written):
                self._write_part(result.response[len(self._written) :])
            self._measure(result, done)
            if done.state != "done":
                result.status, result.response = "error", ""
                result.error = (
                    json.loads(done.error)["message"] if done.error else f"the run was {done.state}"
                )
        except ToolcribError as error:
            result = AgentResult("error", error=f"{error.message}. {error.hint or ''}".rstrip())
        self._measure(result)
        self._write("result.json", result)
        self._tell_operator(result)
        self._status("done" if result.status == "success" else "failed", result.error)
        return result

    async def _finished(self) -> Run:
        """Begin the run, or go on with the one that an earlier process began, to its end."""
        project = self._project()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(project)
            tools = await self._tools(project, stack) if self._task.tools else ()
            earlier = project.runs.page(limit=1, top=True)
            id = (
                earlier[0].id
                if earlier
                else project.runs.start(None, self._agent(tools), self._task.task, stream=True)
            )
            self._status("running")
            chunks = asyncio.create_task(self._stream(project, id))
            try:
                return await project.runs.wait(id)
            finally:
                chunks.cancel()
                await asyncio.gather(chunks, return_exceptions=True)

    def _project(self) -> Project:
        state = Path(self._folders.state)
        (state / ".toolcrib").mkdir(parents=True, exist_ok=True)
        options: Mapping[str, Any] = {}
        builtins = tuple((name, options) for name in _NATIVE) if self._task.tools else ()
        config = Config(builtins=builtins, roots=self._folders.roots, providers=self._task.providers)
        place = find(state)
        vault = Vault(place.path, state / "data")
        views.one_lead = "Error"
        project = Project(
            place,
            config,
            secrets=EnvironmentSecrets(),
            trusted=True,
            vault=vault,
            accept="all",
            database="sqlite",
        )
        project.toolset.use(self._logged)
        return project

    async def _tools(self, project: Project, stack: AsyncExitStack) -> tuple[str, ...]:
        """Add the tools that other containers carry out, and return the names of all."""
        requests = Spool(self._folders.ipc, EXEC.folder)
        client = await stack.enter_async_context(Client(requests, EXEC).opened())
        messages = Spool(self._folders.ipc, MESSAGES.folder)
        settings, host = BuiltinSettings(self._folders.roots), host_of(str(project.root), project)

        def add(definition: Builtin) -> None:
            tool = definition.tool(settings)
            site = Site(tool, host, settings)
            project.toolset.add(BoundTool(tool, lambda: BuiltinFunction(site, definition)))

        add(execute_command(client, self._task.target))
        task = self._task
        add(send_channel_message(messages, task.run_id, task.channel, task.chat))
        packs = [
            sidecar_tool(tool, client, target or self._task.target)
            for tool, target in find_packs(Path(self._folders.skills))
        ]
        project.toolset.add_all(packs)
        return (*_TOOLS, *(one.name for one in packs))

    def _agent(self, tools: tuple[str, ...]) -> Agent:
        task = self._task
        skills = (
            find_skills(Path(self._folders.skills)) if tools and os.path.isdir(self._folders.skills) else ()
        )
        prompt = system_prompt(task.system, tools, skills, task.channel, task.chat)
        scripted = task.provider == "scripted"
        return Agent(
            "agent",
            "scripted" if scripted else f"{task.provider}:{task.model}",
            prompt,
            tools=tools,
            script=tuple(json.loads(task.script or "[]")) if scripted else (),
        )

    def _logged(self, following: Callable[[Call, CallContext], Awaitable[Any]]) -> Any:
        async def handle(call: Call, ctx: CallContext) -> Any:
            self._calls += 1
            _log.info("tool call: %s", call.tool)
            return await following(call, ctx)

        return handle

    async def _stream(self, project: Project, id: str) -> None:
        """Write the parts of answers as they come."""
        async for event in project.runs.events(id):
            if event.kind == "text":
                self._write_part(str(event.document["detail"].get("text", "")))
            elif event.kind == "call_ended":  # What follows is another answer.
                self._written = ""

    def _write_part(self, text: str) -> None:
        if text:
            self._write(f"stream-{self._parts}.json", StreamChunk(self._parts, text))
            self._parts += 1
            self._written += text

    def _measure(self, result: AgentResult, run: Run | None = None) -> None:
        result.metrics |= {
            "durationMs": round((time.monotonic() - self._began) * 1000),
            "toolCalls": self._calls,
        }
        if run is not None:
            result.metrics |= {"inputTokens": run.input_tokens, "outputTokens": run.output_tokens}

    def _tell_operator(self, result: AgentResult) -> None:
        """Write the result where the operator reads it: a log line, and if it is short the pod's status."""
        text = msgspec.json.encode({"result": result.response, "error": result.error})
        _log.info("result: %s", text.decode())
        if len(text) <= _END_BYTES and os.path.exists(self._folders.end):
            Path(self._folders.end).write_bytes(text)

    def _status(self, phase: str, message: str = "") -> None:
        self._write("status.json", StatusUpdate(phase, message, written(time.time())))

    def _write(self, name: str, content: Struct) -> None:
        self._output.write(name, msgspec.json.encode(content))
