"""Agents made by agents: checked, limited by the project's ceiling, and written whole or not at all.

The maker is recorded in the user's own folder before the file is written. A person must trust the agent
before its first run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.errors import ConflictError, StateUnavailable, ToolcribError, Violation
from toolcrib.guard import excess, shown
from toolcrib.manifest import dump, failure
from toolcrib.project.authoring.creation import (
    checked_name,
    json_object,
    making,
    noted,
    refuse_beyond,
    require_free,
    require_room,
    shown_creator,
    unfit,
)
from toolcrib.project.durable.agents import MADE
from toolcrib.project.project import Project
from toolcrib.runs.agents import Agent, AgentTeam, Budgets, check_agents, read_agent
from toolcrib.state.private import put_file

_MOST = Budgets(cost_usd=Budgets().most_usd)


def create_agent(project: Project, name: str, definition: Mapping[str, Any], creator: str) -> Agent:
    """Make an agent from a definition as in its file, `agents/NAME.yml`.

    It may call no tool, not even by its sub-agents, with more permissions than `security.max_permissions`,
    and have no larger budgets than the usual ones. Raises InvalidInput, ManifestError, PermissionDenied,
    ConflictError, RateLimited and AuditUnavailable as `create_tool` does; then nothing was written.
    """
    checked_name(name)
    creator = shown_creator(creator)
    data = json_object(name, definition)
    for key in ("description", "instructions", "system"):
        text = data.get(key)
        if isinstance(text, str) and shown(text) != text:
            raise unfit(f"$.{key}", "has invisible characters, or ones that control a terminal")
    raw = f"# Made by the agent {creator}.\n{dump({'name': name, **data})}".encode()
    agent, document = read_agent(str(project.place.agents / f"{name}.yml"), raw)
    usable = project.bundles.names()
    wrong = check_agents({name: (agent, document)}, usable, project.agents.all())
    if wrong:
        raise failure(wrong)
    beyond = [*_beyond(project, agent), *_larger(agent.budgets)]
    refuse_beyond(project, f"{name} asks for more than agents may give to an agent here", beyond)
    _publish(project, agent, raw, creator)
    return agent


def _beyond(project: Project, agent: Agent) -> Iterator[Violation]:
    """Yield each permission beyond the ceiling of the tools that the agent and those below it may call."""
    agents = {**project.agents.all(), agent.name: agent}
    # A sub-agent may call its own tools, so an agent could reach by it what it may not list itself.
    team = AgentTeam.gather(agent, agents.__getitem__)
    for member in (team.agent, *team.others.values()):
        place = "$.tools" if member is agent else "$.agents"
        for tool in member.tools:
            try:
                found = excess(project.get(tool), project.config.max_permissions, project.root)
            except ToolcribError as error:
                yield Violation(place, f"{tool} of {member.name} cannot be used: {error.message}")
                continue
            yield from (Violation(place, f"{tool}: {one.message}") for one in found)


def _larger(budgets: Budgets) -> Iterator[Violation]:
    for key in ("iterations", "depth", "time_s", "tokens", "cost_usd"):
        asked, most = getattr(budgets, key), getattr(_MOST, key)
        if asked is not None and asked > most:
            yield Violation(f"$.budgets.{key}", f"{key} of {asked:g} is beyond the usual {most:g}")


def _publish(project: Project, agent: Agent, raw: bytes, creator: str) -> None:
    """Record the maker of the agent, then write its file."""
    digest = hashlib.sha256(raw).hexdigest()
    with making(project, project.place.agents) as folder:
        path = folder / f"{agent.name}.yml"
        there = [one.removesuffix(".yml") for one in os.listdir(folder)]
        taken = (*there, *project.agents.all(), *project.toolset.names)
        require_free(agent.name, taken, "an agent or a tool")
        require_room(project, "agents", (f"{MADE}{one}" for one in there))
        with noted(project, f"{MADE}{agent.name}", creator, digest):
            try:
                made = put_file(path, raw, mode=0o644, first=True)
            except OSError as error:
                text = f"the agent {agent.name} cannot be written: {error.strerror}"
                raise StateUnavailable(text) from None
            if not made:
                raise ConflictError(f"there is an agent named {agent.name} already")
            try:
                listed = {"tools": list(agent.tools), "agents": list(agent.agents)}
                fields = {"name": agent.name, "creator": creator, "model": agent.model, **listed}
                project.audit.record("AGENT_CREATED", **fields, digest=digest)
            except BaseException:
                path.unlink()
                raise
