"""The confined process of a local MCP server: what it is started as, and what it may touch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.python.executor import runs_in
from toolcrib.executors.workspace.workspace import Workspace, links_on
from toolcrib.manifest.dialects.mcp_servers import expand
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import McpExec, Tool

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec
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
    """The program, its virtual environment, and the files among its arguments: no tool may write them.

    Each as it is written and where it really is.
    """
    if not spec.is_local:
        return []
    values = {name: os.environ[name] for name in spec.permissions.env if name in os.environ}
    paths, found = Paths(), dict[str, None]()
    for number, text in enumerate((spec.command, *spec.args)):
        try:
            word = expand(text, values)
        except KeyError:  # A secret: no name of a file, and not known here.
            continue
        for place in (root / word, root / spec.cwd / word) if "/" in word or number else ():
            if os.path.isfile(place):  # noqa: PTH113 - of a Path it fails for what is no name
                found |= dict.fromkeys(paths.to_protect(str(place)))
        home = os.path.dirname(os.path.dirname(root / word))  # noqa: PTH120
        if number == 0 and "/" in word and os.path.isfile(f"{home}/pyvenv.cfg"):  # noqa: PTH113
            found |= dict.fromkeys((*paths.to_protect(home), *runs_in(str(root / word), paths)))
    return list(found)


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
    """Names that stand in a text of its environment: their values go where that is, and nowhere else."""
    texts = " ".join(spec.env.values())
    return frozenset(s.name for s in spec.permissions.secrets if f"${{{s.name}" in texts)
