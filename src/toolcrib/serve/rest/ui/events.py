"""The routes for a client that shows a project: the stream of all changes, and the counts of what waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from starlette.responses import Response

from toolcrib.serve.http import Answer, EventStream, Routes
from toolcrib.serve.rest.changes import SCOPES, Changes, Topic
from toolcrib.serve.rest.event_stream import event_stream
from toolcrib.serve.rest.services import RestRequest, covers

ROUTES = Routes()
_MOST = 500


class Changed(Struct, frozen=True, kw_only=True):
    """The data of an event: something of this topic has changed since the event before."""

    topic: Topic


class Counts(Struct, frozen=True, kw_only=True):
    """The numbers of what waits and runs, as far as the client may see it."""

    approvals: int | None
    """Calls that wait for a decision, up to 500; null without the scope `approve`."""
    runs: dict[str, int]
    """Runs by state."""
    calls: dict[str, int]
    """Calls of the store that have not ended, by state."""


@ROUTES.add("GET", "/events", "read", {200: EventStream((Changed,))}, headers=("Last-Event-ID",))
async def stream_changes(request: RestRequest) -> Response:
    """Follow what changes, by server-sent events: `catalogue`, `approvals`, `runs`, `calls` and `audit`.

    An event says that something of its topic has changed, by whatever process: read it again. Trust and
    switches are of the catalogue. A stream begins with an event of each topic; after `Last-Event-ID`, of
    those that have changed since. There are none of topics that the client may not read.
    """
    seen = dict(zip(SCOPES, request.http.headers.get("last-event-id", "").split("-"), strict=False))
    identity = request.client.identity
    topics = [topic for topic, scope in SCOPES.items() if identity is None or identity.may(scope)]
    return event_stream(request, _events(request.services.changes, seen, topics))


async def _events(
    changes: Changes, seen: Mapping[Topic, str], topics: Sequence[Topic]
) -> AsyncIterator[bytes]:
    marks = await changes.marks()
    while True:
        changed = [topic for topic in topics if marks[topic] != seen.get(topic)]
        for topic in changed:
            # The last one has the id: who gets only some of these gets all of them again.
            id_ = "-".join(marks.values()) if topic == changed[-1] else ""
            yield _event(topic, id_)
        seen, marks = marks, await changes.after(marks)


def _event(topic: Topic, id_: str) -> bytes:
    data = msgspec.json.encode(Changed(topic=topic)).decode()
    first = f"id: {id_}\n" if id_ else ""
    return f"{first}event: {topic}\ndata: {data}\n\n".encode()


@ROUTES.add("GET", "/counts", "read", {200: Counts})
def count_all(request: RestRequest) -> Answer:
    """Return how many calls wait for a decision, and the runs and calls by state.

    A token without the scope `admin` sees its own runs and calls. `GET /trust` has what waits for trust.
    """
    project, client = request.services.project, request.client
    identity, calls, whose = client.identity, project.calls, client.seen_by
    decides = identity is None or identity.may("approve")
    waiting = project.approval_service.approvals.list("pending", _MOST) if decides else ()
    states = ("ready", "running", "waiting")
    return Answer(
        Counts(
            approvals=sum(covers(request, one.tool) for one in waiting) if decides else None,
            runs=project.runs.store.counts(whose),
            calls={state: calls.count(state=state, caller=whose) for state in states},
        )
    )
