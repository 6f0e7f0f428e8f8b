"""A project root put together."""

from typing import TYPE_CHECKING

from toolcrib.first_use import imported_on_use
from toolcrib.project.catalog.registry import CatalogChange
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.program import Program
from toolcrib.project.project import Project
from toolcrib.project.root import find

if TYPE_CHECKING:
    from toolcrib.project.authoring.agent_creation import create_agent as create_agent
    from toolcrib.project.authoring.creation import create_tool as create_tool

__getattr__ = imported_on_use(
    __name__, {"authoring.agent_creation": "create_agent", "authoring.creation": "create_tool"}
)
