"""Third-party MCP servers: started or reached over HTTP, and their tools called as tools of the project."""

from toolcrib.executors.mcp.definitions import Definition, digest, names_of, tool_of
from toolcrib.executors.mcp.executor import McpExecutor
from toolcrib.executors.mcp.local import (
    environment_of,
    files_of,
    grants_of,
    job_of,
    missing_package,
    started_line,
    unconfined_program,
)
from toolcrib.executors.mcp.login import Login, OAuthTokens
from toolcrib.executors.mcp.refusals import LocalProcess
from toolcrib.executors.mcp.remote import HttpLink
from toolcrib.executors.mcp.server import Link, McpServer, ServerState, pause_s
from toolcrib.executors.mcp.stdio import StdioLink
from toolcrib.executors.mcp.unconfined import start_unconfined

__all__ = [
    "Definition",
    "HttpLink",
    "Link",
    "LocalProcess",
    "Login",
    "McpExecutor",
    "McpServer",
    "OAuthTokens",
    "ServerState",
    "StdioLink",
    "digest",
    "environment_of",
    "files_of",
    "grants_of",
    "job_of",
    "missing_package",
    "names_of",
    "pause_s",
    "start_unconfined",
    "started_line",
    "tool_of",
    "unconfined_program",
]
