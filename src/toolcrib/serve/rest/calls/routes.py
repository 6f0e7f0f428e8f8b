"""The routes that make calls, and those of calls that run or have ended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from toolcrib.bundles.records import Moment, Uuid
from toolcrib.core.context import Context, read_trace
from toolcrib.errors import (
    ApprovalDenied,
    BundleDisabled,
    ConflictError,
    DeniedError,
    HostNotAllowed,
    IdempotencyConflict,
    InvalidInput,
    NotFoundError,
    PolicyDenied,
    RateLimited,
    ToolcribError,
    ToolDisabled,
    ToolNotFound,
    UnavailableError,
)
from toolcrib.runs import STATES, CallStatus
from toolcrib.runs import CallState as StoredState
from toolcrib.runs.filters import Filters
from toolcrib.schema.provider_shapes import Shape, shape_tools
from toolcrib.serve.http import EVENT_STREAM, Answer, EventStream, Problem, Routes
from toolcrib.serve.http.route import Handled
from toolcrib.serve.rest.event_stream import event_stream, last_event_id, sent_event
from toolcrib.serve.rest.pages import MatchingPage, filters_of, page_before, page_of
from toolcrib.serve.rest.refusals import NO_BUNDLE
from toolcrib.serve.rest.running import OpenCall
from toolcrib.serve.rest.services import RestRequest
from toolcrib.spec import CallEvent
from toolcrib.spec.moment import written

ROUTES = Routes()
REFUSALS = (
    InvalidInput,
    PolicyDenied,
    ApprovalDenied,
    HostNotAllowed,
    ToolNotFound,
    ToolDisabled,
    IdempotencyConflict,
    RateLimited,
    UnavailableError,
)
INVOKE = "/tools/invoke/"
_CALLS = "/tools/calls"
_ONE = f"{_CALLS}/{{callId}}"
_MOST_WAIT_S = 3_600
_WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,9})\"?")


class Invocation(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A call to make."""

    args: dict[str, Any] = {}
    """The arguments, by the tool's schema."""
    dry_run: bool = False
    """Run nothing; the value is what the call would do."""


class _Text(Struct, forbid_unknown_fields=True):
    args: Raw


_decode = msgspec.json.Decoder(_Text).decode
_PREFIX = re.compile(rb'\s*\{\s*"args"\s*:\s*')


class Grant(Struct, frozen=True, kw_only=True):
    """One line of the permissions of a tool, as an observed run needs it or has asked for it."""

    permission: str
    """Its place below `permissions` in the manifest: `network`, `network.allow`, `fs.read`, `fs.write`,
    `secrets` or `env`."""
    value: str
    words: str = ""
    """The permission in words."""
    why: str = ""
    """The run's use of it."""


class Observed(Struct, frozen=True, kw_only=True):
    """The things that an observed run used or asked for, whether it was granted or not."""

    reads: list[str]
    """Files and folders, from the project's folder; not those of the system."""
    writes: list[str]
    hosts: list[str]
    programs: list[str]


class Watched(Struct, frozen=True, kw_only=True):
    """An observed run, and the smallest permissions for it."""

    needed: list[Grant]
    """Granted and used."""
    missing: list[Grant]
    """Asked for and not granted: allow it and run again. A host that is not known is `network`."""
    closed: list[Grant]
    """Asked for, and no permission allows it."""
    unused: list[Grant]
    """Granted and not used in this run."""
    permissions: dict[str, Any]
    """The block of what was needed, as in a manifest."""
    observed: Observed
    calls: int
    """Number of system calls that were looked at."""


class InvokeResult(Struct, frozen=True, kw_only=True):
    """The result of a call whose tool ran."""

    ok: bool
    value: Any = UNSET
    """The value, if `ok`."""
    error: Problem | UnsetType = UNSET
    """Otherwise the error."""
    warnings: list[str] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    """`tool`: the full name, if another one was called. If the value is null, also facts of the last attempt,
    such as the HTTP status."""
    watched: Watched | UnsetType = UNSET
    """Of a draft's call with `watch`, if the tool ran."""


class Pending(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call that has not ended."""

    call_id: Uuid
    status: CallStatus


class AttemptRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One time that a worker took a call."""

    worker: str
    began_at: Moment
    ended_at: Moment | None
    ending: str | None
    """`done`, `retry`, `snooze`, `failed`, `discarded`, `cancelled`, `handed_back`, `waits` or `lost`."""
    reason: str | None


class ChangeRecord(Struct, frozen=True):
    """One change of a call."""

    number: int
    at: Moment
    kind: str
    """`submitted`, `claimed`, `retried`, or how an attempt ended."""
    detail: str


class CallHistory(Struct, frozen=True):
    """Each time that a worker took a call, and each change, the first one first."""

    attempts: list[AttemptRecord]
    changes: list[ChangeRecord]


class CallState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call of this server or of the store."""

    id: Uuid
    tool: str
    caller: str
    status: CallStatus
    began_at: Moment
    ended_at: Moment | None = None
    approval_id: Uuid | None = None
    """The approval that it waits for."""
    reason: str | UnsetType = UNSET
    """The reason why a person must decide. Only the server that has asked knows it."""
    result: InvokeResult | None = None
    """None until it has ended."""
    history: CallHistory | UnsetType = UNSET
    """Of one call that is in the store; lists leave it out."""


class Calls(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of calls."""

    calls: list[CallState]
    next_page_token: str | None = None


class EventData(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The data of an event. Only that of `result`, the last one, is an `InvokeResult`."""

    call_id: Uuid
    tool: str
    attempt: int = 1
    done: float | None = None
    total: float | None = None
    message: str = ""
    text: str = ""
    approval: Uuid | None = field(default=None, name="approvalId")
    missed: int = 0


INVOKED = {200: (InvokeResult, EventStream((EventData, InvokeResult))), 202: Pending}
_HEADERS = ("Prefer", "Idempotency-Key", "traceparent")


class InvokeQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The query of a call."""

    shape: Shape | UnsetType = field(default=UNSET, name="for")
    """The provider whose list the model was given: what only that form needs is taken back."""


class CallsQuery(MatchingPage, kw_only=True):
    """The query of a list of calls."""

    status: CallStatus | UnsetType = UNSET


@ROUTES.add(
    "POST",
    "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/invoke",
    "invoke",
    INVOKED,
    *REFUSALS,
    *NO_BUNDLE,
    BundleDisabled,
    query=InvokeQuery,
    body=Invocation,
    headers=_HEADERS,
    located=True,
)
async def invoke_tool(request: RestRequest) -> Handled:
    """Call a tool of a bundle.

    200 has the result of a tool that ran. 202 is for a call that takes longer than the client waits (one
    minute; `Prefer: wait=10`, `Prefer: respond-async`), or that a person must decide on: `/tools/calls` has
    it then. With `Accept: text/event-stream` its events are streamed. Calls with one `Idempotency-Key` run
    once.
    """
    path = request.path
    name = await run_in_threadpool(
        request.services.project.bundles.name, path["bundleID"], path["toolSlug"], path["v"]
    )
    return await _invoke(request, name)


@ROUTES.add(
    "POST",
    f"{INVOKE}{{name}}",
    "invoke",
    INVOKED,
    *REFUSALS,
    query=InvokeQuery,
    body=Invocation,
    headers=_HEADERS,
    located=True,
)
async def invoke_by_name(request: RestRequest) -> Handled:
    """Call any tool of the project by its name, as providers and MCP clients know it.

    Otherwise as for a tool of a bundle.
    """
    name = request.path["name"]
    return await _invoke(request, request.services.project.toolset.same_name(name) or name)


async def _invoke(request: RestRequest, tool: str) -> Handled:
    """Make a call and answer with its result; with 202 if it takes too long, or if a person must decide."""
    client, headers = request.client, request.http.headers
    arguments: Any = arguments_of(request.data)
    dry_run = False
    if arguments is None:
        body = request.body()
        arguments, dry_run = body.args, body.dry_run
    if request.query.shape is not UNSET:
        arguments = await run_in_threadpool(_own, request, tool, request.body().args)
    ctx = Context(
        tool,
        arguments,
        client.caller,
        identity=client.identity,
        wait="block",
        idempotency_key=headers.get("idempotency-key"),
        dry_run=dry_run,
        trace=read_trace(headers.get("traceparent")),
    )
    calls = request.services.calls
    call = calls.same(ctx)
    if EVENT_STREAM in headers.get("accept", ""):
        call = call or calls.start(ctx, client)
        # Once a stream has begun its status is 200, and can no longer say that the call was refused.
        await calls.begin(call, request.http.receive)
        if call.refusal is None:
            return event_stream(request, _events(call, 0))
        return call_answer(call, request.http.scope)
    wait_s = _wait_s(headers.get("prefer", ""))
    if call is None:
        # A dry run ends at once, and a stored call would run the tool. One that waits for trust has no worker
        # to ask for it.
        stored = wait_s == 0 and not dry_run and await run_in_threadpool(_is_trusted, request, tool)
        call = await calls.submit(ctx, client) if stored else calls.start(ctx, client)
    # A client that says how long it waits comes back for the result, so the call outlives its connection.
    call.kept = call.kept or wait_s is not None
    await calls.settle(call, request.http.receive, wait_s)
    await calls.keep(call)
    return call_answer(call, request.http.scope)


def _is_trusted(request: RestRequest, name: str) -> bool:
    project = request.services.project
    with suppress(ToolcribError):
        return project.trust.waits(project.get(name)) is None
    return True


def _own(request: RestRequest, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by a provider's list as the tool itself has them."""
    shaped = shape_tools([request.services.project.get(tool)], request.query.shape)
    return next((shaped.call(name, arguments)[1] for name in shaped.names), arguments)


def arguments_of(body: bytes) -> bytes | None:
    """Return the JSON text of the arguments; None unless the body is `{"args": {…}}` and nothing else."""
    start = _PREFIX.match(body)
    if start is None:
        return None
    try:
        text = bytes(_decode(body).args)
    except (ValueError, RecursionError):
        return None
    # Of two keys `args` msgspec takes the last one; the strict reader refuses them. So the text must be all
    # that the body has.
    alone = body[start.end() :].rstrip()[:-1].rstrip() == text
    return text if alone and text.startswith(b"{") else None


def call_answer(call: OpenCall, scope: Scope) -> Response:
    """Return the result of a call, or 202 if it has not ended. Raises the error of one that was refused."""
    if call.refusal is not None:
        raise call.refusal
    if call.result is not None:
        return Response(call.body, media_type="application/json")
    location = f"{scope.get('root_path', '')}/tools/calls/{call.id}"
    pending = msgspec.json.encode(Pending(call_id=call.id, status=call.status))
    return Response(pending, 202, {"location": location}, "application/json")


def _wait_s(prefer: str) -> float | None:
    """Return the seconds that a client prefers to wait (RFC 7240); None if it does not say."""
    found = _WAIT.search(prefer.lower())
    if found is not None:
        return min(int(found[1]), _MOST_WAIT_S)
    return 0.0 if "respond-async" in prefer.lower() else None


@ROUTES.add("GET", _CALLS, "read", {200: Calls}, DeniedError, query=CallsQuery)
async def list_calls(request: RestRequest) -> Answer:
    """List calls: those of the store, and those that a client of this server awaited in the last hour.

    The newest come first. A token sees its own calls; an administrator sees all.
    """
    query: CallsQuery = request.query
    filters = filters_of(query, request.client.seen_by)
    question = ("calls", query.status, sorted(filters.items()))
    before = page_before(query, question)
    stored_filters: Filters = {**filters, "state": states_of(query.status)}
    stored = await request.services.calls.page(request.client, stored_filters, query.page_size + 1, before)
    here = request.services.calls.list(request.client, filters)
    # A call may be in both: what this server has comes last, since it is newer than the answer of the store.
    by_id = {call.id: call for call in (*stored, *here)}
    found = [
        call
        for call in sorted(by_id.values(), key=lambda call: call.id, reverse=True)
        if (before is None or call.id < before) and query.status in (UNSET, call.status)
    ]
    page, token = page_of(found, query, question, lambda call: [call.id])
    return Answer(Calls(calls=[_state(call) for call in page], next_page_token=token))


def states_of(status: CallStatus | UnsetType) -> Sequence[StoredState] | None:
    """Return the states in the store of calls with this status; None for all."""
    return None if status is UNSET else STATES[status]


@ROUTES.add("GET", _ONE, "read", {200: CallState}, NotFoundError)
async def show_call(request: RestRequest) -> Answer:
    """Return a call with its history, and with its result once it has ended."""
    call = await request.services.calls.look(request.path["callId"], request.client, follow=False)
    state = _state(call)  # Read first: it may end meanwhile, and what has ended is shown with all attempts.
    history = await request.services.calls.history(call)
    if history is None:
        return Answer(state)
    return Answer(msgspec.structs.replace(state, history=msgspec.convert(history, CallHistory)))


@ROUTES.add(
    "GET",
    f"{_ONE}/events",
    "read",
    {200: EventStream((EventData, InvokeResult)), 204: None},
    InvalidInput,
    NotFoundError,
    headers=("Last-Event-ID",),
)
async def stream_call_events(request: RestRequest) -> Response:
    """Follow a call by server-sent events: `started`, `progress`, `chunk`, `approval`, and `result` at last.

    A stream begins with the events that are kept of the call, or after `Last-Event-ID`. A client that reads
    too slowly misses the oldest ones; `missed` of the next event says how many. Leaving does not cancel the
    call. A client that has the result already gets 204, so that it does not ask again.
    """
    call = await _found(request)
    last = last_event_id(request)
    if call.result is not None and last > call.last:
        return Response(status_code=204)
    call.kept = True
    return event_stream(request, _events(call, last))


@ROUTES.add("DELETE", _ONE, "invoke", {200: CallState}, NotFoundError)
async def cancel_call(request: RestRequest) -> Answer:
    """Cancel a call, and return it as it is two seconds later at most. One that has ended stays as it is."""
    call = await _found(request)
    await request.services.calls.cancel(call)
    return Answer(_state(call))


@ROUTES.add("POST", f"{_ONE}/retry", "invoke", {200: CallState}, NotFoundError, ConflictError)
async def retry_call(request: RestRequest) -> Answer:
    """Run a call of the store again that ended without a result.

    A token retries its own calls only: a call runs again for the caller who made it.
    """
    return Answer(_state(await request.services.calls.retry(await _found(request), request.client)))


async def _events(call: OpenCall, after: int) -> AsyncIterator[bytes]:
    """Yield the events of a call after this number as they come, and its result."""
    after = max(after, call.before)
    while True:
        sent = []
        for number, event, missed in call.after(after):
            after = number
            sent.append(sent_event(number, event.kind, msgspec.json.encode(_data(event, missed))))
        if sent:
            yield b"".join(sent)
        if call.result is not None and after >= call.last:
            yield sent_event(call.last + 1, "result", call.body)
            return
        if after >= call.last:  # Else events came while the client read slowly.
            await asyncio.wait({call.change()})


def _data(event: CallEvent, missed: int) -> EventData:
    fields = {name: getattr(event, name) for name in EventData.__struct_fields__}
    # A tool may write lone surrogates, such as the name of a file that is not UTF-8.
    texts = {name: fields[name].encode("utf-8", "replace").decode() for name in ("message", "text")}
    return EventData(**{**fields, **texts, "missed": missed})


async def _found(request: RestRequest) -> OpenCall:
    return await request.services.calls.look(request.path["callId"], request.client)


def _state(call: OpenCall) -> CallState:
    event = call.approval
    return CallState(
        id=call.id,
        tool=call.ctx.tool,
        caller=call.ctx.caller,
        status=call.status,
        began_at=written(call.began_at),
        ended_at=written(call.ended_at),
        approval_id=None if event is None else event.approval,
        reason=UNSET if event is None or not event.message else event.message,
        result=cast("InvokeResult", Raw(call.body)) if call.body else None,
    )
