"""Sessions, runs and their parts as they are stored. Pure data; times are seconds since the epoch."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, Literal, NamedTuple

from toolcrib.spec.moment import written
from toolcrib.spec.record import camel, json_form, record

RunState = Literal["queued", "ready", "running", "waiting", "done", "failed", "cancelled"]
"""`queued`: an earlier run of the session has not ended. `ready`: the next model step may begin. `running`: a
worker makes a model step. `waiting`: calls of tools or runs of sub-agents have not ended."""
ENDED: tuple[RunState, ...] = ("done", "failed", "cancelled")
_INTERNAL = ("epoch", "open_calls", "failures", "rescues", "worker", "ready_at", "forked_from")
MessageKind = Literal["prompt", "response", "results", "summary"]


class Usage(NamedTuple):
    """The tokens of model steps, and their price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None if the price of one of the models is unknown."""

    @property
    def tokens(self) -> int:
        """Tokens in both directions."""
        return self.input_tokens + self.output_tokens


@record
class Session:
    """A conversation: runs one after the other, each of which sees those before it."""

    id: str
    caller: str
    metadata: str
    """A JSON object."""
    active_run: str | None
    """The run that is not done yet, if any; later ones wait for it."""
    created_at: float

    @property
    def document(self) -> dict[str, Any]:
        """The session as JSON."""
        shown = {**json_form(self, "active_run"), "activeRunId": self.active_run}
        return {**shown, "metadata": json.loads(self.metadata)}


@record
class Run:
    """One run of an agent."""

    id: str
    """A UUID version 7."""
    session_id: str
    root_id: str
    """The run at the top of its tree: its own id, unless an agent called it."""
    parent_id: str | None
    depth: int
    """0 for a run that no agent called."""
    agent: str
    caller: str
    variables: str
    """A JSON object."""
    prompt: str
    state: RunState
    ready_at: float
    epoch: int
    iteration: int
    """The number of the last iteration; 0 before the first."""
    open_calls: int
    """Calls and runs of this iteration that have not ended."""
    failures: int
    """Model steps that failed one after the other."""
    rescues: int
    worker: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    active_s: float
    """Seconds of work: model steps and tools, without waiting for people and for its turn."""
    answer: str | None
    error: str | None
    """JSON of a `ToolcribError`."""
    forked_from: str | None
    """Id of the run that this one continues from one of its iterations."""
    created_at: float
    ended_at: float | None

    @property
    def usage(self) -> Usage:
        """The tokens of the run and of those that it called."""
        return Usage(self.input_tokens, self.output_tokens, self.cost_usd)

    @property
    def document(self) -> dict[str, Any]:
        """The run as JSON, as every interface shows it."""
        shown = {**json_form(self, *_INTERNAL), "forkedFromId": self.forked_from}
        error = None if self.error is None else json.loads(self.error)
        return {**shown, "variables": json.loads(self.variables), "error": error}


class ClaimedRun(NamedTuple):
    """A run whose next model step a worker has taken."""

    run: Run
    definition: str
    """The agent as it was when the run began: a JSON object."""
    identity: str | None
    """The token that began the run, as JSON; None for this machine's own user."""
    streams: bool
    """Parts of the answer are events too."""
    taken_at: float
    trace: str | None
    """The `traceparent` of the run: its calls and the runs below it are in the same trace."""
    provider: str
    """The provider of its model."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form, for another process."""
        return {**self._asdict(), "run": asdict(self.run)}

    @classmethod
    def of(cls, data: dict[str, Any]) -> ClaimedRun:
        """Return the claim that `as_json` has written."""
        return cls(**{**data, "run": Run(**data["run"])})

    @property
    def epoch(self) -> int:
        """The epoch of the claim: only what is recorded with the newest one counts."""
        return self.run.epoch


@record
class Iteration:
    """One model step of a run and the calls that the model asked for."""

    number: int
    live: bool
    """False if a retry from an earlier iteration replaced it."""
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    began_at: float
    answered_at: float
    """The end of the model step."""
    ended_at: float | None
    """The end of the last call."""


@record
class ToolUse:
    """One call that a model asked for."""

    iteration: int
    position: int
    use_id: str
    """The model's own id of it."""
    name: str
    arguments: str
    """JSON as the model wrote it."""
    call_id: str | None
    child_id: str | None
    """The run of a sub-agent."""
    answer: str | None
    """The text for the model, if nothing was called: no such tool, or it may not be used."""
    ended_at: float | None


SESSION_COLUMNS, RUN_COLUMNS, ITERATION_COLUMNS, USE_COLUMNS = (
    ", ".join(field.name for field in fields(kind)) for kind in (Session, Run, Iteration, ToolUse)
)


class StoredMessage(NamedTuple):
    """One message of a conversation with a model."""

    run_id: str
    number: int
    iteration: int
    kind: MessageKind
    content: bytes
    """JSON. A prompt and a summary are texts; the others are in the form of pydantic-ai."""


class RunEvent(NamedTuple):
    """One change of a run, in the order of all changes of all runs."""

    number: int
    """A reader that has seen this one continues after it."""
    run_id: str
    root_id: str
    at: float
    kind: str
    iteration: int
    detail: str
    """A JSON object."""

    @property
    def document(self) -> dict[str, Any]:
        """The event as JSON."""
        return camel({**self._asdict(), "at": written(self.at), "detail": camel(json.loads(self.detail))})
