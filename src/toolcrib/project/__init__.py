"""A project root put together."""

from toolcrib.project.authoring.agent_creation import create_agent
from toolcrib.project.authoring.creation import create_tool
from toolcrib.project.authoring.lint import lint_sources
from toolcrib.project.catalog.registry import CatalogChange
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.project.project import Project
from toolcrib.project.root import HOMES, Place, find

__all__ = [
    "HOMES",
    "CatalogChange",
    "Config",
    "McpCatalog",
    "Place",
    "Project",
    "create_agent",
    "create_tool",
    "find",
    "lint_sources",
    "load_config",
    "source_files",
]
