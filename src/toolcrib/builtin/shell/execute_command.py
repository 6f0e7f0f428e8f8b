"""`execute_command`."""

from __future__ import annotations

from functools import partial

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.shell.confined import SHELL_OPTIONS, shell_permissions, shell_result
from toolcrib.builtin.site import Site
from toolcrib.spec import Annotations, CallContext, Example, Outcome

DEFAULT_S = 30


async def execute_command(
    site: Site, ctx: CallContext, command: str, workdir: str | None = None, timeout: int = DEFAULT_S
) -> Outcome:
    """Run a shell line, and return its output with the exit code."""
    return await shell_result(site, ctx, command, workdir, timeout)


BUILTIN = Builtin(
    name="execute_command",
    description=(
        "Execute a shell command, such as kubectl, curl or jq, and return its output with the exit code."
        " It runs in the workspace and is confined to it."
    ),
    properties={
        "command": {"type": "string", "minLength": 1, "description": "The shell command, run by `sh -c`."},
        "workdir": {
            "type": "string",
            "description": "The working folder, in the workspace (default: `/workspace` in a pod).",
        },
        "timeout": {
            "type": "integer",
            "minimum": 1,
            "maximum": 120,
            "default": DEFAULT_S,
            "description": "Seconds that the command may take (default 30, at most 120).",
        },
    },
    required=["command"],
    run=execute_command,
    permissions=partial(shell_permissions, "execute_command"),
    options=SHELL_OPTIONS,
    runs_shell=True,
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
    examples=[Example("List files", {"command": "ls -l"})],
    grace_s=1.0,
)
