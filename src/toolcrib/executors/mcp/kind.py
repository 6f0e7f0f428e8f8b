"""The record of kind `mcp`. The project makes its executor together with the server."""

from __future__ import annotations

from toolcrib.manifest.kinds import Kind
from toolcrib.spec import McpExec

KIND = Kind(
    name="mcp",
    config=McpExec,
    docs=(
        "the confined process of an MCP server, or elsewhere over HTTP",
        "the kernel, or the guarded client: see [MCP servers](mcp-servers.md#confined)",
    ),
    touches=lambda _: (),
    untraceable=(
        "is a tool of an MCP server, which is one process for all of its tools",
        "Write what that process may do under the server's own permissions.",
    ),
)
