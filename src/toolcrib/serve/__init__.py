"""Servers that offer a catalog of tools to other programs."""

from toolcrib.serve.mcp import serve_stdio
from toolcrib.serve.process import run_until_end as run_stdio

__all__ = ["run_stdio", "serve_stdio"]
