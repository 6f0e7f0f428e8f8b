"""The confined process of a local MCP server: its command, environment and permissions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.command.code_files import code_files
from toolcrib.executors.mcp.launch import Launch, MachineView, is_daemon_client, launch_of
from toolcrib.executors.mcp.launch.daemon_files import daemon_files
from toolcrib.executors.mcp.launch.data import data_named
from toolcrib.executors.mcp.launch.packages import offline_variables
from toolcrib.executors.mcp.process.refusals import LocalProcess
from toolcrib.executors.python.executor import runs_in
from toolcrib.executors.workspace.workspace import SYSTEM_PATH, Workspace, process_job
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, expand, values_needed
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.spec import McpExec, Tool
from toolcrib.spec.tools.tool import may_touch

_USUAL = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "DOCKER_HOST", "DOCKER_CONFIG")
"""Variables that an unconfined server gets."""


def process_of(spec: ServerSpec) -> Tool:
    """Return the server's process described as a tool. All its tools have its permissions."""
    return Tool(
        name=spec.name,
        description=spec.where,
        kind="mcp",
        input_schema={"type": "object"},
        config=McpExec(spec.name, ""),
        permissions=spec.permissions,
        bundle=spec.name,
    )


def needs(spec: ServerSpec, root: str) -> tuple[str, ...]:
    """Return what a local server reads because of what it is: its program, interpreter and packages."""
    return _launched(spec, root)[1] if spec.is_local else ()


def _launched(spec: ServerSpec, root: str) -> tuple[Launch, tuple[str, ...]]:
    """Return the command line that is really started and what it reads; nothing where that is unknown."""
    launch = Launch(*line_of(spec))
    try:
        return launch_of(launch, MachineView(root))
    except ToolUnavailable:  # It is not started either.
        return launch, ()


def line_of(spec: ServerSpec) -> tuple[tuple[str, ...], str, dict[str, str]]:
    """Return command line, folder and environment, with the variables that are no secrets filled in."""
    values = spec.permissions.environment(os.environ)

    def filled(text: str) -> str:
        try:
            return expand(text, values)
        except KeyError:  # A secret, or not set: it names no file.
            return text

    argv = tuple(map(filled, (spec.command, *spec.args)))
    return argv, spec.cwd, {name: filled(text) for name, text in spec.env.items()}


def grants_of(spec: ServerSpec, root: str) -> list[str]:
    """List in words what a local server's process may use, one line each."""
    if unconfined_program(spec, root):
        return ["do all that you may: it runs unconfined, and this gives control of the machine"]
    named = {f"write {path}": f"write {path} (named on its command line or in its env)" for path in spec.data}
    named |= {
        f"write {path}": f"write {path} (which can make git, where you run it, run a program)"
        for path in spec.permissions.write
        if ".git" in path.split("/")
    }
    lines = [named.get(line, line) for line in may_touch(process_of(spec))]
    return [*lines, *(f"read {path} (its program)" for path in needs(spec, root))]


def with_data(spec: ServerSpec, root: str, closed: Iterable[str]) -> ServerSpec:
    """Return the server with permission to write the folders that its command line names for data.

    None in `closed`, absolute paths. A server that states its files, or runs unconfined, stays as it is.
    """
    if not spec.is_local or spec.states_files or unconfined_program(spec, root):
        return spec
    launch, read = _launched(spec, root)
    code = code_files(launch.argv, root, launch.cwd, Paths(), launch.env)
    # A folder with any of these is not granted: the server could change code that runs later.
    written = (*closed, *read, *(os.path.join(root, file.path) for file in code))
    data, refused = data_named(launch, MachineView(root), written)
    write = (*spec.permissions.write, *data)
    return replace(spec, data=data, unwritable=refused, permissions=replace(spec.permissions, write=write))


def unconfined_program(spec: ServerSpec, root: str) -> str:
    """Return the real path of a program that controls the machine through a daemon, so that no sandbox helps.

    Empty for every other program, and for one that is in the project or that a link in the project leads to.
    """
    found = _launched(spec, root)[0].argv[0] if spec.is_local else ""
    if not found.startswith("/"):
        return ""
    real, machine = os.path.realpath(found), MachineView(os.path.realpath(root))
    # A cloned project could bring a program named `docker`; that one stays confined.
    inside = machine.is_inside(found) or machine.is_inside(real) or within(found, root)
    return real if is_daemon_client(real) and not inside else ""


def missing_package(spec: ServerSpec, root: str) -> ToolUnavailable | None:
    """Return the error of a launcher that cannot be replaced by its program, if there is one."""
    if spec.is_local:
        try:
            launch_of(Launch(*line_of(spec)), MachineView(root))
        except ToolUnavailable as error:
            return error
    return None


def started_line(spec: ServerSpec, root: str) -> Launch:
    """Return the command line that a server's launcher runs; as it is written where that is unknown."""
    return _launched(spec, root)[0]


def files_of(spec: ServerSpec, root: Path) -> list[str]:
    """Return the program, its interpreter and environment, and the scripts among its arguments.

    No tool may write them; any other file in its arguments is data. Each is there as it is written and as its
    real path.
    """
    if not spec.is_local:
        return []
    launch, read = _launched(spec, str(root))
    paths = Paths()
    code = code_files(launch.argv, str(root), launch.cwd, paths, launch.env)
    written = [*(str(root / file.path) for file in code), *read]
    if unconfined_program(spec, str(root)):
        # These files decide what the daemon starts, so they are code too.
        named = daemon_files(launch.argv, os.path.join(root, launch.cwd), launch.env, paths)
        written += filter(paths.exists, named)
    found = dict.fromkeys(place for path in written for place in paths.to_protect(path))
    for file in written:
        # A virtual environment runs the interpreter and libraries that this file names.
        if paths.exists(f"{file}/pyvenv.cfg"):
            found |= dict.fromkeys(runs_in(f"{paths.real(file)}/bin/python", paths))
    return list(found)


def environment_of(spec: ServerSpec, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an unconfined server: that of this user's programs, and its own variables."""
    plain = spec.permissions.environment(os.environ)
    with values_needed():
        named = {name: expand(text, {**plain, **secrets}) for name, text in spec.env.items()}
    usual = {name: os.environ[name] for name in _USUAL if name in os.environ}
    used = _used(spec)
    return {**usual, **plain, **{n: v for n, v in secrets.items() if n not in used}, **named}


def job_of(
    spec: ServerSpec,
    workspace: Workspace,
    secrets: Mapping[str, str],
    pinned: tuple[tuple[str, str], ...] = (),
) -> LocalProcess:
    """Return the confined process to start.

    `secrets` are those that it declares and that are set, `pinned` the trusted code, as of `Confinement`.

    Raises ToolUnavailable for a variable without a value and for a missing program, and the errors of the
    sandbox and the workspace.
    """
    tool = process_of(spec)
    plain = spec.permissions.environment(os.environ)
    values = {**plain, **secrets}
    with values_needed():
        command, *args = (expand(text, values) for text in (spec.command, *spec.args))
        env = {name: expand(text, values) for name, text in spec.env.items()}
    used = _used(spec)
    given = {name: value for name, value in secrets.items() if name not in used}
    launch, read = launch_of(Launch((command, *args), spec.cwd, env), MachineView(workspace.root))
    path = {"PATH": ":".join((*launch.path, SYSTEM_PATH))} if launch.path else {}
    # The variables of the server's own entry win, `PATH` among them.
    env = {**offline_variables(read), **path, **plain, **env}
    network = workspace.network(tool)
    more: dict[str, Any] = {"read": read, "network": network, "pinned": pinned, "stays": True}
    job = process_job(workspace, tool, launch.argv, launch.cwd, env, given, **more)
    return LocalProcess(spec, tool, workspace, job, network)


def _used(spec: ServerSpec) -> frozenset[str]:
    """Return the secrets in texts of its environment: their values go there and nowhere else."""
    texts = " ".join(spec.env.values())
    return frozenset(s.name for s in spec.permissions.secrets if f"${{{s.name}" in texts)
