"""Third-party MCP servers: started or reached over HTTP, and their tools called as tools of the project."""

from toolcrib.executors.mcp.definitions import Definition, digest, names_of, tool_of
from toolcrib.executors.mcp.executor import McpExecutor
from toolcrib.executors.mcp.local import files_of, job_of, needs, process_of
from toolcrib.executors.mcp.login import Login, OAuthTokens
from toolcrib.executors.mcp.refusals import LocalProcess
from toolcrib.executors.mcp.remote import HttpLink
from toolcrib.executors.mcp.server import Link, McpServer, ServerState, pause_s
from toolcrib.executors.mcp.stdio import StdioLink

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
    "files_of",
    "job_of",
    "names_of",
    "needs",
    "pause_s",
    "process_of",
    "tool_of",
]
