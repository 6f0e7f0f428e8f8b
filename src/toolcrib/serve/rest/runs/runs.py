"""The routes of agents, sessions and runs, of workers, and of the queue of durable calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from toolcrib.core.context import read_trace
from toolcrib.errors import (
    ApprovalRequired,
    ConflictError,
    InvalidInput,
    NotFoundError,
    NotTrusted,
    UnavailableError,
)
from toolcrib.runs.agents.runs import AgentRuns
from toolcrib.runs.sessions import Run, RunEvent, Session
from toolcrib.serve.http import EVENT_STREAM, Answer, Routes
from toolcrib.serve.rest.event_stream import event_stream, last_event_id, sent_event
from toolcrib.serve.rest.pages import PageQuery, page_before, page_of
from toolcrib.serve.rest.services import RestRequest, location
from toolcrib.spec.moment import written

ROUTES = Routes()
_ONE = "/runs/{runID}"
_NEW = (NotFoundError, InvalidInput, UnavailableError, NotTrusted, ApprovalRequired)
_RunState = Literal["queued", "ready", "running", "waiting", "done", "failed", "cancelled"]
Text = Annotated[str, Meta(min_length=1, max_length=1_000_000)]


class Agents(Struct, frozen=True, kw_only=True, rename="camel"):
    """The agents of the project."""

    agents: list[dict[str, Any]]


class SessionRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation of one run after the other."""

    id: str
    caller: str
    metadata: dict[str, Any]
    active_run: str | None
    created_at: str


class Sessions(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of sessions."""

    sessions: list[SessionRecord]
    next_page_token: str | None = None


class RunRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run of an agent."""

    id: str
    session_id: str
    root_id: str
    parent_id: str | None
    depth: int
    agent: str
    caller: str
    variables: dict[str, Any]
    prompt: str
    state: _RunState
    iteration: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None if the price of a model is unknown."""
    active_s: float
    answer: str | None
    error: dict[str, Any] | None
    forked_from: str | None
    created_at: str
    ended_at: str | None


class Runs(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of runs, or the runs of a tree."""

    runs: list[RunRecord]
    next_page_token: str | None = None


class NewSession(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A session to create."""

    metadata: dict[str, Any] = {}


class NewRun(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A run to begin."""

    agent: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    prompt: Text
    session_id: str | None = None
    """The session to continue; a new one without it."""
    variables: dict[str, Any] = {}
    """They reach the tools of the run, and no model."""
    stream: bool = False
    """Parts of answers are events too."""


class Point(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A point in a run to continue from."""

    iteration: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """The iteration after which to continue; without it the last complete one."""


class ForkPoint(Point, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A point in a run to begin another one from."""

    prompt: Text | None = None
    """The next message to the model."""


class RunsQuery(PageQuery, kw_only=True):
    """The query of a list of runs."""

    state: _RunState | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@ROUTES.add("GET", "/agents", "read", {200: Agents})
def list_agents(request: RestRequest) -> Answer:
    """List the agents of the project."""
    agents = request.services.project.agents.all()
    return Answer(Agents(agents=[agent.document for agent in agents.values()]))


@ROUTES.add("GET", "/agents/{agent}", "read", {200: dict[str, Any]}, NotFoundError)
def get_agent(request: RestRequest) -> Answer:
    """Return an agent: its model, instructions, tools, sub-agents and budgets."""
    return Answer(request.services.project.agents.find(request.path["agent"]).document)


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


@ROUTES.add("GET", "/sessions/{sessionID}", "read", {200: SessionRecord}, NotFoundError)
def get_session(request: RestRequest) -> Answer:
    """Return a session."""
    found = _runs(request).store.session(request.path["sessionID"], request.client.seen_by)
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


@ROUTES.add("GET", "/runs", "read", {200: Runs}, InvalidInput, query=RunsQuery)
def list_runs(request: RestRequest) -> Answer:
    """List the runs that no agent called, the newest first. A token sees its own; an administrator all."""
    query: RunsQuery = request.query
    filters = {
        name: value
        for name in ("state", "agent", "session_id")
        if (value := getattr(query, name)) is not UNSET
    }
    question = ("runs", sorted(filters.items()))
    found = _runs(request).page(
        limit=query.page_size + 1,
        before=page_before(query, question),
        caller=request.client.seen_by,
        top=True,
        **filters,
    )
    page, token = page_of(found, query, question, lambda one: [one.id])
    return Answer(Runs(runs=[_run(one) for one in page], next_page_token=token))


# Before the routes of one run: `events` would be taken for an id there.
@ROUTES.add("GET", "/runs/events", "admin", {200: EVENT_STREAM}, InvalidInput, headers=("Last-Event-ID",))
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


@ROUTES.add("GET", f"{_ONE}/timeline", "read", {200: dict[str, Any]}, NotFoundError, InvalidInput)
def get_run_timeline(request: RestRequest) -> Answer:
    """Return a run with its iterations: model, tokens, times, text, and the calls that it asked for."""
    return Answer(_runs(request).timeline(_found(request).id))


@ROUTES.add(
    "GET",
    f"{_ONE}/events",
    "read",
    {200: EVENT_STREAM, 204: None},
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


def _found(request: RestRequest) -> Run:
    return _runs(request).find(request.path["runID"], request.client.seen_by)


async def _written(events: AsyncIterator[RunEvent]) -> AsyncIterator[bytes]:
    async for event in events:
        yield sent_event(event.number, event.kind, msgspec.json.encode(event.document))


def _run(run: Run) -> RunRecord:
    document = run.document
    times = {name: written(document.pop(name)) for name in ("created_at", "ended_at")}
    return RunRecord(**document, **times)


def _session(session: Session) -> SessionRecord:
    return SessionRecord(**{**session.document, "created_at": written(session.created_at)})


class WorkerRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker that was heard of lately."""

    name: str
    kind: Literal["worker", "embedded"]
    """`embedded`: a process that has opened the project for something else."""
    tools: list[str]
    """The tools whose calls it takes."""
    refused: dict[str, list[str]]
    """The tools that it has and does not run, by reason: nobody has trusted them on its machine."""
    running: int
    began_at: str
    seen_at: str


class Workers(Struct, frozen=True, kw_only=True, rename="camel"):
    """The workers of the project, on all machines."""

    workers: list[WorkerRecord]


class QueuedRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool with calls that are ready to run."""

    tool: str
    ready: int
    waits_s: float
    """Seconds that the oldest of them has been ready."""
    served: bool
    """False if no worker has this tool."""


class Queue(Struct, frozen=True, kw_only=True, rename="camel"):
    """The durable calls that have not ended."""

    ready: int
    """Calls that wait for a worker, or for their time."""
    running: int
    waiting: int
    """Calls that wait for a person to decide."""
    tools: list[QueuedRecord]


@ROUTES.add("GET", "/workers", "admin", {200: Workers})
def list_workers(request: RestRequest) -> Answer:
    """List the workers with the tools that each of them has."""
    return Answer(Workers(workers=[WorkerRecord(**one) for one in _status(request)["workers"]]))


@ROUTES.add("GET", "/queue", "admin", {200: Queue})
def get_queue(request: RestRequest) -> Answer:
    """Return how many durable calls wait and run, and which tools have calls that no worker can serve."""
    status = _status(request)
    tools = [QueuedRecord(**one, served=one["tool"] not in status["unserved"]) for one in status["queue"]]
    return Answer(Queue(**status["calls"], tools=tools))


def _status(request: RestRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.services.project.calls.status()
    return found
