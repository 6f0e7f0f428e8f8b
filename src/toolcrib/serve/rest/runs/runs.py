"""The routes of agents, sessions and runs, of workers, and of the queue of durable calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import UNSET, convert
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from toolcrib.core.context import read_trace
from toolcrib.errors import (
    ApprovalRequired,
    ConflictError,
    DeniedError,
    InvalidInput,
    NotFoundError,
    NotTrusted,
    UnavailableError,
)
from toolcrib.runs.agents.runs import AgentRuns
from toolcrib.runs.filters import Change, Changed, Filters
from toolcrib.runs.sessions import Run, RunEvent, Session
from toolcrib.serve.http import Answer, EventStream, Routes
from toolcrib.serve.rest.event_stream import event_stream, last_event_id, sent_event
from toolcrib.serve.rest.pages import ChangedMany, PageQuery, filters_of, given, page_before, page_of
from toolcrib.serve.rest.running import may_change
from toolcrib.serve.rest.runs.records import (
    AgentAnswer,
    Agents,
    ForkPoint,
    NewRun,
    NewSession,
    Point,
    Queue,
    RunEventData,
    RunRecord,
    Runs,
    RunsChange,
    RunsQuery,
    SessionRecord,
    Sessions,
    Timeline,
    WorkerRecord,
    Workers,
)
from toolcrib.serve.rest.services import RestRequest, location

ROUTES = Routes()
_ONE = "/runs/{runId}"
_NEW = (NotFoundError, InvalidInput, UnavailableError, NotTrusted, ApprovalRequired)


@ROUTES.add("GET", "/agents", "read", {200: Agents})
def list_agents(request: RestRequest) -> Answer:
    """List the agents of the project."""
    agents = request.services.project.agents.all()
    return Answer(Agents(agents=[convert(agent.as_dict(), AgentAnswer) for agent in agents.values()]))


@ROUTES.add("GET", "/agents/{agent}", "read", {200: AgentAnswer}, NotFoundError)
def get_agent(request: RestRequest) -> Answer:
    """Return an agent: its model, instructions, tools, sub-agents and budgets."""
    agent = request.services.project.agents.find(request.path["agent"])
    return Answer(convert(agent.as_dict(), AgentAnswer))


@ROUTES.add("POST", "/sessions", "invoke", {201: SessionRecord}, InvalidInput, body=NewSession, located=True)
def create_session(request: RestRequest) -> Answer:
    """Create a session, in which runs see those before them."""
    store = _runs(request).store
    made = store.create_session(request.client.caller, request.body().metadata)
    return Answer(_session(store.session(made)), 201, location(request, f"/sessions/{made}"))


@ROUTES.add("GET", "/sessions", "read", {200: Sessions}, InvalidInput, query=PageQuery)
def list_sessions(request: RestRequest) -> Answer:
    """List sessions, the newest first. A token sees its own; an administrator sees all."""
    query: PageQuery = request.query
    before = page_before(query, ("sessions",))
    found = _runs(request).store.sessions(query.page_size + 1, before=before, caller=request.client.seen_by)
    page, token = page_of(found, query, ("sessions",), lambda one: [one.id])
    return Answer(Sessions(sessions=[_session(one) for one in page], next_page_token=token))


@ROUTES.add("GET", "/sessions/{sessionId}", "read", {200: SessionRecord}, NotFoundError)
def get_session(request: RestRequest) -> Answer:
    """Return a session."""
    found = _runs(request).store.session(request.path["sessionId"], request.client.seen_by)
    return Answer(_session(found))


@ROUTES.add(
    "POST", "/runs", "invoke", {201: RunRecord}, *_NEW, body=NewRun, headers=("traceparent",), located=True
)
def create_run(request: RestRequest) -> Answer:
    """Begin a run of an agent. It runs by itself; follow it by its events."""
    body: NewRun = request.body()
    runs, client = _runs(request), request.client
    run_id = runs.start(
        body.session_id,
        body.agent,
        body.prompt,
        body.variables,
        stream=body.stream,
        caller=client.caller,
        identity=client.identity,
        trace=read_trace(request.http.headers.get("traceparent")),
    )
    return Answer(_run(runs.find(run_id)), status=201, headers=location(request, f"/runs/{run_id}"))


@ROUTES.add("GET", "/runs", "read", {200: Runs}, InvalidInput, DeniedError, query=RunsQuery)
def list_runs(request: RestRequest) -> Answer:
    """List the runs that no agent called, the newest first. A token sees its own; an administrator all."""
    query: RunsQuery = request.query
    filters = _filters(query, request.client.seen_by)
    question = ("runs", sorted(filters.items()))
    before = page_before(query, question)
    found = _runs(request).page(limit=query.page_size + 1, before=before, top=True, **filters)
    page, token = page_of(found, query, question, lambda one: [one.id])
    return Answer(Runs(runs=[_run(one) for one in page], next_page_token=token))


@ROUTES.add("POST", "/runs/cancel", "invoke", {200: ChangedMany}, DeniedError, ConflictError, body=RunsChange)
def cancel_runs(request: RestRequest) -> Answer:
    """Cancel all runs that match and have not ended, and all below them; without `atMost`, count them."""
    return _changed(request, "cancel", request.client.seen_by)


@ROUTES.add("POST", "/runs/retry", "invoke", {200: ChangedMany}, DeniedError, ConflictError, body=RunsChange)
def retry_runs(request: RestRequest) -> Answer:
    """Continue all runs that match and failed or were cancelled; without `atMost`, only count them.

    A token retries its own runs only.
    """
    client = request.client
    return _changed(request, "retry", None if client.identity is None else client.caller)


# Before the routes of one run: `events` would be taken for an id there.
@ROUTES.add(
    "GET",
    "/runs/events",
    "admin",
    {200: EventStream((RunEventData,))},
    InvalidInput,
    headers=("Last-Event-ID",),
)
async def stream_all_run_events(request: RestRequest) -> Response:
    """Follow all runs by server-sent events: those after `Last-Event-ID`, and all that come."""
    events = _runs(request).events(None, last_event_id(request))
    return event_stream(request, _written(events))


@ROUTES.add("GET", _ONE, "read", {200: RunRecord}, NotFoundError, InvalidInput)
def get_run(request: RestRequest) -> Answer:
    """Return a run, with its answer or error once it has ended."""
    return Answer(_run(_found(request)))


@ROUTES.add("GET", f"{_ONE}/tree", "read", {200: Runs}, NotFoundError, InvalidInput)
def get_run_tree(request: RestRequest) -> Answer:
    """Return a run and those of the agents below it, each after the one that called it."""
    tree = _runs(request).tree(_found(request).id)
    return Answer(Runs(runs=[_run(one) for one in tree]))


@ROUTES.add("GET", f"{_ONE}/timeline", "read", {200: Timeline}, NotFoundError, InvalidInput)
def get_run_timeline(request: RestRequest) -> Answer:
    """Return a run with its iterations: model, tokens, times, text, and the calls that it asked for."""
    return Answer(convert(_runs(request).timeline(_found(request).id), Timeline))


@ROUTES.add(
    "GET",
    f"{_ONE}/events",
    "read",
    {200: EventStream((RunEventData,)), 204: None},
    NotFoundError,
    InvalidInput,
    headers=("Last-Event-ID",),
)
async def stream_run_events(request: RestRequest) -> Response:
    """Follow a run and those below it by server-sent events, up to its end.

    A stream begins with the first event, or after `Last-Event-ID`: nothing is missed. A client that has the
    last one already gets 204, so that it does not ask again.
    """
    run, runs, last = await run_in_threadpool(_found, request), _runs(request), last_event_id(request)
    if await run_in_threadpool(runs.store.events.is_over, run.id, last):
        return Response(status_code=204)
    events = runs.events(run.id, last, tree=run.root_id == run.id)
    return event_stream(request, _written(events))


@ROUTES.add("POST", f"{_ONE}/cancel", "invoke", {200: RunRecord}, NotFoundError, ConflictError)
def cancel_run(request: RestRequest) -> Answer:
    """Cancel a run and everything below it. What workers report later is refused."""
    runs = _runs(request)
    run = _found(request)
    runs.cancel(run.id)
    return Answer(_run(runs.find(run.id)))


@ROUTES.add("POST", f"{_ONE}/retry", "invoke", {200: RunRecord}, *_NEW, ConflictError, body=Point)
def retry_run(request: RestRequest) -> Answer:
    """Continue a failed or cancelled run after an iteration, with its agent as it is defined now.

    A token retries its own runs only: a run continues for the caller who began it.
    """
    runs = _runs(request)
    body: Point = request.body()
    run = _found(request)
    runs.retry(run.id, body.iteration, identity=request.client.identity)
    return Answer(_run(runs.find(run.id)))


@ROUTES.add("POST", f"{_ONE}/fork", "invoke", {201: RunRecord}, *_NEW, body=ForkPoint, located=True)
def fork_run(request: RestRequest) -> Answer:
    """Begin another run, in a session of its own, that continues after an iteration of this one."""
    runs, client = _runs(request), request.client
    body: ForkPoint = request.body()
    forked = runs.fork(
        _found(request).id, body.iteration, body.prompt, caller=client.caller, identity=client.identity
    )
    return Answer(_run(runs.find(forked)), 201, location(request, f"/runs/{forked}"))


def _runs(request: RestRequest) -> AgentRuns:
    return request.services.project.runs


def _filters(query: RunsQuery | RunsChange, whose: str | None) -> Filters:
    return {**filters_of(query, whose), "state": given(query.state)}


def _changed(request: RestRequest, change: Change, whose: str | None) -> Answer:
    body: RunsChange = request.body()
    runs, filters = _runs(request), _filters(body, whose)
    count, changed = runs.count(change, **filters), Changed([], {})
    if may_change(count, None if body.at_most is UNSET else body.at_most):
        changed = (runs.cancel_all if change == "cancel" else runs.retry_all)(**filters)
    return Answer(ChangedMany(count=count, done=changed.done, refused=changed.refused))


def _found(request: RestRequest) -> Run:
    return _runs(request).find(request.path["runId"], request.client.seen_by)


async def _written(events: AsyncIterator[RunEvent]) -> AsyncIterator[bytes]:
    async for event in events:
        yield sent_event(event.number, event.kind, msgspec.json.encode(event.document))


def _run(run: Run) -> RunRecord:
    return convert(run.document, RunRecord)


def _session(session: Session) -> SessionRecord:
    return convert(session.document, SessionRecord)


@ROUTES.add("GET", "/workers", "admin", {200: Workers})
def list_workers(request: RestRequest) -> Answer:
    """List the workers with the tools that each of them has."""
    return Answer(Workers(workers=convert(_status(request)["workers"], list[WorkerRecord])))


@ROUTES.add("GET", "/queue", "admin", {200: Queue})
def get_queue(request: RestRequest) -> Answer:
    """Return how many durable calls wait and run, and which tools have calls that no worker can serve."""
    status = _status(request)
    return Answer(convert({**status["calls"], "tools": status["queue"]}, Queue))


def _status(request: RestRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.services.project.calls.status()
    return found
