"""A project root put together."""

from toolcrib.project.catalog.registry import CatalogChange
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.program import Program
from toolcrib.project.project import Project
from toolcrib.project.root import find
