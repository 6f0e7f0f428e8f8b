"""`exec`."""

from __future__ import annotations

from toolcrib.builtin.shell.confined import shell_result, shell_tool
from toolcrib.builtin.site import Site
from toolcrib.spec import CallContext, Outcome

DEFAULT_S = 60


async def exec_(
    site: Site, ctx: CallContext, command: str, workdir: str | None = None, timeout_seconds: int = DEFAULT_S
) -> Outcome:
    """Run a shell line, and return its output with the exit code."""
    return await shell_result(site, ctx, command, workdir, timeout_seconds)


BUILTIN = shell_tool(
    "exec",
    exec_,
    "Execute a shell command inside the sandbox, and return its output with the exit code."
    " Files outside of the workspace cannot be reached.",
    workdir="The working folder, in the workspace (default: the workspace itself).",
    timeout={
        "timeout_seconds": {
            "type": "integer",
            "minimum": 1,
            "default": DEFAULT_S,
            "description": "Seconds that the command may take (default 60).",
        }
    },
)
