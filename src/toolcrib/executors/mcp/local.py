"""The confined process of a local MCP server: what it is started as, and what it may touch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.workspace import Workspace, links_on
from toolcrib.manifest.mcp_servers import expand
from toolcrib.spec import McpExec, Tool

if TYPE_CHECKING:
    from toolcrib.manifest.mcp_servers import ServerSpec
    from toolcrib.sandbox import Confinement

__all__ = ["files_of", "job_of", "process_of"]


class _Standing:
    """Stands in for a call: the process belongs to none, and no clock ends it."""

    remaining = 86_400.0

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = secrets


def process_of(spec: ServerSpec) -> Tool:
    """The server's process, described as a tool is: its permissions are those of all its tools."""
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
    """The program and the files among its arguments, as real paths: no tool may write them."""
    words = [spec.command, *spec.args] if spec.is_local else []
    paths = [root / word for n, word in enumerate(words) if "/" in word or n > 0]
    return [os.path.realpath(path) for path in paths if "$" not in str(path) and path.is_file()]


def job_of(spec: ServerSpec, workspace: Workspace, secrets: Mapping[str, str]) -> Confinement:
    """What to start. `secrets` are those that it declares and that are set.

    Raises what the sandbox and the workspace raise, and `ToolUnavailable` where a variable has no value.
    """
    tool = process_of(spec)
    plain = {name: os.environ[name] for name in spec.permissions.env if name in os.environ}
    values = {**plain, **secrets}
    try:
        command, *args = (expand(text, values) for text in (spec.command, *spec.args))
        env = {name: expand(text, values) for name, text in spec.env.items()}
    except KeyError as error:
        raise ToolUnavailable(
            f"the variable {error.args[0]} is not set", hint="Set it, or give a default."
        ) from None
    more: dict[str, Any] = dict(workspace.network(tool).job)
    if "/" in command:
        written = Path(workspace.root, command)
        if not written.is_file():
            raise ToolUnavailable(
                f"its command {command!r} does not exist ({written})", details={"path": str(written)}
            )
        # The way to it is shown as it is written: a virtual environment is found by it.
        more |= {"read": (os.path.realpath(written),), "links": links_on([written])}
        command = os.path.normpath(written)
    used = _used(spec)
    standing: Any = _Standing({name: value for name, value in secrets.items() if name not in used})
    return workspace.confine(tool, (command, *args), spec.cwd, {**plain, **env}, standing, **more)


def _used(spec: ServerSpec) -> frozenset[str]:
    """Names that stand in a text of the server: their values go where that text is, and nowhere else."""
    texts = " ".join((spec.command, *spec.args, *spec.env.values()))
    return frozenset(s.name for s in spec.permissions.secrets if f"${{{s.name}" in texts)
