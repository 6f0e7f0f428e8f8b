"""The durable half of a project: calls, agents, tasks, workflows, and their runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from toolcrib.project.catalog.catalog import ProjectCatalog
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.setup import Setup
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.project.durable.agents import ProjectAgents
    from toolcrib.project.durable.calls import ProjectCalls
    from toolcrib.project.durable.tasks import ProjectTasks
    from toolcrib.project.durable.workflows import ProjectWorkflows
    from toolcrib.runs.agents import AgentRuns, AgentTools, Models


class DurableParts:
    """A project as those see it who let its tools, agents and workflows run durably.

    Each part is made on first use: a project without runs imports and opens nothing for them.
    """

    _setup: Setup
    _steps: ProjectSteps
    catalog: ProjectCatalog

    @shared_property
    def calls(self) -> ProjectCalls:
        """Durable calls: stored before they run, and recorded once."""
        from toolcrib.project.durable.calls import Concurrency, ProjectCalls

        catalog, store = self.catalog, self._steps.store
        concurrency = Concurrency(catalog.toolset, self._setup.config.concurrency)
        calls = ProjectCalls(
            lambda: store.runs.calls, catalog.toolset.pipeline, catalog.bound, catalog.invoke, concurrency
        )
        calls.on_serve.append(self._serve_runs)
        return calls

    @shared_property
    def agents(self) -> ProjectAgents:
        """The agents of the project: those in files, and those that the program adds."""
        from toolcrib.project.durable.agents import ProjectAgents

        return ProjectAgents(self._setup.place, self.catalog.files, self._steps.trust)

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

        place, catalog, trust = self._setup.place, self.catalog, self._steps.trust
        return ProjectWorkflows(place, catalog.files, trust, catalog.toolset, lambda: self.runs)

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
        return models, agent_tools(self.calls, catalog.get, catalog.builtins, self._steps.trust.offered)

    def _serve_runs(self) -> None:
        from toolcrib.project.durable.agents import serve_runs

        # At each beat too: a file that is added meanwhile may list further built-in tools.
        self.calls.on_beat.append(switch_on := partial(self.agents.switch_on, self.catalog.builtins))
        switch_on()
        serve_runs(self.calls, self._steps.store.runs, *self._agent_parts)

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
