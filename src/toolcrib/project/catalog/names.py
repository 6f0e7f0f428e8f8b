"""The ids of sources and their tools: always the same for one user, project and name."""

from __future__ import annotations

from toolcrib.project.root import Place
from toolcrib.spec import McpExec, Tool
from toolcrib.spec.identifier import derived_id
from toolcrib.state import Vault

PROJECT_BUNDLE = "project"
"""The bundle of a project's own tools, and of those of a file."""


def source_id(vault: Vault, source: str, name: str) -> str:
    """Return the id of the bundle of a source."""
    return derived_id(str(vault.path), source, name)


def tool_id(vault: Vault, place: Place, tool: Tool) -> str:
    """Return the id of a tool that is no record of the store."""
    own = "project" if place.file is None else "file"
    source = "server" if isinstance(tool.config, McpExec) else "builtin" if tool.is_builtin else own
    return derived_id(source_id(vault, source, tool.bundle), tool.name, str(tool.version))
