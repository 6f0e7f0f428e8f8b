"""The workflows of a project, and their runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from toolcrib.core.context import current_trace
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ManifestError
from toolcrib.manifest import Diagnostic, Document, SourceFiles, diagnostics_of, dump, failure
from toolcrib.project.durable.trusted_files import TrustedFiles
from toolcrib.project.integrity.fingerprints import FileUse, as_trusted
from toolcrib.project.root import Place
from toolcrib.project.trust.trust import ProjectTrust
from toolcrib.runs.agents import AgentRuns, AgentTools
from toolcrib.runs.agents.runs import unwrap
from toolcrib.runs.sessions import Run, RunDraft
from toolcrib.runs.workflows import WORKFLOW_PROVIDER, Workflow, WorkflowSet, check_workflows, read_workflow
from toolcrib.schema import ArgumentCheck
from toolcrib.spec import Caller, Tool


class ProjectWorkflows(TrustedFiles[Workflow]):
    """The workflows in files, and those that a program adds."""

    kind = "workflow"

    def __init__(
        self,
        place: Place,
        files: SourceFiles,
        trust: ProjectTrust,
        tools: Toolset,
        runs: Callable[[], AgentRuns],
        callable_tools: Callable[[], AgentTools],
    ) -> None:
        super().__init__(place.workflows, files, trust, read_workflow)
        self._runs, self._tools, self._callable = runs, tools, callable_tools

    def _as_tool(self, one: Workflow, document: Document) -> Tool:
        others = (f"{kind}:{name}" for kind in ("agent", "workflow") for name in one.callees(kind))
        use = FileUse(tuple(one.callees("tool")), tuple(others))
        return as_trusted("workflow", one.name, one.description, document, use)

    def add(self, one: Workflow) -> None:
        """Add a workflow. Raises `ManifestError` with every misfit, and `ConflictError` for its name."""
        try:
            super().add(read_workflow(f"{one.name}.yml", dump(one.document).encode())[0])
        except ManifestError as error:
            raise failure([_in_program(one, finding) for finding in diagnostics_of(error)]) from None

    def findings(self, agents: Collection[str]) -> list[Diagnostic]:
        """Return what is wrong with the files; `agents` are the names of those that there are."""
        workflows, findings = self._in_files()
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
        # Stored with the run, which continues with the files as they were trusted when it began.
        parts = WorkflowSet.gather(workflow, self.get, self._agent, self._callable().require)
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


def _in_program(one: Workflow, finding: Diagnostic) -> Diagnostic:
    """Return the finding where the program makes the workflow; its place in the data is in the message."""
    (path, line), message = one.made, f"{finding.where}: {finding.message}"
    return replace(finding, path=path, line=line, column=1, message=message, source="")
