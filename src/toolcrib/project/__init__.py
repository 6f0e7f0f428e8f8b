"""A project root put together."""

from toolcrib.project.config import Config, load_config
from toolcrib.project.creation import create_tool
from toolcrib.project.lint import lint_sources
from toolcrib.project.metatools import Served
from toolcrib.project.project import Project
from toolcrib.project.root import HOMES, Place, find
from toolcrib.project.shelf import Change

__all__ = [
    "HOMES",
    "Change",
    "Config",
    "Place",
    "Project",
    "Served",
    "create_tool",
    "find",
    "lint_sources",
    "load_config",
]
