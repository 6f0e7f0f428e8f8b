"""MCP servers of others: started or reached, kept at hand, and their tools called as ours."""

from toolcrib.executors.mcp.definitions import Definition, digest, names_of, tool_of
from toolcrib.executors.mcp.executor import McpExecutor
from toolcrib.executors.mcp.local import files_of, job_of
from toolcrib.executors.mcp.login import Login, Tokens
from toolcrib.executors.mcp.remote import HttpLink
from toolcrib.executors.mcp.server import Link, Server, State, pause_s
from toolcrib.executors.mcp.stdio import StdioLink

__all__ = [
    "Definition",
    "HttpLink",
    "Link",
    "Login",
    "McpExecutor",
    "Server",
    "State",
    "StdioLink",
    "Tokens",
    "digest",
    "files_of",
    "job_of",
    "names_of",
    "pause_s",
    "tool_of",
]
