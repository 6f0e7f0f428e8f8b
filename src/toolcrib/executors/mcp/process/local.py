"""The confined process of a local MCP server: its command, environment and permissions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.launch.launchers import is_daemon_client, launched
from toolcrib.executors.mcp.launch.line import Launch, MachineView
from toolcrib.executors.mcp.launch.needs import data_named, launch_of, scripts_outside
from toolcrib.executors.mcp.launch.packages import Unresolved
from toolcrib.executors.mcp.process.refusals import LocalProcess
from toolcrib.executors.python.interpreter import runs_in
from toolcrib.executors.workspace.workspace import SYSTEM_PATH, Workspace, process_job
from toolcrib.manifest.code import named_by
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, expand
from toolcrib.manifest.kinds import Start
from toolcrib.manifest.touches import may_touch
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.spec import McpExec, Tool

_USUAL = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "DOCKER_HOST", "DOCKER_CONFIG")
"""Variables that an unconfined server gets."""
OWN_PROGRAM = "(its program)"
"""The end of what `grants_of` says of the files of a server's own program."""


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


def started(spec: ServerSpec, root: str) -> tuple[Launch, tuple[str, ...]]:
    """Return the command line that a local server's launcher really runs, and what its program reads.

    As it is written, and nothing, where that is unknown; for a package that is not downloaded, the launcher
    and the program's own arguments.
    """
    launch = _line_of(spec)
    try:
        return launch_of(launch, MachineView(root))
    except Unresolved as error:
        return error.launch, ()
    except ToolUnavailable:  # It is not started either.
        return launch, ()


def _line_of(spec: ServerSpec) -> Launch:
    """Return the command line as it is written, with the variables that are not secrets filled in."""
    values = spec.permissions.environment(os.environ)

    def filled(text: str) -> str:
        try:
            return expand(text, values)
        except ToolUnavailable:  # A secret, or not set: it names no file.
            return text

    argv = tuple(map(filled, (spec.command, *spec.args)))
    env = {name: filled(text) for name, text in spec.env.items()}
    return Launch(argv, spec.cwd, env, resolved=spec.resolved, server=spec.name)


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
    return [*lines, *(f"read {path} {OWN_PROGRAM}" for path in started(spec, root)[1])]


def with_data(spec: ServerSpec, root: str, closed: Iterable[str]) -> ServerSpec:
    """Return the server with permission to write the folders that its command line names for data.

    None in `closed`, absolute paths. A server that states its files, or runs unconfined, stays as it is.
    """
    if not spec.is_local or spec.states_files or unconfined_program(spec, root):
        return spec
    launch, read = started(spec, root)
    code = named_by(Start(launch.argv, launch.cwd), root, spec.permissions.write, Paths())
    # A folder with any of these is not granted: the server could change code that runs later.
    outside = scripts_outside(launch, MachineView(root))
    written = (*closed, *read, *outside, *(path for kind, path, _ in code if kind not in ("file", "link")))
    data, refused = data_named(launch, MachineView(root), written)
    write = (*spec.permissions.write, *data)
    return replace(spec, data=data, unwritable=refused, permissions=replace(spec.permissions, write=write))


def unconfined_program(spec: ServerSpec, root: str) -> str:
    """Return the real path of a program that controls the machine through a daemon, so that no sandbox helps.

    Empty for every other program, and for one that is in the project or that a link in the project leads to.
    """
    found = started(spec, root)[0].argv[0] if spec.is_local else ""
    if not found.startswith("/"):
        return ""
    real, machine = os.path.realpath(found), MachineView(os.path.realpath(root))
    # A cloned project could bring a program named `docker`; that one stays confined.
    inside = machine.is_inside(found) or machine.is_inside(real) or within(found, root)
    return real if is_daemon_client(real) and not inside else ""


def lacking(spec: ServerSpec, root: str) -> Unresolved | None:
    """Return what a local server lacks that has to be downloaded first, if there is anything.

    Raises ToolUnavailable for a launcher that cannot be replaced by its program.
    """
    if spec.is_local:
        try:
            launched(_line_of(spec), MachineView(root))
        except Unresolved as error:
            return error
    return None


def files_of(spec: ServerSpec, root: Path) -> list[str]:
    """Return the program, its interpreter and environment, and the scripts among its arguments.

    No tool may write them. Each is there as it is written and as its real path.
    """
    if not spec.is_local:
        return []
    launch, read = started(spec, str(root))
    paths = Paths()
    free = unconfined_program(spec, str(root))
    words = (*launch.argv, *(launch.env.values() if free else ()))
    code = named_by(Start(words, launch.cwd), str(root), spec.permissions.write, paths)
    # All files that it names decide what a daemon starts, so they are code too.
    written = [written for kind, _, written in code if free or kind not in ("file", "link")]
    written += read
    if "/" in launch.argv[0]:
        written.append(os.path.join(root, launch.argv[0]))
    found = dict.fromkeys(place for path in written for place in paths.to_protect(path))
    for file in written:
        # A virtual environment runs the interpreter and libraries that this file names.
        if paths.exists(f"{file}/pyvenv.cfg"):
            found |= dict.fromkeys(runs_in(f"{paths.real(file)}/bin/python", paths))
    return list(found)


def environment_of(spec: ServerSpec, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an unconfined server: that of this user's programs, and its own variables."""
    plain = spec.permissions.environment(os.environ)
    named = {name: expand(text, {**plain, **secrets}) for name, text in spec.env.items()}
    usual = {name: os.environ[name] for name in _USUAL if name in os.environ}
    return {**usual, **plain, **_unused(spec, secrets), **named}


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
    command, *args = (expand(text, values) for text in (spec.command, *spec.args))
    env = {name: expand(text, values) for name, text in spec.env.items()}
    written = Launch((command, *args), spec.cwd, env, resolved=spec.resolved, server=spec.name)
    launch, read = launch_of(written, MachineView(workspace.root))
    path = {"PATH": ":".join((*launch.path, SYSTEM_PATH))} if launch.path else {}
    # The variables of the server's own entry win, `PATH` among them.
    env = {**_no_installer(read), **path, **plain, **env}
    network = workspace.network(tool)
    job = process_job(
        workspace,
        tool,
        launch.argv,
        launch.cwd,
        env,
        _unused(spec, secrets),
        read=read,
        network=network,
        pinned=pinned,
        stays=True,
    )
    return LocalProcess(spec, tool, workspace, job, network)


def _no_installer(read: Iterable[str]) -> dict[str, str]:
    """Return the variables of a program in a Python environment: npm prints its usage and installs nothing.

    A Python package may run npm for something that it can also do without. What npm cannot install, because
    it has no network, would be its error.
    """
    return {"npm_config_usage": "true"} if any(os.path.isfile(f"{one}/pyvenv.cfg") for one in read) else {}


def _unused(spec: ServerSpec, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets that no text of its environment names: the others go there and nowhere else."""
    texts = " ".join(spec.env.values())
    return {name: value for name, value in secrets.items() if f"${{{name}" not in texts}
