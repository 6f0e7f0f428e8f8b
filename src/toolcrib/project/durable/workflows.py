"""The workflows of a project, and their runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from toolcrib.core.context import current_trace
from toolcrib.core.toolset import Toolset
from toolcrib.errors import NotFoundError
from toolcrib.manifest import Diagnostic, Document, SourceFiles
from toolcrib.project.control.first_use import FirstUse
from toolcrib.project.integrity.agent_files import FileUse, as_reviewed
from toolcrib.project.root import Place
from toolcrib.runs.agents import AgentRuns, read_files
from toolcrib.runs.agents.runs import unwrap
from toolcrib.runs.sessions import Run, RunDraft
from toolcrib.runs.workflows import (
    WORKFLOW_PROVIDER,
    Workflow,
    WorkflowSet,
    check_workflows,
    read_workflow,
)
from toolcrib.schema import ArgumentCheck
from toolcrib.spec import Caller, Tool
from toolcrib.spec.naming import suggestion


class ProjectWorkflows:
    """The workflows in files, read again for each use."""

    def __init__(
        self,
        place: Place,
        files: SourceFiles,
        first_use: FirstUse,
        tools: Toolset,
        runs: Callable[[], AgentRuns],
    ) -> None:
        self._folder = place.workflows
        self._files = files
        self._first_use = first_use
        self._runs = runs
        self._tools = tools

    def all(self) -> dict[str, Workflow]:
        """Return every workflow by name."""
        return {name: workflow for name, (workflow, _) in self._read()[0].items()}

    def get(self, name: str) -> Workflow:
        """Return a workflow to run it. Raises `NotFoundError`, and what `FirstUse.require` raises."""
        found = self._find(name)
        self._first_use.require(_reviewed(*found))
        return found[0]

    def find(self, name: str) -> Workflow:
        """Return a workflow to show it. Raises `NotFoundError`."""
        return self._find(name)[0]

    def _find(self, name: str) -> tuple[Workflow, Document]:
        workflows, findings = self._read()
        if name in workflows:
            return workflows[name]
        broken = next((one for one in findings if one.path.endswith(f"/{name}.yml")), None)
        if broken is not None:
            raise NotFoundError(f"workflow {name[:100]!r} does not load: {broken.render(hint=False)}")
        hint = suggestion(name, workflows, "`toolcrib workflows list` shows those that there are.")
        raise NotFoundError(f"there is no workflow named {name[:100]!r}", hint=hint)

    def reviewed(self) -> list[Tool]:
        """Return the workflows as a person reviews them."""
        return [_reviewed(*one) for one in self._read()[0].values()]

    def findings(self, agents: Collection[str]) -> list[Diagnostic]:
        """Return what is wrong with the files; `agents` are the names of those that there are."""
        workflows, findings = self._read()
        known = {"workflow": workflows, "tool": self._tools.names, "agent": agents}
        return [*findings, *check_workflows(workflows, known)]

    def start(
        self,
        name: str,
        inputs: Mapping[str, Any] | str | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        caller: str = "local",
        identity: Caller | None = None,
        trace: str | None = None,
    ) -> str:
        """Store a run and return its id; `project.runs` follows, cancels and retries it.

        Raises `InvalidInput`, `NotFoundError` for what the steps name, and what `get` raises.
        """
        workflow = self.get(name)
        given = ArgumentCheck(workflow.inputs).check(inputs or {})
        parts = WorkflowSet.gather(workflow, self.get, self._agent, self._tools.get)
        new = RunDraft(
            f"workflow:{name}",
            parts.definition,
            WORKFLOW_PROVIDER,
            json.dumps(given),
            variables or {},
            caller,
            None if identity is None else json.dumps(identity.as_dict()),
            trace=trace or current_trace(),
        )
        return self._runs().store.create_run(None, new)

    async def run(self, name: str, inputs: Mapping[str, Any] | str | None = None, **options: Any) -> Any:
        """Run a workflow to its end and return its value; options as of `start`. Raises its error."""
        run = unwrap(await self._runs().wait(self.start(name, inputs, **options)))
        return json.loads(run.answer or "null")

    @staticmethod
    def outcome(run: Run) -> dict[str, Any]:
        """Return a run as programs see it: `run` (its id), `state`, and its `value` or `error`."""
        found: dict[str, Any] = {"run": run.id, "state": run.state}
        if run.answer is not None:
            found["value"] = json.loads(run.answer)
        if run.error is not None:
            found["error"] = json.loads(run.error)
        return found

    def _agent(self, name: str) -> tuple[str, str]:
        team = self._runs().team(name)
        return team.definition, team.agent.provider

    def _read(self) -> tuple[dict[str, tuple[Workflow, Document]], list[Diagnostic]]:
        return read_files(self._folder, self._files, read_workflow)


def _reviewed(workflow: Workflow, document: Document) -> Tool:
    others = (f"{kind}:{name}" for kind in ("agent", "workflow") for name in workflow.callees(kind))
    use = FileUse(tuple(workflow.callees("tool")), tuple(others))
    return as_reviewed("workflow", workflow.name, workflow.description, document, use)
