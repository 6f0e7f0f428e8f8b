"""Servers that offer a catalog of tools to other programs."""

from toolcrib.serve.mcp import run_stdio, serve_stdio

__all__ = ["run_stdio", "serve_stdio"]
