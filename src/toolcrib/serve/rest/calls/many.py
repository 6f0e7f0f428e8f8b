"""The routes that submit many calls, and that change all that match a filter."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolcrib.bundles.records import Uuid
from toolcrib.errors import (
    ConflictError,
    DeniedError,
    IdempotencyConflict,
    InvalidInput,
    PolicyDenied,
    ToolDisabled,
    ToolNotFound,
)
from toolcrib.runs import CallStatus
from toolcrib.runs.dispatch import MOST_DELAY_S
from toolcrib.runs.filters import Changed, Filters
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.calls.routes import states_of
from toolcrib.serve.rest.pages import ChangedMany, ChangeOf, filters_of
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.running import may_change
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_MOST = 10_000


class NewCall(Body, kw_only=True):
    """A call to store."""

    tool: str
    """Its name, as in `/tools/invoke/{name}`."""
    args: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    """Higher ones are taken first."""
    delay_s: Annotated[float, Meta(ge=0, le=MOST_DELAY_S)] = 0.0
    """Seconds until it may run."""


class NewCalls(Body, kw_only=True):
    """Calls to store."""

    calls: Annotated[list[NewCall], Meta(min_length=1, max_length=_MOST)]


class Submitted(Struct, kw_only=True, frozen=True, rename="camel"):
    """The calls that were stored."""

    call_ids: list[Uuid]
    """In the order of the request."""


class CallsChange(ChangeOf, kw_only=True):
    """A change of all calls that match."""

    status: CallStatus | UnsetType = UNSET


@ROUTES.add(
    "POST",
    "/tools/calls",
    "invoke",
    {200: Submitted},
    *(InvalidInput, ToolNotFound, ToolDisabled, PolicyDenied, IdempotencyConflict),
    body=NewCalls,
)
def submit_calls(request: RestRequest) -> Answer:
    """Store calls in one transaction: all of them, or none. They run whatever becomes of the client."""
    body: NewCalls = request.body()
    client, project = request.client, request.services.project
    ids = project.calls.submit_many(
        {
            "tool": project.toolset.same_name(call.tool) or call.tool,
            "arguments": call.args,
            "caller": client.caller,
            "identity": client.identity,
            "idempotency_key": None if call.idempotency_key is UNSET else call.idempotency_key,
            "priority": call.priority,
            "delay_s": call.delay_s,
        }
        for call in body.calls
    )
    return Answer(Submitted(call_ids=ids))


@ROUTES.add(
    "POST", "/tools/calls/cancel", "invoke", {200: ChangedMany}, DeniedError, ConflictError, body=CallsChange
)
async def cancel_calls(request: RestRequest) -> Answer:
    """Cancel all calls that match and have not ended; without `atMost`, only count them."""
    body: CallsChange = request.body()
    filters: Filters = {**filters_of(body, request.client.seen_by), "state": states_of(body.status)}
    most = None if body.at_most is UNSET else body.at_most
    count, changed = await request.services.calls.cancel_all(request.client, filters, most)
    return Answer(ChangedMany(count=count, done=changed.done, refused=changed.refused))


@ROUTES.add(
    "POST", "/tools/calls/retry", "invoke", {200: ChangedMany}, DeniedError, ConflictError, body=CallsChange
)
def retry_calls(request: RestRequest) -> Answer:
    """Run all calls of the store again that match and ended without a result; without `atMost`, count them.

    A token retries its own calls only.
    """
    body: CallsChange = request.body()
    client, calls = request.client, request.services.project.calls
    whose = None if client.identity is None else client.caller
    filters: Filters = {**filters_of(body, whose), "state": states_of(body.status)}
    count, changed = calls.count("retry", **filters), Changed([], {})
    if may_change(count, None if body.at_most is UNSET else body.at_most):
        changed = calls.retry_all(**filters)
    return Answer(ChangedMany(count=count, done=changed.done, refused=changed.refused))
