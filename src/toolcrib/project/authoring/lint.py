"""Lint of a project's sources and of its `.mcp.json`."""

from __future__ import annotations

from toolcrib.guard import Trust
from toolcrib.manifest import Diagnostic, check_tool
from toolcrib.manifest.yaml.diagnostics import make
from toolcrib.project.config.mcp import FILE
from toolcrib.project.config.secrets import hidden_paths
from toolcrib.project.config.settings import Config, source_files
from toolcrib.project.config.sources import load_source
from toolcrib.project.root import Place
from toolcrib.state import Vault


def lint_sources(config: Config, place: Place) -> list[Diagnostic]:
    """Return all findings about `.mcp.json` and the tools of those `sources` that need no trust or have
    it."""
    counts, _ = config.effective(Trust(Vault(place.root)))
    shared = str(place.root / FILE)
    wrong = config.servers.wrong.items()
    found = [make(shared, (1, 1), "wrong-value", f"{name}: {text}" if name else text) for name, text in wrong]
    files = source_files(place.root, place.home, hidden_paths(config.secret_sources, place.root))
    for source in counts.sources:
        loaded = load_source(source, place.root, files)
        found += loaded.diagnostics
        for tool in loaded.tools:
            found += check_tool(tool)
    return sorted(found, key=lambda finding: (finding.path, finding.line, finding.column))
