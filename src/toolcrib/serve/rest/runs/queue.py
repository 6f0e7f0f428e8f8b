"""The routes of workers, and of the queue of durable calls."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()


class WorkerRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker that was heard of lately."""

    name: str
    kind: Literal["worker", "embedded"]
    """`embedded`: a process that has opened the project for something else."""
    tools: list[str]
    """The tools whose calls it takes."""
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
