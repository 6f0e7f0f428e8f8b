"""The steps of runs, made in this process."""

from __future__ import annotations

from toolcrib.runs.agents import AgentSteps, AgentTools, Models
from toolcrib.runs.sessions import ClaimedRun, DurableRuns
from toolcrib.runs.workflows import WORKFLOW_PROVIDER, WorkflowSteps


class RunAdvance:
    """Makes the steps of runs in this process, with the models that it can use."""

    def __init__(self, runs: DurableRuns, models: Models, tools: AgentTools, worker: str) -> None:
        self._agents = AgentSteps(runs.changes, models, tools, worker)
        self._flows = WorkflowSteps(runs.changes, tools.prepare, worker)
        self._models = models
        self.has_loaded, self.load = models.are_loaded, models.load

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers of the runs that it can advance."""
        return (*self._models.usable, WORKFLOW_PROVIDER)

    async def __call__(self, claim: ClaimedRun) -> None:
        """Make one step of a run, and record it."""
        await (self._flows if claim.provider == WORKFLOW_PROVIDER else self._agents).advance(claim)
