"""A project root put together."""

from toolcrib.project.config import Config, load_config
from toolcrib.project.lint import lint_sources
from toolcrib.project.project import Project
from toolcrib.project.root import HOMES, Place, find

__all__ = ["HOMES", "Config", "Place", "Project", "find", "lint_sources", "load_config"]
