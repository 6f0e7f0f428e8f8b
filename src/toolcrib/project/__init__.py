"""A project root put together."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.project.catalog.registry import CatalogChange
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.program import Program
from toolcrib.project.project import Project
from toolcrib.project.root import find

if TYPE_CHECKING:
    from toolcrib.project.authoring.agent_creation import create_agent as create_agent
    from toolcrib.project.authoring.creation import create_tool as create_tool
    from toolcrib.project.mcp_catalog import McpCatalog as McpCatalog

_MODULES = {
    "McpCatalog": "mcp_catalog",
    "create_agent": "authoring.agent_creation",
    "create_tool": "authoring.creation",
}
"""Names to their modules, imported on first use: few commands list tools for MCP or make any."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.project.{_MODULES[name]}"), name)
