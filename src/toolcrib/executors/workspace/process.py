"""The confined process of a command that belongs to no call: a local MCP server, a secret helper."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.workspace.grants import links_on
from toolcrib.executors.workspace.network import CallNetwork
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Confinement
from toolcrib.spec import Tool


def process_job(
    workspace: Workspace,
    tool: Tool,
    argv: tuple[str, ...],
    cwd: str,
    env: Mapping[str, str],
    secrets: Mapping[str, str],
    *,
    read: tuple[str, ...] = (),
    network: CallNetwork | None = None,
    **more: Any,
) -> Confinement:
    """Return the job of a process with the permissions of `tool`; `more` are further fields of it.

    `read` are absolute paths that the program reads because of what it is, beside its permissions; `network`
    is its network permission, if the caller needs it too.

    Raises ToolUnavailable for a missing program, and the errors of the sandbox and the workspace.
    """
    command, *args = argv
    files = workspace.files()
    links = links_on(read, files.paths)
    read = tuple(dict.fromkeys(files.paths.real(path) for path in read))
    if "/" in command:
        written = os.path.join(workspace.root, command)
        real = files.paths.real(written)
        if not stat.S_ISREG(files.paths.leads_to(real)):
            raise ToolUnavailable(
                f"its command {command!r} does not exist ({written})",
                hint="Install it, or correct the command in the settings.",
                details={"path": written},
            )
        # The path is visible as it is written: Python finds its virtual environment by it.
        read, links = (*read, real), (*links, *links_on([written], files.paths))
        command = os.path.normpath(written)
    # In place of a call's context: the process belongs to no call, and nothing limits its time.
    context: Any = SimpleNamespace(secrets=secrets, remaining=86_400.0)
    job = workspace.tool_job(files, tool, cwd, read=read, links=links)
    way = (network or workspace.network(tool)).job
    return workspace.call_job(job, tool, dict(env), context, argv=(command, *args), **{**way, **more})
