"""Command lines of local MCP servers: the program that a launcher such as `npx` runs, and what it reads."""

from toolcrib.executors.mcp.launch.launchers import is_daemon_client, launched
from toolcrib.executors.mcp.launch.line import Launch, MachineView
from toolcrib.executors.mcp.launch.needs import needs_of


def launch_of(launch: Launch, machine: MachineView) -> tuple[Launch, tuple[str, ...]]:
    """Return what a command line really starts, and the files and folders that it reads by itself.

    Raises ToolUnavailable if a launcher's package is not on this machine, or if the line cannot be read.
    """
    found = launched(launch, machine)
    needs = needs_of(found, machine)
    return found.beside(path=needs.path), needs.read
