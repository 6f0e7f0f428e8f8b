"""An MCP server: the stateless protocol 2026-07-28, and the sessions of 2025-11-25 and earlier.

It serves any `toolcrib.spec.Catalog`. The wire layer is our own: the official SDK takes a second to import
and about half a millisecond for each call.
"""

from toolcrib.serve.mcp.connection import Connection
from toolcrib.serve.mcp.lists import CallerListing
from toolcrib.serve.mcp.request import Sender
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.serve.mcp.stdio import serve_stdio
