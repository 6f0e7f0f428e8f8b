"""MCP, our own wire layer: protocol 2026-07-28 (stateless) and the sessions of 2025-11-25 and before."""

from toolcrib.serve.mcp.connection import Connection, Sender, ServerSettings
from toolcrib.serve.mcp.listing import Listing
from toolcrib.serve.mcp.stdio import run_stdio, serve_stdio

__all__ = ["Connection", "Listing", "Sender", "ServerSettings", "run_stdio", "serve_stdio"]
