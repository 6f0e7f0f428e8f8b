"""The routes of workflows. Their runs are those of `/runs`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from starlette.concurrency import run_in_threadpool

from toolcrib.core.context import read_trace
from toolcrib.errors import ApprovalRequired, InvalidInput, NotFoundError, NotTrusted
from toolcrib.runs.workflows import Workflow
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, location

ROUTES = Routes()
_PATH = "/workflows"
_ONE = f"{_PATH}/{{workflow}}"


class WorkflowAnswer(Struct, kw_only=True, frozen=True):
    """A workflow of the project."""

    name: str
    description: str
    inputs: dict[str, Any]
    """JSON Schema 2020-12 of what a run is given."""
    steps: list[dict[str, Any]]


class WorkflowList(Struct, kw_only=True, frozen=True):
    """The workflows of the project."""

    workflows: list[WorkflowAnswer]


class WorkflowStart(Body, kw_only=True):
    """The input of a run of a workflow."""

    inputs: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    """They reach the tools, but no model."""


class WorkflowRun(Struct, kw_only=True, frozen=True):
    """A run that was stored."""

    run: str
    """Its id."""
    state: str


@ROUTES.add("GET", _PATH, "read", {200: WorkflowList})
def list_workflows(request: RestRequest) -> Answer:
    """List the workflows of the project."""
    found = request.services.project.workflows.all().values()
    return Answer(WorkflowList(workflows=[_answer(one) for one in found]))


@ROUTES.add("GET", _ONE, "read", {200: WorkflowAnswer}, NotFoundError)
def get_workflow(request: RestRequest) -> Answer:
    """Return one workflow with its steps."""
    return Answer(_answer(request.services.project.workflows.find(request.path["workflow"])))


@ROUTES.add(
    "POST",
    f"{_ONE}/runs",
    "invoke",
    {202: WorkflowRun},
    NotFoundError,
    NotTrusted,
    ApprovalRequired,
    InvalidInput,
    body=WorkflowStart,
    headers=("traceparent",),
    located=True,
)
async def start_workflow(request: RestRequest) -> Answer:
    """Store a run of a workflow. It continues whatever becomes of the client."""
    body: WorkflowStart = request.body()
    project, client = request.services.project, request.client
    run_id = await run_in_threadpool(
        project.workflows.start,
        request.path["workflow"],
        body.inputs,
        body.variables,
        caller=client.caller,
        identity=client.identity,
        trace=read_trace(request.http.headers.get("traceparent")),
    )
    project.calls.serve()
    run = await run_in_threadpool(project.runs.find, run_id)
    return Answer(WorkflowRun(run=run_id, state=run.state), 202, location(request, f"/runs/{run_id}"))


def _answer(workflow: Workflow) -> WorkflowAnswer:
    return WorkflowAnswer(
        name=workflow.name,
        description=workflow.description,
        inputs=workflow.inputs,
        steps=workflow.document["steps"],
    )
