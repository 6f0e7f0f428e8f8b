"""`exec`."""

from __future__ import annotations

from functools import partial

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.shell.confined import SHELL_OPTIONS, shell_permissions, shell_result
from toolcrib.builtin.site import Site
from toolcrib.spec import Annotations, CallContext, Example, Outcome

DEFAULT_S = 60


async def exec_(
    site: Site, ctx: CallContext, command: str, workdir: str | None = None, timeout_seconds: int = DEFAULT_S
) -> Outcome:
    """Run a shell line, and return its output with the exit code."""
    return await shell_result(site, ctx, command, workdir, timeout_seconds)


BUILTIN = Builtin(
    name="exec",
    description=(
        "Execute a shell command inside the sandbox, and return its output with the exit code."
        " Files outside of the workspace cannot be reached."
    ),
    properties={
        "command": {"type": "string", "minLength": 1, "description": "The shell command, run by `sh -c`."},
        "workdir": {
            "type": "string",
            "description": "The working folder, in the workspace (default: the workspace itself).",
        },
        "timeout_seconds": {
            "type": "integer",
            "minimum": 1,
            "default": DEFAULT_S,
            "description": "Seconds that the command may take (default 60).",
        },
    },
    required=["command"],
    run=exec_,
    permissions=partial(shell_permissions, "exec"),
    options=SHELL_OPTIONS,
    runs_shell=True,
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
    examples=[Example("List files", {"command": "ls -l"})],
    grace_s=1.0,
)
