"""The agents of a project, and their runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolcrib.builtin.names import NAMES
from toolcrib.errors import ApprovalRequired, ConflictError, ManifestError, NotFoundError, NotTrusted
from toolcrib.manifest import Diagnostic, Document, SourceFiles, diagnostics_of
from toolcrib.project.control.first_use import FirstUse
from toolcrib.project.durable.calls import ProjectCalls
from toolcrib.project.root import Place
from toolcrib.project.tools.builtins import Builtins
from toolcrib.runs import worker_name
from toolcrib.runs.agents import (
    Agent,
    AgentSteps,
    AgentTools,
    Models,
    agent_texts,
    check_agents,
    read_agent,
)
from toolcrib.runs.sessions import ClaimedRun, DurableRuns, run_entry
from toolcrib.runs.workflows import WORKFLOW_PROVIDER, WorkflowSteps
from toolcrib.spec import Caller, Tool
from toolcrib.spec.naming import nearest

MADE = "agent:"
"""The beginning of an agent's name among the names of what agents have made."""


class MadeAgent(NamedTuple):
    """An agent that an agent has made, as a person reviews it."""

    name: str
    creator: str
    raw: bytes
    digest: str
    """The SHA-256 of the file, in hex."""


class ProjectAgents:
    """The agents in files, read again when one has changed, and those that a program adds."""

    def __init__(self, place: Place, files: SourceFiles, first_use: FirstUse) -> None:
        self._folder = place.agents
        self._files = files
        self._acceptance = first_use.acceptance
        self._reviews = first_use.reviews
        self._added: dict[str, Agent] = {}
        self._read: dict[str, tuple[bytes, tuple[Agent, Document] | list[Diagnostic]]] = {}

    def add(self, agent: Agent) -> None:
        """Add an agent. Raises `ConflictError` if there is one of this name."""
        if agent.name in self.all():
            raise ConflictError(f"there is an agent named {agent.name!r} already")
        self._added[agent.name] = agent

    def all(self) -> dict[str, Agent]:
        """Return every agent by name; those in files first."""
        return {**{name: agent for name, (agent, _) in self._in_files()[0].items()}, **self._added}

    def get(self, name: str) -> Agent:
        """Return an agent; `NotFoundError`, or `NotTrusted` for a file in a project nobody has accepted."""
        if name in self._added:
            return self._added[name]
        agents, findings = self._in_files()
        if name in agents:
            if not self._acceptance.given:
                raise NotTrusted(
                    "nobody has accepted this project, so none of its agents runs",
                    hint="To see what it holds and accept it: toolcrib trust",
                )
            waiting = self.waiting().get(name)
            if waiting is not None:
                raise ApprovalRequired(
                    f"the agent {waiting.creator} made the agent {name}, and nobody has reviewed it",
                    hint=f"To see it and approve it: toolcrib agents review {name}",
                )
            return agents[name][0]
        broken = next((one for one in findings if one.path.endswith(f"/{name}.yml")), None)
        if broken is not None:
            raise NotFoundError(f"agent {name[:100]!r} does not load: {broken.render(hint=False)}")
        close = nearest(name, self.all())
        hint = f"Did you mean {close}?" if close else "`toolcrib agents list` shows those that there are."
        raise NotFoundError(f"there is no agent named {name[:100]!r}", hint=hint)

    def waiting(self) -> dict[str, MadeAgent]:
        """Return the agents that agents have made and that nobody has reviewed as they are now."""
        creators = self._reviews.creators()
        found = {}
        for name, (_, document) in self._in_files()[0].items():
            creator = creators.get(f"{MADE}{name}")
            if creator is not None:
                digest = hashlib.sha256(document.raw).hexdigest()
                if not self._reviews.is_file_reviewed(f"{MADE}{name}", digest):
                    found[name] = MadeAgent(name, creator, document.raw, digest)
        return found

    def accept(self, made: MadeAgent, by: str) -> None:
        """Store that a person has reviewed an agent as it was shown."""
        self._reviews.accept_file(f"{MADE}{made.name}", made.digest, made.raw, by)

    def listed(self) -> dict[str, Sequence[str]]:
        """Return the tools of each agent whose runs may begin."""
        waiting = self.waiting()
        agents = self.all() if self._acceptance.given else self._added
        return {name: agent.tools for name, agent in agents.items() if name not in waiting}

    def findings(self, tools: Callable[[], list[str]]) -> list[Diagnostic]:
        """Return what is wrong with the files; `tools` are the names that agents may list."""
        agents, findings = self._in_files()
        listed = any(agent.tools for agent, _ in agents.values())
        return [*findings, *check_agents(agents, {*tools(), *NAMES} if listed else (), self._added)]

    def _in_files(self) -> tuple[dict[str, tuple[Agent, Document]], list[Diagnostic]]:
        agents, findings = {}, []
        texts = agent_texts(self._folder, self._files)
        for path, raw in texts.items():
            known = self._read.get(path)
            if known is None or known[0] != raw:
                known = self._read[path] = raw, _read_one(path, raw)
            if isinstance(known[1], list):
                findings += known[1]
            else:
                agents[known[1][0].name] = known[1]
        return agents, findings


def _read_one(path: str, raw: bytes) -> tuple[Agent, Document] | list[Diagnostic]:
    try:
        return read_agent(path, raw)
    except ManifestError as error:
        return list(diagnostics_of(error))


def agent_caller(agent: str) -> str:
    """Return the name by which a run of an agent or a workflow calls tools."""
    return agent if agent.startswith("workflow:") else f"agent:{agent}"


def agent_tools(calls: ProjectCalls, get: Callable[[str], Tool], builtins: Builtins) -> AgentTools:
    """Return the tools of the project's agents: each call is checked and submitted as every durable call."""

    def prepare(name: str, arguments: Mapping[str, Any] | str, claim: ClaimedRun) -> Mapping[str, Any]:
        run = claim.run
        return calls.prepare(
            name,
            arguments,
            caller=agent_caller(run.agent),
            identity=None if claim.identity is None else Caller.from_dict(json.loads(claim.identity)),
            variables=json.loads(run.variables),
            session_id=run.session_id,
            run_id=run.id,
            trace=claim.trace,
        )

    def switch_on(agent: Agent) -> None:
        builtins.switch_on(agent.tools, agent_caller(agent.name))

    return AgentTools(get, prepare, switch_on)


def serve_runs(calls: ProjectCalls, runs: DurableRuns, models: Models, tools: AgentTools) -> None:
    """Let a process that serves calls make the model steps of runs too, with the models that it can use."""
    steps = AgentSteps(runs.changes, models, tools, worker_name())
    for provider in models.usable:
        calls.others[run_entry(provider)] = steps.take
    flows = WorkflowSteps(runs.changes, tools.prepare, worker_name())
    calls.others[run_entry(WORKFLOW_PROVIDER)] = flows.take
    calls.on_beat += [steps.beat, flows.beat]
    calls.on_stop += [steps.stop, flows.stop]
