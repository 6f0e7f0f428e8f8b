"""Agents of Claude Code and Gemini CLI (Markdown files with front matter) as agents of a project."""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib.errors import ConflictError, InvalidInput
from toolcrib.manifest import ANY_FILE, dump, failure, read
from toolcrib.manifest.dialects.skill.reader import load_skill
from toolcrib.manifest.yaml.form import Form
from toolcrib.project.project import Project
from toolcrib.project.root import require_inside
from toolcrib.runs.agents import Agent, agent_schema, full_model, read_agent
from toolcrib.spec.record import record

_FOLDERS = (".claude/agents", ".gemini/agents")
_BODY = re.compile(r"\A---[ \t]*\r?\n.*?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_TOOLS = {
    "Bash": "exec", "Edit": "edit_file", "Glob": "list_files", "LS": "list_directory", "Read": "read_file",
    "WebFetch": "fetch_url", "WebSearch": "web_search", "Write": "write_file",
    "glob": "list_files", "google_web_search": "web_search", "list_directory": "list_directory",
    "read_file": "read_file", "replace": "edit_file", "run_shell_command": "exec", "web_fetch": "fetch_url",
    "write_file": "write_file",
}  # fmt: skip
"""Tools of both programs to the built-in tools that do the same."""
_KNOWN = (
    "name",
    "description",
    "model",
    "tools",
    "kind",
    "temperature",
    "max_turns",
    "maxTurns",
    "timeout_mins",
)


@record
class ImportedAgent:
    """An agent of another program as a file of the project, and what has no equal there."""

    source: str
    path: Path
    agent: Agent
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = {"source": self.source, "path": str(self.path), "notes": self.notes}
        return {**found, "agent": self.agent.as_dict()}


@cache
def _form() -> Form:
    """Return the form of the keys that are taken over."""
    own = agent_schema()["properties"]
    text = {"type": ["string", "null"]}
    turns = {**own["budgets"]["properties"]["iterations"], "type": ["integer", "null"]}
    properties = {
        "name": own["name"],
        **dict.fromkeys(("description", "model", "kind"), text),
        "tools": {"type": ["array", "string", "null"], "items": {"type": "string"}},
        "temperature": own["settings"]["properties"]["temperature"],
        **dict.fromkeys(("max_turns", "maxTurns"), turns),
        "timeout_mins": own["budgets"]["properties"]["time_s"],
    }
    return Form({"properties": properties})


def importable(root: Path) -> list[Path]:
    """Return the files of agents of both programs in a project."""
    return [path for folder in _FOLDERS for path in sorted((root / folder).glob("*.md")) if path.is_file()]


def import_agent(
    project: Project, source: Path, model: str | None = None, *, write: bool = True
) -> ImportedAgent:
    """Write the agent of a file into the project's folder of agents.

    `model` (PROVIDER:MODEL) is used where the file names no model by its full name. Raises ManifestError for
    a file without front matter or with a wrong value in it, InvalidInput for what cannot be an agent here,
    ConflictError for a name that is taken.
    """
    files = project.catalog.files if source in importable(project.root) else ANY_FILE
    document = load_skill(read(str(source), files), str(source))
    front = document.data
    if not isinstance(front, dict) or front.get("name") is None:
        raise InvalidInput(f"{source} has no `name` in its front matter, so it is not an agent")
    if misfits := _form().misfits(document, front):
        raise failure(misfits)
    if (front.get("kind") or "local") != "local":
        raise InvalidInput(
            f"{source} is an agent of kind {front['kind']!r}, which runs elsewhere",
            hint="Only agents of kind local can be imported.",
        )
    notes: list[str] = []
    turns = front.get("max_turns", front.get("maxTurns"))
    budgets = {} if turns is None else {"iterations": turns}
    if "timeout_mins" in front:
        budgets["time_s"] = front["timeout_mins"] * 60
    instructions = _BODY.sub("", document.raw.decode(errors="replace"), count=1).strip()
    data = {
        "name": front["name"],
        "description": str(front.get("description") or "").strip(),
        "model": _model(source, front.get("model"), model, notes),
        "instructions": instructions,
        "tools": _tools(project, front.get("tools"), notes),
        "settings": {"temperature": front["temperature"]} if "temperature" in front else {},
        "budgets": budgets,
    }
    notes += [f"`{key}` has no equal and is left out" for key in front if key not in _KNOWN]
    raw = (f"# From {source.name}.\n" + dump({key: value for key, value in data.items() if value})).encode()
    path = project.place.agents / f"{front['name']}.yml"
    agent, _ = read_agent(str(path), raw)
    if agent.name in project.agents.all() or path.exists():
        raise ConflictError(
            f"there is an agent named {agent.name!r} already", hint=f"Remove or rename {path}."
        )
    if write:
        require_inside(project.root, path.parent)
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            file.write(raw)
    return ImportedAgent(str(source), path, agent, notes)


def _model(source: Path, named: Any, model: str | None, notes: list[str]) -> str:
    text = full_model(str(named or "inherit"))
    if ":" in text:
        return text
    if model is None:
        raise InvalidInput(
            f"{source} names its model as {text!r}, which does not say which one it is",
            hint="Name it with --model PROVIDER:MODEL, such as anthropic:claude-sonnet-5.",
        )
    notes.append(f"`model: {text}` became {model}")
    return model


def _tools(project: Project, named: Any, notes: list[str]) -> list[str]:
    if named is None:
        notes.append("it lists no tools, which means all of them there and none here: list those it needs")
        return []
    names = re.split(r"[,\s]+", named) if isinstance(named, str) else named
    known = set(project.bundles.names())
    found = []
    for name in filter(None, names):
        own = _TOOLS.get(name)
        # Claude Code names the tool of an MCP server `mcp__SERVER__TOOL`.
        if own is None and name.startswith("mcp__") and "__" in name[5:] and "*" not in name:
            own = name[5:]
        if own is None and name in known:
            own = name
        if own is None:
            notes.append(f"the tool `{name}` has no equal and is left out")
        else:
            found.append(own)
            if own != name:
                notes.append(f"the tool `{name}` became `{own}`")
    return list(dict.fromkeys(found))
