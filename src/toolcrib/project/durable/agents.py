"""The agents of a project, and their runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.builtin.names import NAMES
from toolcrib.errors import DeniedError
from toolcrib.manifest import Diagnostic, Document, SourceFiles
from toolcrib.project.catalog.catalog import ProjectCatalog
from toolcrib.project.durable.calls import ProjectCalls
from toolcrib.project.durable.trusted_files import TrustedFiles
from toolcrib.project.integrity.fingerprints import FileUse, as_trusted
from toolcrib.project.root import Place
from toolcrib.project.tools.builtins import Builtins
from toolcrib.project.trust.trust import ProjectTrust
from toolcrib.runs.agents import Agent, AgentTools, check_agents, read_agent, read_all
from toolcrib.runs.sessions import ClaimedRun
from toolcrib.spec import Call, Caller, Tool

MADE = "agent:"
"""The beginning of an agent's name among the names of what agents have made."""


class ProjectAgents(TrustedFiles[Agent]):
    """The agents in files and in the maps `agents:` of team files, and those that a program adds."""

    kind = "agent"

    def __init__(self, place: Place, teams: Sequence[Path], files: SourceFiles, trust: ProjectTrust) -> None:
        super().__init__(place.agents, files, trust, read_agent)
        self._teams = teams

    def _as_tool(self, one: Agent, document: Document) -> Tool:
        use = FileUse(one.tools, tuple(f"agent:{name}" for name in one.agents), one.provider)
        return as_trusted("agent", one.name, one.description, document, use)

    def _in_files(self) -> tuple[dict[str, tuple[Agent, Document]], list[Diagnostic]]:
        return read_all(self._folder, self._teams, self._files)

    def listed(self) -> dict[str, Sequence[str]]:
        """Return the tools of each agent whose runs may begin."""
        found: dict[str, Sequence[str]] = {name: agent.tools for name, agent in self._added.items()}
        for name, (agent, document) in self._in_files()[0].items():
            # An agent that waits for trust, or is not the pinned one, switches on no tool.
            with suppress(DeniedError):
                self._trust.require(self._as_tool(agent, document))
                found[name] = agent.tools
        return found

    def switch_on(self, builtins: Builtins) -> None:
        """Switch on the built-in tools that agents list: a run that began elsewhere may call them here."""
        for agent, names in self.listed().items():
            builtins.switch_on(names, agent_caller(agent))
        builtins.switch_on_reader()

    def findings(
        self, tools: Callable[[], list[str]], elsewhere: Callable[[Collection[str]], Iterable[str]]
    ) -> list[Diagnostic]:
        """Return what is wrong with the files.

        Agents may list `tools`, and those of the other names that `elsewhere` returns.
        """
        agents, findings = self._in_files()
        listed = {name for agent, _ in agents.values() for name in agent.tools}
        known = {*tools(), *NAMES} if listed else set[str]()
        return [*findings, *check_agents(agents, known.union(elsewhere(listed - known)), self._added)]


def agent_caller(agent: str) -> str:
    """Return the name by which a run of an agent or a workflow calls tools."""
    return agent if agent.startswith("workflow:") else f"agent:{agent}"


def agent_tools(
    calls: ProjectCalls, catalog: ProjectCatalog, offered: Callable[[Tool], Tool | None]
) -> AgentTools:
    """Return the tools of the project's agents: each call is checked and submitted as every durable call."""

    def prepare(name: str, arguments: Mapping[str, Any] | str, claim: ClaimedRun) -> Mapping[str, Any]:
        run = claim.run
        call = Call(
            name,
            arguments,
            agent_caller(run.agent),
            json.loads(run.variables),
            run.id,
            run.session_id,
            # The token that began the run limits every call of it, also those of sub-agents.
            identity=None if claim.identity is None else Caller.from_dict(json.loads(claim.identity)),
            trace=claim.trace,
        )
        return calls.draft(call, calls.known.some((name,)))

    def switch_on(agent: Agent) -> None:
        catalog.builtins.switch_on(agent.tools, agent_caller(agent.name))
        catalog.builtins.switch_on_reader()

    def manifests(names: Iterable[str]) -> Mapping[str, str]:
        return {name: entry.manifest for name, entry in catalog.settled(names).items()}

    return AgentTools(lambda: calls.known, catalog.bound, prepare, switch_on, offered, manifests)
