"""The durable half of a project: calls, agents, tasks, workflows, and their runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from toolcrib.project.catalog.catalog import ProjectCatalog
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.setup import Setup
from toolcrib.spec.model_provider import program_models
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.project.durable.advance import RunAdvance
    from toolcrib.project.durable.agents import ProjectAgents
    from toolcrib.project.durable.calls import ProjectCalls
    from toolcrib.project.durable.tasks import ProjectTasks
    from toolcrib.project.durable.workflows import ProjectWorkflows
    from toolcrib.project.program import Program
    from toolcrib.runs import Offer
    from toolcrib.runs.agents import AgentRuns, AgentTools, Models
    from toolcrib.runs.retention import Pruner
    from toolcrib.spec import Tool
    from toolcrib.state.outgoing.outbox import ChannelMessages

T = TypeVar("T")


class DurableParts:
    """A project as those see it who let its tools, agents and workflows run durably.

    Each part is made on first use: a project without runs imports and opens nothing for them.
    """

    _recorded: Offer | None = None
    """The offer whose tools are recorded."""
    _setup: Setup
    _steps: ProjectSteps
    catalog: ProjectCatalog
    _program: Program | None

    @shared_property
    def calls(self) -> ProjectCalls:
        """Durable calls: stored before they run, and recorded once."""
        from toolcrib.project.durable.calls import ProjectCalls
        from toolcrib.project.durable.served import ServedTools

        catalog, store, trust = self.catalog, self._steps.store, self._steps.trust
        toolset, most = catalog.toolset, self._setup.config.concurrency
        served = ServedTools(
            toolset,
            most,
            trust.why_not_here,
            lambda: (trust.ledger.revision, *program_models),
            # A run goes on with what this user has accepted, or elsewhere.
            lambda: self.advance.providers if trust.given else (),
            catalog.settled,
        )
        calls = ProjectCalls(
            lambda: store.runs, toolset, catalog.bound, catalog.invoke, served, lambda: self.advance
        )
        calls.on_beat += [self.offer, lambda: self.pruner.beat()]  # noqa: PLW0108 - made when it is needed
        return calls

    @property
    def messages(self) -> ChannelMessages:
        """Messages to people on channels."""
        from toolcrib.state.outgoing.outbox import ChannelMessages

        return ChannelMessages(self._steps.store.state)

    @shared_property
    def advance(self) -> RunAdvance:
        """Makes the steps of runs in this process."""
        from toolcrib.project.durable.advance import RunAdvance
        from toolcrib.runs import worker_name

        return RunAdvance(self._steps.store.runs, *self._agent_parts, worker_name())

    def offer(self) -> Offer:
        """Return what this process may run, once the tools of it are recorded for all runs."""
        # Each time: a file that is added meanwhile may list further built-in tools.
        self.agents.switch_on(self.catalog.builtins)
        offer = self.calls.offer()
        if offer is not self._recorded:
            names = [name for name in offer.tools if name not in offer.refused]
            self._agent_parts[1].record(names, offer.manifests)
            self._recorded = offer
        return offer

    @shared_property
    def pruner(self) -> Pruner:
        """Removes the calls and runs that ended long ago."""
        from toolcrib.runs.retention import Pruner, Retention

        config = self._setup.config
        kept = Retention(config.calls_days, config.runs_days, config.failed_days)
        return Pruner(self._steps.store.state, kept)

    @shared_property
    def agents(self) -> ProjectAgents:
        """The agents of the project: those in files, and those that the program adds."""
        from toolcrib.project.durable.agents import ProjectAgents
        from toolcrib.runs.agents import Agent

        place, config = self._setup.place, self._setup.config
        teams = config.teams(place.root)
        agents = ProjectAgents(place, teams, self.catalog.files, self._steps.trust)
        for agent in self._named(Agent):
            agents.add(agent)
        return agents

    @shared_property
    def tasks(self) -> ProjectTasks:
        """Tasks for agents of the project and for command-line agents."""
        from toolcrib.project.durable.tasks import ProjectTasks

        catalog, place = self.catalog, self._setup.place
        return ProjectTasks(
            place, catalog.files, catalog.tools, self.agents, lambda: self.runs, catalog.invoke
        )

    @shared_property
    def workflows(self) -> ProjectWorkflows:
        """The workflows of the project. Their runs are in `runs`."""
        from toolcrib.project.durable.workflows import ProjectWorkflows
        from toolcrib.runs.workflows import Workflow

        place, catalog, trust = self._setup.place, self.catalog, self._steps.trust
        tools = lambda: self._agent_parts[1]  # noqa: E731 - made for the first run only
        workflows = ProjectWorkflows(place, catalog.files, trust, catalog.toolset, lambda: self.runs, tools)
        for workflow in self._named(Workflow):
            workflows.add(workflow)
        return workflows

    def files_as_tools(self) -> dict[str, Tool]:
        """Return agents and workflows by `agent:NAME` or `workflow:NAME`, as they are trusted."""
        return {one.name: one for one in (*self.agents.as_tools(), *self.workflows.as_tools())}

    def _named(self, kind: type[T]) -> Iterable[T]:
        """Return each object of a kind that the project's Python file has, once."""
        names = {} if self._program is None else self._program.names
        return {id(one): one for one in names.values() if isinstance(one, kind)}.values()

    @shared_property
    def runs(self) -> AgentRuns:
        """Sessions and runs of agents."""
        from toolcrib.runs.agents import AgentRuns

        models, tools = self._agent_parts
        return AgentRuns(self._steps.store.runs, self.agents.get, models, tools, self.calls)

    @shared_property
    def _agent_parts(self) -> tuple[Models, AgentTools]:
        from toolcrib.project.durable.agents import agent_tools
        from toolcrib.runs.agents import Models

        catalog, setup = self.catalog, self._setup
        models = Models(setup.config.providers, setup.secrets, catalog.binder.egress)
        self._steps.secrets.know_names(models.keys)
        return models, agent_tools(self.calls, catalog, self._steps.trust.offered)

    def submit(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        connection: object = None,
        **options: Any,
    ) -> str:
        """Store a durable call and return its id; options as of `ProjectCalls.submit`.

        With `connection`, a `psycopg.Connection` to the project's database, the call exists only if the
        transaction that is open on it is committed. `calls.submit_in_async` takes an `AsyncConnection`.
        """
        if connection is not None:
            return self.calls.submit_in(connection, name, arguments, **options)
        return self.calls.submit(name, arguments, **options)

    async def _stop_serving(self) -> None:
        """Stop serving calls, if this process does."""
        # Not `self.calls` alone, which would make what is only to be stopped.
        if "calls" in self.__dict__:
            await self.calls.stop()
