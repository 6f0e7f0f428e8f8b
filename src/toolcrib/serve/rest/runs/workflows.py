"""The routes of workflows. Their runs are those of `/runs`."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, convert, field
from starlette.concurrency import run_in_threadpool

from toolcrib.bundles.records import Uuid
from toolcrib.core.context import read_trace
from toolcrib.errors import ApprovalRequired, InvalidInput, NotFoundError, NotTrusted
from toolcrib.runs.workflows import step_schema
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, location

ROUTES = Routes()
_PATH = "/workflows"
_ONE = f"{_PATH}/{{workflow}}"


_STEPS = [{"id": "count", "tool": "count_lines", "args": {"path": "README.md"}}]
_Step = Annotated[dict[str, Any], Meta(extra_json_schema=step_schema(), examples=_STEPS)]


class WorkflowAnswer(Struct, kw_only=True, frozen=True):
    """A workflow of the project."""

    name: str
    description: str
    inputs: dict[str, Any]
    """JSON Schema 2020-12 of what a run is given."""
    steps: list[_Step]
    """As in its file."""
    needs: dict[str, list[str]]
    """Id of a step to the ids of those that must be over before it begins."""


class WorkflowList(Struct, kw_only=True, frozen=True):
    """The workflows of the project."""

    workflows: list[WorkflowAnswer]


class WorkflowStart(Body, kw_only=True):
    """The input of a run of a workflow."""

    inputs: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    """They reach the tools, but no model."""


class WorkflowRun(Struct, kw_only=True, frozen=True, rename="camel"):
    """A run that was stored."""

    run_id: Uuid
    state: str


@ROUTES.add("GET", _PATH, "read", {200: WorkflowList})
def list_workflows(request: RestRequest) -> Answer:
    """List the workflows of the project."""
    found = request.services.project.workflows.all().values()
    return Answer(WorkflowList(workflows=[convert(one.as_dict(), WorkflowAnswer) for one in found]))


@ROUTES.add("GET", _ONE, "read", {200: WorkflowAnswer}, NotFoundError)
def get_workflow(request: RestRequest) -> Answer:
    """Return one workflow with its steps."""
    found = request.services.project.workflows.find(request.path["workflow"])
    return Answer(convert(found.as_dict(), WorkflowAnswer))


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
    return Answer(WorkflowRun(run_id=run_id, state=run.state), 202, location(request, f"/runs/{run_id}"))
