"""The routes of agents, sessions and runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response, StreamingResponse

from toolcrib.core.context import read_trace
from toolcrib.errors import (
    ApprovalRequired,
    ConflictError,
    InvalidError,
    InvalidToken,
    NotFoundError,
    NotTrusted,
    UnavailableError,
)
from toolcrib.project.catalog.pages import page_token, read_page_token
from toolcrib.serve.http import Answer, HttpRequest, Route
from toolcrib.serve.rest.calls.event_stream import EVENT_STREAM
from toolcrib.serve.rest.pages import PageQuery
from toolcrib.serve.rest.services import Services
from toolcrib.spec.moment import written

_QUIET_S = 15.0
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
    """The session to go on with; a new one without it."""
    variables: dict[str, Any] = {}
    """They reach the tools of the run, and no model."""
    stream: bool = False
    """Parts of answers are events too."""


class Point(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A point in a run to go on from."""

    iteration: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """The iteration after which to go on; without it the last complete one."""


class ForkPoint(Point, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A point in a run to begin another one from."""

    prompt: Text | None = None
    """The next message to the model."""


class RunsQuery(PageQuery, kw_only=True):
    """The query of a list of runs."""

    state: _RunState | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


def list_agents(request: HttpRequest) -> Answer:
    """List the agents of the project."""
    agents = request.services.project.agents.all()
    return Answer(Agents(agents=[agent.document for agent in agents.values()]))


def get_agent(request: HttpRequest) -> Answer:
    """Return an agent: its model, instructions, tools, sub-agents and budgets."""
    return Answer(request.services.project.agents.find(request.path["agent"]).document)


def create_session(request: HttpRequest) -> Answer:
    """Create a session, in which runs see those before them."""
    runs, caller = _runs(request)
    session = runs.session(runs.create_session(request.body().metadata, caller=caller))
    return Answer(_session(session), status=201)


def list_sessions(request: HttpRequest) -> Answer:
    """List sessions, the newest first. A token sees its own; an administrator sees all."""
    runs, _ = _runs(request)
    query: PageQuery = request.query
    before = _before(query, ("sessions",))
    found = runs.sessions(query.page_size + 1, before=before, caller=_seen_by(request))
    page = found[: query.page_size]
    token = page_token(("sessions",), [page[-1].id]) if len(found) > len(page) else None
    return Answer(Sessions(sessions=[_session(one) for one in page], next_page_token=token))


def get_session(request: HttpRequest) -> Answer:
    """Return a session."""
    runs, _ = _runs(request)
    return Answer(_session(runs.session(request.path["sessionID"], _seen_by(request))))


async def create_run(request: HttpRequest) -> Answer:
    """Begin a run of an agent. It runs by itself; follow it by its events."""
    body: NewRun = request.body()
    assert request.client is not None
    runs, caller = _runs(request)
    run_id = runs.start(
        body.session_id,
        body.agent,
        body.prompt,
        body.variables,
        stream=body.stream,
        caller=caller,
        identity=request.client.identity,
        trace=read_trace(request.http.headers.get("traceparent")),
    )
    location = f"{request.http.scope.get('root_path', '')}/runs/{run_id}"
    return Answer(_run(runs.find(run_id)), status=201, headers={"location": location})


def list_runs(request: HttpRequest) -> Answer:
    """List the runs that no agent called, the newest first. A token sees its own; an administrator all."""
    runs, _ = _runs(request)
    query: RunsQuery = request.query
    filters = {
        name: value
        for name in ("state", "agent", "session_id")
        if (value := getattr(query, name)) is not UNSET
    }
    question = ("runs", sorted(filters.items()))
    found = runs.page(
        limit=query.page_size + 1,
        before=_before(query, question),
        caller=_seen_by(request),
        top=True,
        **filters,
    )
    page = found[: query.page_size]
    token = page_token(question, [page[-1].id]) if len(found) > len(page) else None
    return Answer(Runs(runs=[_run(one) for one in page], next_page_token=token))


def get_run(request: HttpRequest) -> Answer:
    """Return a run, with its answer or error once it has ended."""
    return Answer(_run(_found(request)))


def get_run_tree(request: HttpRequest) -> Answer:
    """Return a run and those of the agents below it, each after the one that called it."""
    runs, _ = _runs(request)
    return Answer(Runs(runs=[_run(one) for one in runs.tree(_found(request).id)]))


def get_run_timeline(request: HttpRequest) -> Answer:
    """Return a run with its iterations: model, tokens, times, text, and the calls that it asked for."""
    runs, _ = _runs(request)
    return Answer(runs.timeline(_found(request).id))


async def stream_run_events(request: HttpRequest) -> Response:
    """Follow a run and those below it by server-sent events, up to its end.

    A stream begins with the first event, or after `Last-Event-ID`: nothing is missed.
    """
    runs, _ = _runs(request)
    run = _found(request)
    return _stream(request, runs.events(run.id, _after(request), tree=run.root_id == run.id))


async def stream_all_run_events(request: HttpRequest) -> Response:
    """Follow all runs by server-sent events: those after `Last-Event-ID`, and all that come."""
    runs, _ = _runs(request)
    return _stream(request, runs.events(None, _after(request)))


def cancel_run(request: HttpRequest) -> Answer:
    """Cancel a run and everything below it. What workers report later is refused."""
    runs, _ = _runs(request)
    run = _found(request)
    runs.cancel(run.id)
    return Answer(_run(runs.find(run.id)))


async def retry_run(request: HttpRequest) -> Answer:
    """Let a failed or cancelled run go on after an iteration, with its agent as it is defined now.

    A token retries its own runs only: a run goes on for the caller who began it.
    """
    runs, _ = _runs(request)
    body: Point = request.body()
    run = _found(request)
    assert request.client is not None
    runs.retry(run.id, body.iteration, identity=request.client.identity)
    return Answer(_run(runs.find(run.id)))


async def fork_run(request: HttpRequest) -> Answer:
    """Begin another run, in a session of its own, that continues after an iteration of this one."""
    runs, caller = _runs(request)
    body: ForkPoint = request.body()
    assert request.client is not None
    known, identity = _found(request), request.client.identity
    forked = runs.fork(known.id, body.iteration, body.prompt, caller=caller, identity=identity)
    return Answer(_run(runs.find(forked)), status=201)


def _runs(request: HttpRequest) -> tuple[Any, str]:
    services: Services = request.services
    assert request.client is not None
    return services.project.runs, request.client.caller


def _seen_by(request: HttpRequest) -> str | None:
    """Return the caller whose sessions and runs the client may see; None for all of them."""
    assert request.client is not None
    identity = request.client.identity
    return None if identity is None or identity.may("admin") else request.client.caller


def _found(request: HttpRequest) -> Any:
    runs, _ = _runs(request)
    return runs.find(request.path["runID"], _seen_by(request))


def _before(query: PageQuery, question: tuple[Any, ...]) -> str | None:
    if query.page_token is UNSET:
        return None
    (before,) = read_page_token(query.page_token, question, str)
    return str(before)


def _run(run: Any) -> RunRecord:
    document = run.document
    times = {name: written(document.pop(name)) for name in ("created_at", "ended_at")}
    return RunRecord(**document, **times)


def _session(session: Any) -> SessionRecord:
    return SessionRecord(**{**session.document, "created_at": written(session.created_at)})


def _after(request: HttpRequest) -> int:
    last = request.http.headers.get("last-event-id", "0")
    if not (last.isascii() and last.isdecimal()) or len(last) > 15:
        raise InvalidError(f"there is no event {last[:40]!r}", hint="Send the id of an event.")
    return int(last)


def _stream(request: HttpRequest, events: AsyncIterator[Any]) -> Response:
    services: Services = request.services
    client = request.client
    assert client is not None

    def check() -> None:
        services.access.require_valid(client)

    return StreamingResponse(_written(events, services.closing, check), media_type=EVENT_STREAM)


async def _written(
    events: AsyncIterator[Any], closing: asyncio.Event, check: Callable[[], None]
) -> AsyncGenerator[bytes]:
    """Yield events as they are sent; the end of the token, or of the server, ends the stream."""
    stopping: asyncio.Future[Any] = asyncio.ensure_future(closing.wait())
    following: asyncio.Future[Any] | None = None
    try:
        while True:
            check()
            following = following or asyncio.ensure_future(anext(events, None))
            ready = {following, stopping}
            done, _ = await asyncio.wait(ready, timeout=_QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            if following in done:
                event, following = following.result(), None
                if event is None:
                    return
                data = msgspec.json.encode(event.document)
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.kind.encode(), data)
            elif stopping in done:
                yield b": the server stops\n\n"
                return
            else:
                yield b":\n\n"
    except InvalidToken:
        yield b": the token is no longer valid\n\n"
    finally:
        stopping.cancel()
        if following is not None:
            following.cancel()


_ONE = "/runs/{runID}"
_NEW = (NotFoundError, InvalidError, UnavailableError, NotTrusted, ApprovalRequired)
ROUTES = (
    Route("GET", "/agents", list_agents, "read", {200: Agents}),
    Route("GET", "/agents/{agent}", get_agent, "read", {200: dict[str, Any]}, errors=(NotFoundError,)),
    Route(
        "POST",
        "/sessions",
        create_session,
        "invoke",
        {201: SessionRecord},
        body=NewSession,
        errors=(InvalidError,),
    ),
    Route(
        "GET", "/sessions", list_sessions, "read", {200: Sessions}, query=PageQuery, errors=(InvalidError,)
    ),
    Route("GET", "/sessions/{sessionID}", get_session, "read", {200: SessionRecord}, errors=(NotFoundError,)),
    Route("POST", "/runs", create_run, "invoke", {201: RunRecord}, body=NewRun, errors=_NEW),
    Route("GET", "/runs", list_runs, "read", {200: Runs}, query=RunsQuery, errors=(InvalidError,)),
    Route("GET", "/runs/events", stream_all_run_events, "admin", {200: EVENT_STREAM}, errors=(InvalidError,)),
    *(
        Route("GET", f"{_ONE}{below}", handler, "read", {200: answer}, errors=(NotFoundError, InvalidError))
        for below, handler, answer in (
            ("", get_run, RunRecord),
            ("/tree", get_run_tree, Runs),
            ("/timeline", get_run_timeline, dict[str, Any]),
            ("/events", stream_run_events, EVENT_STREAM),
        )
    ),
    Route(
        "POST",
        f"{_ONE}/cancel",
        cancel_run,
        "invoke",
        {200: RunRecord},
        errors=(NotFoundError, ConflictError),
    ),
    Route(
        "POST",
        f"{_ONE}/retry",
        retry_run,
        "invoke",
        {200: RunRecord},
        body=Point,
        errors=(*_NEW, ConflictError),
    ),
    Route("POST", f"{_ONE}/fork", fork_run, "invoke", {201: RunRecord}, body=ForkPoint, errors=_NEW),
)
