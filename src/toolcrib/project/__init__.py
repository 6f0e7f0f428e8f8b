"""A project root put together."""

from toolcrib.project.config import Config, load_config
from toolcrib.project.creation import create_tool
from toolcrib.project.metatools import Served
from toolcrib.project.project import Project
from toolcrib.project.root import HOMES, Place, find

__all__ = ["HOMES", "Config", "Place", "Project", "Served", "create_tool", "find", "load_config"]
