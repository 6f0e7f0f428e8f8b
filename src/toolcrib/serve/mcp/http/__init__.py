"""MCP over streamable HTTP: stateless requests (2026-07-28), and sessions (2025-11-25 and earlier)."""

from toolcrib.serve.mcp.http.endpoint import McpEndpoint

__all__ = ["McpEndpoint"]
