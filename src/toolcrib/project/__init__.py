"""A project root put together."""

from typing import TYPE_CHECKING, Any

from toolcrib.project.authoring.creation import create_tool as create_tool
from toolcrib.project.authoring.lint import project_findings
from toolcrib.project.catalog.registry import CatalogChange
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.mcp_catalog import McpCatalog, mcp_catalog
from toolcrib.project.program import Program
from toolcrib.project.project import Project
from toolcrib.project.root import find

if TYPE_CHECKING:
    from toolcrib.project.authoring.agent_creation import create_agent


def __getattr__(name: str) -> Any:
    # Agents are a third of the time to start, and few projects make them.
    if name == "create_agent":
        from toolcrib.project.authoring.agent_creation import create_agent

        return create_agent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
