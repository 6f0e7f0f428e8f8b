"""The confined process of a local MCP server: its command, environment and permissions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.executors.mcp.variables import values_needed
from toolcrib.executors.python.executor import runs_in
from toolcrib.executors.workspace.process import process_job
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.manifest.dialects.mcp_servers import expand
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import McpExec, Tool

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec
    from toolcrib.sandbox import Confinement

__all__ = ["files_of", "job_of", "process_of"]


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


def files_of(spec: ServerSpec, root: Path) -> list[str]:
    """Return the program, its virtual environment, and the files among its arguments.

    No tool may write them. Each is there as it is written and as its real path.
    """
    if not spec.is_local:
        return []
    values = spec.permissions.environment(os.environ)
    paths, found = Paths(), dict[str, None]()
    for number, text in enumerate((spec.command, *spec.args)):
        try:
            word = expand(text, values)
        except KeyError:  # a secret: not the name of a file
            continue
        for place in (root / word, root / spec.cwd / word) if "/" in word or number else ():
            if os.path.isfile(place):  # noqa: PTH113 - Path.is_file raises for an argument that is too long for a name
                found |= dict.fromkeys(paths.to_protect(str(place)))
        home = os.path.dirname(os.path.dirname(root / word))  # noqa: PTH120
        if number == 0 and "/" in word and os.path.isfile(f"{home}/pyvenv.cfg"):  # noqa: PTH113
            found |= dict.fromkeys((*paths.to_protect(home), *runs_in(str(root / word), paths)))
    return list(found)


def job_of(
    spec: ServerSpec,
    workspace: Workspace,
    secrets: Mapping[str, str],
    pinned: tuple[tuple[str, str], ...] = (),
) -> Confinement:
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
    line, env = (command, *args), {**plain, **env}
    return process_job(workspace, tool, line, spec.cwd, env, given, pinned=pinned, stays=True)


def _used(spec: ServerSpec) -> frozenset[str]:
    """Return the secrets in texts of its environment: their values go there and nowhere else."""
    texts = " ".join(spec.env.values())
    return frozenset(s.name for s in spec.permissions.secrets if f"${{{s.name}" in texts)
