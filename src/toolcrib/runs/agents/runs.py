"""Sessions and runs of agents, as programs and every interface use them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Unpack

from toolcrib.core.context import current_trace
from toolcrib.errors import (
    Cancelled,
    ConflictError,
    InvalidInput,
    NotFoundError,
    StateUnavailable,
    ToolcribError,
    UsageError,
)
from toolcrib.runs import CallAttempt, live_workers
from toolcrib.runs.agents.agent import Agent, AgentTeam
from toolcrib.runs.agents.providers import Models
from toolcrib.runs.agents.tools import AgentTools
from toolcrib.runs.filters import Change, Changed, Filters, changeable
from toolcrib.runs.sessions import DurableRuns, Run, RunDraft, RunEvent, RunStore, StoredMessage
from toolcrib.spec import Caller
from toolcrib.spec.moment import written
from toolcrib.spec.record import json_form
from toolcrib.state import Transaction

_OF_RUN = "IN (SELECT call_id FROM run_uses WHERE run_id = ?)"
_CALLS = f"SELECT id, state, tool, attempts, ended_at FROM calls WHERE id {_OF_RUN}"
_ATTEMPTS = (
    "SELECT call_id, epoch, worker, began_at, ended_at, ending, reason FROM call_attempts"
    f" WHERE call_id {_OF_RUN} ORDER BY call_id, epoch"
)


def timeline(store: RunStore, run: Run) -> dict[str, Any]:
    """Return a run as JSON with `iterations`: model, usage, times, `text` of the answer, `calls`.

    A call that is ready has `served`: False if no live worker has its tool.
    """
    texts = {
        message.iteration: _text(message)
        # Also what a retry has replaced: those iterations are shown, marked by `live`.
        for message in store.messages(run.id, every=True)
        if message.kind == "response" and message.iteration
    }
    calls = {row[0]: row for row in store.database.rows(_CALLS, run.id)}
    attempts: dict[str, list[CallAttempt]] = {}
    for call_id, *row in store.database.rows(_ATTEMPTS, run.id):
        attempts.setdefault(call_id, []).append(CallAttempt(*row))
    served = _served(store) if any(row[1] == "ready" for row in calls.values()) else frozenset()
    children = {child.id: child for child in store.tree(run.id)}
    uses: dict[int, list[dict[str, Any]]] = {}
    for use in store.uses(run.id):
        shown: dict[str, Any] = {"useId": use.use_id, "name": use.name}
        shown["arguments"] = _arguments(use.arguments)
        if use.call_id in calls:
            call_id, state, tool, counted, ended_at = calls[use.call_id]
            history = attempts.get(call_id, [])
            shown |= {"callId": call_id, "state": state, "attempts": counted}
            shown |= {"beganAt": written(history[0].began_at) if history else None}
            shown |= {"endedAt": written(ended_at), "history": [one.as_dict() for one in history]}
            if state == "ready":
                shown["served"] = tool in served
        elif use.child_id in children:
            child = children[use.child_id]
            shown |= {"runId": child.id, "agent": child.agent, "state": child.state}
            shown |= {"beganAt": written(child.created_at), "endedAt": written(child.ended_at)}
        else:
            shown |= {"state": "refused", "answer": use.answer}
        uses.setdefault(use.iteration, []).append(shown)
    iterations = [
        {
            **json_form(one),
            "live": bool(one.live),
            "text": texts.get(one.number, ""),
            "calls": uses.get(one.number, []),
        }
        for one in store.iterations(run.id)
    ]
    return {**run.document, "iterations": iterations}


def _served(store: RunStore) -> frozenset[str]:
    workers = live_workers(store.database, store.calls.lease_s)
    return frozenset[str]().union(*(worker.tools for worker in workers))


def _text(message: StoredMessage) -> str:
    parts = json.loads(message.content)["parts"]
    return "".join(part["content"] for part in parts if part.get("part_kind") == "text")


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class RunServer(Protocol):
    """Serves calls and runs in this process."""

    def serve(self) -> None:
        """Serve in the running event loop from now on, until `stop`."""

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Open the tools and serve, for code whose event loop ends with it."""


class AgentRuns:
    """Runs of agents: stored before they begin, and continued by whichever worker is there.

    `find_agent` returns an agent by its name. Ids are texts; a session of None is a new one.
    """

    def __init__(
        self,
        runs: DurableRuns,
        find_agent: Callable[[str], Agent],
        models: Models,
        tools: AgentTools,
        serving: RunServer,
    ) -> None:
        self.store = runs.store
        self._runs = runs
        self._find_agent = find_agent
        self._models = models
        self._tools = tools
        self._serving = serving

    # -- sessions --------------------------------------------------------------------------------

    def create_session(self, metadata: Mapping[str, Any] | None = None, *, caller: str = "local") -> str:
        """Store a session, a conversation of one run after the other, and return its id."""
        return self.store.create_session(caller, metadata)

    # -- beginning -------------------------------------------------------------------------------

    def start(
        self,
        session: str | None,
        agent: str | Agent,
        prompt: str,
        variables: Mapping[str, Any] | None = None,
        *,
        stream: bool = False,
        caller: str = "local",
        identity: Caller | None = None,
        trace: str | None = None,
        note: Callable[[Transaction, str], None] | None = None,
    ) -> str:
        """Store a run and return its id. A worker continues it; in this process, `wait` or `serve` does.

        `variables` reach the tools of the run and of its sub-agents, but no model. With `stream`, parts of
        answers are events. A caller with a token continues with sessions of its own only. A second run of a
        session waits for the first one to end. `note` gets the run's id within the transaction that stores
        the run; what it raises undoes both. Raises `NotFoundError` for agent, session, tools and model
        provider, `SecretMissing` without a key.
        """
        if session is not None and identity is not None and not identity.may("admin"):
            self.store.session(session, caller)
        team = self.team(agent)
        new = RunDraft(
            team.agent.name,
            team.definition,
            team.agent.provider,
            prompt,
            variables or {},
            caller,
            None if identity is None else json.dumps(identity.as_dict()),
            stream,
            trace or current_trace(),
        )
        return self.store.create_run(session, new, note)

    def team(self, agent: str | Agent) -> AgentTeam:
        """Return an agent with those below it. Raises as `start` does."""
        found = self._find_agent(agent) if isinstance(agent, str) else agent
        team = AgentTeam.gather(found, self._find_agent)
        self._tools.check(team)
        # Before the run begins: a sub-agent without its key would fail after others have cost money.
        for member in (team.agent, *team.others.values()):
            self._models.check(member)
        return team

    async def run(
        self,
        session: str | None,
        agent: str | Agent,
        prompt: str,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """Run an agent to its end and return the run, whose `answer` is the text; options as of `start`.

        Raises the error of a run that failed, and `Cancelled`.
        """
        return unwrap(await self.wait(self.start(session, agent, prompt, variables, **options)))

    def run_sync(
        self,
        session: str | None,
        agent: str | Agent,
        prompt: str,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """Do the same as `run`, for code without an event loop."""

        async def run_once() -> Run:
            async with self._serving.serving():
                return await self.run(session, agent, prompt, variables, **options)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(run_once())
        raise UsageError("run_sync cannot wait inside of an event loop", hint="Use `await runs.run(…)`.")

    async def stream(
        self,
        session: str | None,
        agent: str | Agent,
        prompt: str,
        variables: Mapping[str, Any] | None = None,
        *,
        tree: bool = False,
        **options: Any,
    ) -> AsyncIterator[RunEvent]:
        """Run an agent and yield the events of the run, with parts of its answers, up to its end.

        With `tree`, those of its sub-agents too. To leave early does not cancel the run.
        """
        run_id = self.start(session, agent, prompt, variables, stream=True, **options)
        self._serving.serve()
        async for event in self.store.events.follow(run_id, tree=tree):
            yield event

    async def wait(self, id: str, timeout_s: float | None = None) -> Run:
        """Return a run once it has ended, or as it is when the time is up. This process serves meanwhile."""
        self._serving.serve()
        return await self.store.wait(id, timeout_s)

    def events(self, id: str | None = None, after: int = 0, *, tree: bool = False) -> AsyncIterator[RunEvent]:
        """Yield the events after this number, as they come: of all runs, or of one up to its end."""
        return self.store.events.follow(id, after, tree=tree)

    # -- looking ---------------------------------------------------------------------------------

    def find(self, id: str, caller: str | None = None) -> Run:
        """Return a run as it is now, if it is one of this caller; `NotFoundError`."""
        return self.store.find(id, caller)

    def page(self, **options: Any) -> Sequence[Run]:
        """Return runs, the newest first; options are those of `RunStore.page`."""
        return self.store.page(**options)

    def count(self, change: Change | None = None, **filters: Unpack[Filters]) -> int:
        """Return how many runs match; with `change`, how many `cancel_all` or `retry_all` would change.

        Runs that an agent called do not count.
        """
        return self.store.count(**(filters if change is None else changeable("runs", change, filters)))

    def tree(self, id: str) -> Sequence[Run]:
        """Return a run and those below it; `NotFoundError`."""
        return self.store.tree(id)

    def timeline(self, id: str) -> dict[str, Any]:
        """Return a run with its iterations, their calls and its messages, as JSON. `NotFoundError`."""
        return timeline(self.store, self.find(id))

    # -- changing --------------------------------------------------------------------------------

    def cancel(self, id: str) -> list[str]:
        """End a run and all below it; return their ids. Raises `ConflictError` if it has ended."""
        return self._runs.tree.cancel(id)

    def retry(self, id: str, iteration: int | None = None, *, identity: Caller | None = None) -> None:
        """Continue a failed or cancelled run after an iteration, by default its last complete one.

        It continues for the caller who began it; a caller with a token retries its own runs only. Its agent
        is then as it is defined now, if it still exists. Raises `ConflictError`, `DeniedError`, and what
        `start` raises.
        """
        run = self.find(id)
        if identity is not None:
            identity.require_made(f"run {id}", run.caller)
        self._runs.tree.retry(id, iteration, self._redefined(run))

    def cancel_all(self, **filters: Unpack[Filters]) -> Changed:
        """End every matching run that has not ended, and all below it."""
        return self._each("cancel", self.cancel, filters)

    def retry_all(self, **filters: Unpack[Filters]) -> Changed:
        """Continue every matching run that failed or was cancelled, each for the caller who began it."""
        return self._each("retry", self.retry, filters)

    def _each(self, change: Change, act: Callable[[str], object], filters: Filters) -> Changed:
        changed = Changed([], {})
        # Listed first: a run that fails again meanwhile is not continued twice.
        for ids in list(self.store.batches(changeable("runs", change, filters))):
            for id in ids:
                try:
                    act(id)
                    changed.done.append(id)
                except StateUnavailable:
                    raise
                except ToolcribError as error:
                    changed.refused[id] = error.message
        return changed

    def _redefined(self, run: Run) -> tuple[str, str] | None:
        """Return definition and provider of a run's agent as it is now; None if there is none any more."""
        try:
            team = self.team(run.agent)
        except NotFoundError:
            return None
        return team.definition, team.agent.provider

    def fork(
        self,
        id: str,
        iteration: int | None = None,
        prompt: str | None = None,
        *,
        caller: str = "local",
        identity: Caller | None = None,
    ) -> str:
        """Begin a run in a new session that continues after an iteration of this one; return its id.

        It is a run of this caller, whoever made the other one. Its agent is as in `retry`. Raises
        `InvalidInput` for a workflow, whose steps would all run anew, with inputs that nobody has checked.
        """
        run = self.find(id)
        # Only runs of workflows have a prefix: `workflow:NAME`.
        kind, _, name = run.agent.rpartition(":")
        if kind:
            raise InvalidInput(
                "a run of a workflow cannot be forked", hint=f"Run it again: toolcrib workflows run {name}"
            )
        known = None if identity is None else json.dumps(identity.as_dict())
        agent = self._redefined(run)
        return self._runs.tree.fork(id, iteration, prompt, agent, caller=caller, identity=known)


def unwrap(run: Run) -> Run:
    """Return a run that is done; raise the error of any other."""
    if run.state == "done":
        return run
    if run.error is not None:
        raise ToolcribError.from_dict(json.loads(run.error))
    if run.state == "cancelled":
        raise Cancelled(f"run {run.id} was cancelled", details={"run": run.id})
    raise ConflictError(f"run {run.id} has not ended: it is {run.state}")
