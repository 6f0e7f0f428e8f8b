"""`exec`."""

from toolcrib.builtin.shell.confined import shell_tool

BUILTIN = shell_tool(
    "exec",
    "Execute a shell command inside the sandbox, and return its output with the exit code."
    " Files outside of the workspace cannot be reached.",
    workdir="The working folder, in the workspace (default: the workspace itself).",
    limit="timeout_seconds",
    about="Seconds that the command may take (default 60).",
    default_s=60,
)
