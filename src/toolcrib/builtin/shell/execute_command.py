"""`execute_command`."""

from __future__ import annotations

from toolcrib.builtin.shell.confined import shell_result, shell_tool
from toolcrib.builtin.site import Site
from toolcrib.spec import CallContext, Outcome

DEFAULT_S = 30


async def execute_command(
    site: Site, ctx: CallContext, command: str, workdir: str | None = None, timeout: int = DEFAULT_S
) -> Outcome:
    """Run a shell line, and return its output with the exit code."""
    return await shell_result(site, ctx, command, workdir, timeout)


BUILTIN = shell_tool(
    "execute_command",
    execute_command,
    "Execute a shell command, such as kubectl, curl or jq, and return its output with the exit code."
    " It runs in the workspace and is confined to it.",
    workdir="The working folder, in the workspace (default: `/workspace` in a pod).",
    timeout={
        "timeout": {
            "type": "integer",
            "minimum": 1,
            "maximum": 120,
            "default": DEFAULT_S,
            "description": "Seconds that the command may take (default 30, at most 120).",
        }
    },
)
