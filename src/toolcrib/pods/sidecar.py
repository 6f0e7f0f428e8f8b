"""The sidecar: runs the commands of requests in its own container, each confined."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.settings import BuiltinSettings, RootFolder
from toolcrib.builtin.shell.confined import run_confined
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import BuiltinFunction
from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import UsageError
from toolcrib.executors.directory import host_of
from toolcrib.executors.output import facts
from toolcrib.executors.workspace.workspace import LowestLevel, Workspace
from toolcrib.pods.ipc import Server, shown
from toolcrib.pods.outputs import Outputs
from toolcrib.pods.protocol import EXEC, WORKSPACE, ExecRequest, ExecResult
from toolcrib.pods.spool import Spool
from toolcrib.sandbox import Confinement, Warmth, configure
from toolcrib.sandbox.files.paths import within
from toolcrib.spec import CallContext, Level, Network, Outcome, Permissions
from toolcrib.spec.record import record

_IN_POD = os.path.lexists(WORKSPACE)
_TIMED_OUT = 124
"""The exit code of a command that was ended at its limit, as timeout(1) has it."""
_LONG_S = 30 * 86_400.0
_NAME = "execute"


@record
class Box:
    """The surroundings that commands get in a sidecar. Paths are absolute."""

    workspace: str
    """The folder that they may write, and where they start."""
    read: tuple[str, ...] = ()
    """Folders and files that they may read."""
    network: Network = Network()
    env: tuple[str, ...] = ()
    """Names of variables of the sidecar that they get."""
    minimum: Level = "full"
    """The lowest sandbox level that they may run at."""
    owned: bool = False
    """Nobody else runs programs in the workspace, so nothing in it is protected from commands."""


class _OwnedWorkspace(Workspace):
    """A workspace in which `.git`, `.env` and the like are files as all others."""

    def tool_job(self, *given: Any, **named: Any) -> Confinement:
        return replace(super().tool_job(*given, **named), protect=(), hide=())


def command_tools(box: Box, ipc: str) -> Toolset:
    """Return a toolset with the one tool `execute`, whose commands never see the IPC folder.

    Raises UsageError if that folder and one of theirs contain each other.
    """
    workspace, ipc = os.path.realpath(box.workspace), os.path.realpath(ipc)
    if within(workspace, ipc) or within(ipc, workspace, *map(os.path.realpath, box.read)):
        raise UsageError(
            f"the IPC folder {ipc} and a folder of the commands contain each other: they could forge results",
            hint="Give --ipc a folder outside of --workspace and --read.",
        )
    roots = [RootFolder("workspace", workspace, True), *(RootFolder(path, path) for path in box.read)]
    settings = BuiltinSettings(tuple(roots))
    lowest = LowestLevel(box.minimum, "To allow it, start the sidecar with --sandbox-minimum landlock.")
    kind = _OwnedWorkspace if box.owned else Workspace
    files = kind(workspace, f"{workspace}/.toolcrib", lowest=lowest)

    def permissions(settings: BuiltinSettings) -> Permissions:
        return Permissions(box.network, settings.read, settings.write, env=box.env)

    definition = Builtin(
        name=_NAME,
        description="Run a program with its arguments.",
        properties={
            "id": string("The request."),
            "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "workdir": string("The working folder."),
            "timeout": {"type": "number"},
            "stdin": string("The input of the program."),
        },
        run=_execute,
        permissions=permissions,
        runs_shell=True,
        grace_s=1.0,
    )
    tools = Toolset()
    tool = definition.tool(settings)
    site = Site(tool, replace(host_of(workspace, tools), workspace=lambda: files), settings)
    tools.add(BoundTool(tool, lambda: BuiltinFunction(site, definition)))
    return tools


async def _execute(
    site: Site, ctx: CallContext, id: str, argv: list[str], workdir: str, timeout: float, stdin: str
) -> Outcome:
    """Run a command and return the fields of its result, however it ended."""
    home = site.settings.roots[0].path
    # Where the folder is elsewhere, commands find it by its name in a pod too.
    links = () if _IN_POD else ((WORKSPACE, home),)
    with Outputs(home, id) as outputs:
        ran = await run_confined(
            site,
            ctx,
            tuple(argv),
            _inside(workdir, home),
            timeout,
            stdin=stdin.encode(),
            links=links,
            on_long=outputs.take,
        )
        done, notes = ran.done, list(ran.warnings)
        stdout = outputs.text("stdout", done.stdout, done.stdout_total, notes)
        stderr = outputs.text("stderr", done.stderr, done.stderr_total, notes)
    code = done.exit_code if done.signal is None else 128 + done.signal
    value = {
        "exit_code": _TIMED_OUT if done.timed_out else code,
        "stdout": stdout,
        # In the one stream of the result that is for people, where no cut takes them away.
        "stderr": "".join(f"toolcrib: {note}\n" for note in notes) + stderr,
        "timed_out": done.timed_out,
    }
    return Outcome(value, (), facts(done))


def _inside(workdir: str, home: str) -> str:
    """Return a working folder by its real name."""
    is_inside = workdir == WORKSPACE or workdir.startswith(f"{WORKSPACE}/")
    return home + workdir[len(WORKSPACE) :] if is_inside else workdir or home


async def serve_sidecar(
    ipc: str,
    box: Box,
    *,
    targets: tuple[str, ...] = (),
    owners: tuple[int, ...] = (),
    concurrency: int = 8,
    stop: asyncio.Event | None = None,
    ready: Callable[[Spool], None] = lambda _: None,
) -> None:
    """Serve the commands in an IPC folder: those for these targets, and those for any."""
    tools = command_tools(box, ipc)
    # A burst of requests finds as many sandboxes ready as it may use, and an idle sidecar keeps them.
    configure(Warmth(idle_s=_LONG_S, spare_idle_s=_LONG_S, spares=concurrency, spares_each=concurrency))

    async def execute(id: str, request: ExecRequest) -> ExecResult:
        id = shown(id)
        arguments: dict[str, Any] = {
            "id": id,
            "argv": request.line,
            "workdir": request.work_dir,
            "timeout": request.seconds,
            "stdin": request.stdin,
        }
        return ExecResult(id, **(await tools.call(_NAME, arguments)).unwrap())

    spool = Spool(ipc, EXEC.folder, owners)
    try:
        ready(spool)
        served = ("", *targets)
        await Server(
            spool, EXEC, execute, accepts=lambda request: request.target in served, concurrency=concurrency
        ).run(stop)
    finally:
        spool.close()
