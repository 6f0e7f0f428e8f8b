"""The bodies and answers of the routes of agents, sessions and runs, of workers and of the queue."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from toolcrib.bundles.records import Moment, Uuid
from toolcrib.serve.http.problems import Problem, ViolationAnswer
from toolcrib.serve.rest.calls.routes import AttemptRecord
from toolcrib.serve.rest.pages import ChangeOf, MatchingPage

RunState = Literal["queued", "ready", "running", "waiting", "done", "failed", "cancelled"]
Text = Annotated[str, Meta(min_length=1, max_length=1_000_000)]


class BudgetsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Limits of one run."""

    iterations: int
    depth: int
    """Levels of sub-agents below the run."""
    time_s: float
    """Seconds of work."""
    tokens: int
    cost_usd: float | None
    """Null: 10, for models with a known price."""


class ScriptedCall(Struct, frozen=True, kw_only=True):
    """A call in an answer of the model `scripted`."""

    tool: str
    arguments: dict[str, Any] | UnsetType = UNSET


class ScriptedAnswer(Struct, frozen=True, kw_only=True):
    """An answer of the model `scripted`."""

    text: str | UnsetType = UNSET
    calls: list[ScriptedCall] | UnsetType = UNSET


class AgentAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent."""

    name: str
    model: str
    """`PROVIDER:MODEL`."""
    instructions: str
    description: str
    tools: list[str]
    agents: list[str]
    """The agents that it may call as tools."""
    settings: dict[str, Any]
    """Settings of the model, in its provider's spelling."""
    budgets: BudgetsAnswer
    compact_at: int
    """Tokens of a conversation at which the model summarises it."""
    script: list[ScriptedAnswer]


class Agents(Struct, frozen=True, kw_only=True, rename="camel"):
    """The agents of the project."""

    agents: list[AgentAnswer]


class SessionRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation of one run after the other."""

    id: Uuid
    caller: str
    metadata: dict[str, Any]
    active_run_id: Uuid | None
    created_at: Moment


class Sessions(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of sessions."""

    sessions: list[SessionRecord]
    next_page_token: str | None = None


class RunRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run of an agent."""

    id: Uuid
    session_id: Uuid
    root_id: Uuid
    parent_id: Uuid | None
    depth: int
    agent: str
    caller: str
    variables: dict[str, Any]
    prompt: str
    state: RunState
    iteration: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None if the price of a model is unknown."""
    active_s: float
    answer: str | None
    error: Problem | None
    forked_from_id: Uuid | None
    created_at: Moment
    ended_at: Moment | None


class UseRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A call, or a run of a sub-agent, that a model asked for."""

    use_id: str
    """The model's own id of it. In a workflow: its step, with `[INDEX]` for an item of a `foreach`."""
    name: str
    arguments: Any
    """An object; a text where the model wrote no JSON."""
    state: str
    call_id: Uuid | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    run_id: Uuid | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    began_at: Moment | UnsetType | None = UNSET
    ended_at: Moment | UnsetType | None = UNSET
    history: list[AttemptRecord] | UnsetType = UNSET
    """Of a call: each time that a worker took it, the first one first."""
    served: bool | UnsetType = UNSET
    """False if it is ready and no worker has its tool."""
    answer: str | UnsetType | None = UNSET
    """The answer to a call that was refused."""


class IterationRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One model step of a run, and the calls that the model asked for."""

    number: int
    live: bool
    """False if a retry from an earlier iteration replaced it."""
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    began_at: Moment
    answered_at: Moment
    """The end of the model step."""
    ended_at: Moment | None
    """The end of the last call."""
    text: str
    calls: list[UseRecord]


class Timeline(RunRecord, frozen=True, kw_only=True, rename="camel"):
    """A run with its iterations."""

    iterations: list[IterationRecord]


class Runs(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of runs, or the runs of a tree."""

    runs: list[RunRecord]
    next_page_token: str | None = None


class EventDetail(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The details of an event of a run, by its kind."""

    agent: str | UnsetType = UNSET
    parent_id: Uuid | UnsetType | None = UNSET
    session_id: Uuid | UnsetType = UNSET
    forked_from_id: Uuid | UnsetType = UNSET
    model: str | UnsetType = UNSET
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    use_id: str | UnsetType = UNSET
    """The model's own id of a call."""
    call_id: Uuid | UnsetType = UNSET
    child_id: Uuid | UnsetType = UNSET
    error: Problem | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Of `model_failed`: the code of the error, as are those below."""
    message: str | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET
    hint: str | UnsetType | None = UNSET
    violations: list[ViolationAnswer] | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET


class RunEventData(Struct, frozen=True, kw_only=True, rename="camel"):
    """The data of an event of a run."""

    number: int
    run_id: Uuid
    root_id: Uuid
    at: Moment
    kind: str
    """As `event`: `created`, `answered`, `call`, `text`, …"""
    iteration: int
    detail: EventDetail


class NewSession(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A session to create."""

    metadata: dict[str, Any] = {}


class NewRun(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A run to begin."""

    agent: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$", examples=["writer"])]
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


class RunsQuery(MatchingPage, kw_only=True):
    """The query of a list of runs."""

    state: RunState | UnsetType = UNSET


class RunsChange(ChangeOf, kw_only=True):
    """A change of all runs that match."""

    state: RunState | UnsetType = UNSET


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
    began_at: Moment
    seen_at: Moment


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
