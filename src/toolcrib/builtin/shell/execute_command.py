"""`execute_command`."""

from toolcrib.builtin.shell.confined import shell_tool

BUILTIN = shell_tool(
    "execute_command",
    "Execute a shell command, such as kubectl, curl or jq, and return its output with the exit code."
    " It runs in the workspace and is confined to it.",
    workdir="The working folder, in the workspace (default: `/workspace` in a pod).",
    limit="timeout",
    about="Seconds that the command may take (default 30, at most 120).",
    default_s=30,
    maximum=120,
)
