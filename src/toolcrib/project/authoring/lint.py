"""Lint of a whole project: its settings, manifests, sources, `.mcp.json`, agents and workflows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from toolcrib.builtin.names import NAMES
from toolcrib.errors import ConfigError, ManifestError
from toolcrib.guard import Ledger
from toolcrib.guard.trust.definitions import ServerTrust
from toolcrib.manifest import Diagnostic, SourceFiles, check_tool, diagnostics_of, lint_tree, read
from toolcrib.manifest.dialects.mcp_servers import servers_key
from toolcrib.manifest.native.reader import FILE_NAME, OTHER_NAME, folders
from toolcrib.manifest.yaml.diagnostics import make
from toolcrib.manifest.yaml.json_source import load_json
from toolcrib.manifest.yaml.source import Document
from toolcrib.project.catalog.registry import name_conflict
from toolcrib.project.config.mcp import FILE
from toolcrib.project.config.secrets import hidden_paths
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.config.sources import load_source
from toolcrib.project.root import Place
from toolcrib.spec.naming import nearest, wire_name
from toolcrib.state import Vault


def project_findings(place: Place) -> list[Diagnostic]:
    """Return all findings about a project. If its settings are wrong, only they and manifests are checked."""
    try:
        config = load_config(place.config, place.root)
    except ConfigError as error:
        return [*diagnostics_of(error), *lint_tree(place.tools, source_files(place.root, place.home))]
    files = source_files(place.root, place.home, hidden_paths(config.secret_sources, place.root))
    tools = folders(str(place.tools), [])
    return [
        *lint_tree(place.tools, files),
        *_name_conflicts(place),
        *lint_sources(config, place, tools),
        *_lint_runs(place, config, files, tools),
        *_misnamed(place.home),
    ]


def _lint_runs(place: Place, config: Config, files: SourceFiles, tools: Iterable[str]) -> list[Diagnostic]:
    """Return the findings about agents and workflows, which may name these tools."""
    teams = config.teams(place.root)
    if not any((place.agents.is_dir(), place.workflows.is_dir(), *(path.is_file() for path in teams))):
        return []
    from toolcrib.runs.agents import check_agents, read_all, read_files
    from toolcrib.runs.workflows import check_workflows, read_workflow

    agents, found = read_all(place.agents, teams, files)
    workflows, more = read_files(place.workflows, files, read_workflow)
    named = {name for agent, _ in agents.values() for name in agent.tools}
    named.update(name for workflow, _ in workflows.values() for name in workflow.callees("tool"))
    # The tools of MCP servers and bundles are not known here.
    known = {*tools, *NAMES, *(name for name in named if "__" in name or "/" in name)}
    there = {"tool": known, "agent": agents, "workflow": workflows}
    return [*found, *more, *check_agents(agents, known), *check_workflows(workflows, there)]


def _name_conflicts(place: Place) -> Iterator[Diagnostic]:
    """Yield an error for each manifest whose tool has the same name for clients as another one's."""
    same: dict[str, list[str]] = {}
    for name in _manifests(place):
        same.setdefault(wire_name(name), []).append(name)
    for names in same.values():
        for name, other in zip(names, [*names[1:], names[0]], strict=True):
            if name != other:
                yield name_conflict(str(place.tools / name / FILE_NAME), name, other)


def _manifests(place: Place) -> list[str]:
    """Return the names of the folders of tools that hold a native manifest."""
    places = ((name, place.tools / name) for name in folders(str(place.tools), []))
    return [name for name, at in places if (at / FILE_NAME).exists() or (at / OTHER_NAME).exists()]


def lint_sources(config: Config, place: Place, tools: list[str] | None = None) -> list[Diagnostic]:
    """Return all findings about `.mcp.json` and the tools of those `sources` that need no trust or have
    it. The names of these tools are added to `tools`."""
    vault = Vault(place.root)
    ledger = Ledger(vault)
    counts, _ = config.effective(ledger)
    files = source_files(place.root, place.home, hidden_paths(config.secret_sources, place.root))
    left = [
        (spec.name, f"not usable: {text}")
        for spec in counts.servers.specs
        for text in ServerTrust(vault, ledger, spec.name, spec.identity).unusable()
    ]
    found = _lint_servers(
        config.servers.wrong, [*config.servers.notes.items(), *left], str(place.root / FILE), files
    )
    taken = {wire_name(name): name for name in _manifests(place)}
    for source in counts.sources:
        loaded = load_source(source, place.root, files)
        found += loaded.diagnostics
        for tool in loaded.tools:
            found += check_tool(tool)
            other = taken.get(wire_name(tool.name))
            if other is not None and tool.source is not None:
                found.append(name_conflict(tool.source.path, tool.name, other))
            taken[wire_name(tool.name)] = other or tool.name
        if tools is not None:
            tools += [tool.name for tool in loaded.tools]
    return sorted(found, key=lambda finding: (finding.path, finding.line, finding.column))


def _lint_servers(
    wrong: Mapping[str, str], notes: Sequence[tuple[str, str]], path: str, files: SourceFiles
) -> list[Diagnostic]:
    """Return the findings about `.mcp.json`, each at the entry that it is about: errors and warnings."""
    if not wrong and not notes:
        return []
    try:
        document = load_json(read(path, files), path)
    except OSError:  # `config.yml` adds to a server that no file names.
        document = Document(path, b"", "", {})
    except ManifestError as error:
        return list(diagnostics_of(error))
    key = servers_key(document.data)
    found = [("wrong-value", name, text) for name, text in wrong.items()]
    found += [("server", name, text) for name, text in notes]
    return [
        document.diagnostic(
            rule, f"{name}: {text}" if name else text, (key, name) if name else (), key=bool(name)
        )
        for rule, name, text in found
    ]


def _misnamed(home: Path) -> Iterator[Diagnostic]:
    """Yield an error for each folder of a project's home whose name is nearly one that is read."""
    folders = ("agent_sessions", "agents", "memories", "tools", "workflows")
    for path in sorted(home.iterdir()):
        if path.is_dir() and path.name not in folders and (meant := nearest(path.name, folders)):
            message = f"the folder is not read; did you mean `{meant}`?"
            yield make(str(path), (1, 1), "file-place", message, hint=f"rename it to {home / meant}")
