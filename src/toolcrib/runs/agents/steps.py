"""A model step of a run: what the model sees, one request, and what becomes of its answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from toolcrib.errors import (
    BudgetExceeded,
    ModelFailed,
    NotFoundError,
    StateUnavailable,
    ToolcribError,
    UnavailableError,
)
from toolcrib.runs.agents.agent import Agent, AgentTeam
from toolcrib.runs.agents.conversation import (
    SUMMARISE,
    added_text,
    dump,
    model_error,
    model_messages,
    text_of,
    usage_of,
    wanted_calls,
)
from toolcrib.runs.agents.providers import Models
from toolcrib.runs.agents.tools import AgentTools, definitions
from toolcrib.runs.sessions import ClaimedRun, ModelStep, Run, RunTransitions, StoredMessage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

_MAX_FAILURES = 5
_MAX_WAIT_S = 3_600.0
_FINAL = (BudgetExceeded, NotFoundError, UnavailableError)
"""Errors that the same step always has again."""
_STEP_S = 600.0
"""The longest model step, in seconds."""
_FLUSH_S = 0.1
"""Seconds between two events with parts of an answer."""
# A usual mean of English text. Providers count differently; here only the order of size matters.
_BYTES_PER_TOKEN = 4


class AgentSteps:
    """Makes the model steps of runs in this process."""

    def __init__(self, runs: RunTransitions, models: Models, tools: AgentTools, worker: str) -> None:
        self._runs, self._worker = runs, worker
        self._models = models
        self._tools = tools

    async def advance(self, claim: ClaimedRun) -> None:
        """Ask the model once, and store its answer with the calls that it wants."""
        run, team = claim.run, AgentTeam.of(claim.definition)
        agent = team.agent
        began = time.perf_counter()
        try:
            _require_budget(agent, run)
            model = await self._model(claim, agent)
            if not claim.run.worker:
                await asyncio.to_thread(self._runs.begin, claim, self._worker)
            # Again: loading the model's libraries is not part of the run.
            began = time.perf_counter()
            shaped = self._tools.shaped(agent, self._models.api(agent))
            async with asyncio.timeout(min(_STEP_S, agent.budgets.time_s - run.active_s)):
                stored = await self._conversation(claim, agent, model)
                tools = definitions(team, shaped)
                response = await self._request(claim, _asked(model, model_messages(stored), agent, tools))
        # Not a failure of the model: the step is rescued and counts for nothing.
        except StateUnavailable:
            raise
        except Exception as error:
            self._failed(claim, agent, error, time.perf_counter() - began)
            return
        usage = usage_of(response, free=agent.model == "scripted")
        seconds = time.perf_counter() - began
        step = ModelStep(dump(response), response.model_name or agent.model, usage, claim.taken_at, seconds)
        wanted = wanted_calls(response)
        if wanted:
            uses = [self._tools.use(one, claim, team, shaped) for one in wanted]
            await asyncio.to_thread(self._runs.step, claim, step, uses)
        else:
            await asyncio.to_thread(self._runs.finish, claim, step, text_of(response))

    async def _model(self, claim: ClaimedRun, agent: Agent) -> Model:
        """Return the model of the next step. Its libraries take seconds to import, in a thread."""
        step = 0
        if agent.model == "scripted":
            # The answer of a script is chosen by the number of answers since the last prompt.
            kinds = [message.kind for message in self._runs.store.messages(claim.run.id)]
            step = kinds[::-1].index("prompt") if "prompt" in kinds else 0
            step = kinds[len(kinds) - step :].count("response")
        if self._models.is_loaded(agent):
            return self._models.get(agent, step)
        return await asyncio.to_thread(self._models.get, agent, step)

    def _failed(self, claim: ClaimedRun, agent: Agent, error: Exception, seconds: float) -> None:
        """Try a step again later, where that may help; else end the run."""
        run = claim.run
        if isinstance(error, TimeoutError):
            left = agent.budgets.time_s - run.active_s
            found: ToolcribError = ModelFailed(f"no answer within {_STEP_S:g} s", retryable=True)
            # The timeout was the smaller of two limits: the run's own budget, if that was used up.
            if left <= seconds:
                found = _exceeded(agent, run, "time_s", f"{agent.budgets.time_s:g} seconds of work")
        else:
            found = error if isinstance(error, _FINAL) else model_error(error)
        if isinstance(found, ModelFailed) and found.retryable and run.failures < _MAX_FAILURES:
            delay = float(found.details.get("retryAfterS") or 2.0**run.failures)
            if delay <= _MAX_WAIT_S:
                self._runs.again(claim, delay, found, seconds)
                return
        self._runs.fail(claim, found)

    async def _conversation(self, claim: ClaimedRun, agent: Agent, model: Model) -> list[StoredMessage]:
        """Return what the model sees; a long conversation is summarised first."""
        stored = list(self._runs.store.conversation(claim.run))
        size = sum(len(message.content) for message in stored)
        # With fewer messages there is hardly more than the last summary: a long one would be made again
        # at every step.
        if size <= agent.compact_at * _BYTES_PER_TOKEN or len(stored) < 3:
            return stored
        from pydantic_ai.direct import model_request
        from pydantic_ai.messages import UserPromptPart

        began = time.perf_counter()
        messages = model_messages(stored)
        messages[-1].parts = [*messages[-1].parts, UserPromptPart(SUMMARISE)]
        response = await model_request(**_asked(model, messages, agent, []))
        summary = f"{text_of(response)}\n\nThe request that you are working on:\n\n{claim.run.prompt}"
        usage = usage_of(response, free=agent.model == "scripted")
        self._runs.add_summary(claim, summary.encode(), usage, time.perf_counter() - began)
        return list(self._runs.store.conversation(claim.run))

    async def _request(self, claim: ClaimedRun, asked: dict[str, Any]) -> ModelResponse:
        from pydantic_ai.direct import model_request, model_request_stream

        if not claim.streams:
            return await model_request(**asked)
        text, published_at = "", 0.0
        async with model_request_stream(**asked) as stream:
            async for event in stream:
                text += added_text(event)
                if text and time.monotonic() - published_at >= _FLUSH_S:
                    self._runs.chunk(claim, text)
                    text, published_at = "", time.monotonic()
            if text:
                self._runs.chunk(claim, text)
            return stream.get()


def _asked(
    model: Model, messages: list[ModelMessage], agent: Agent, tools: list[ToolDefinition]
) -> dict[str, Any]:
    """Return the arguments of a request to a model; the last message is one of our side."""
    from pydantic_ai.models import ModelRequestParameters

    # pydantic-ai sends the instructions of the last request of a conversation.
    messages[-1].instructions = agent.instructions or None  # type: ignore[union-attr] # it is a request
    return {
        "model": model,
        "messages": messages,
        "model_settings": dict(agent.settings) or None,
        "model_request_parameters": ModelRequestParameters(function_tools=tools),
    }


def _require_budget(agent: Agent, run: Run) -> None:
    """Raise `BudgetExceeded` if the next step is over one of the limits."""
    budgets, used = agent.budgets, run.usage
    if run.iteration >= budgets.iterations:
        raise _exceeded(agent, run, "iterations", f"{budgets.iterations} iterations")
    if used.tokens >= budgets.tokens:
        raise _exceeded(agent, run, "tokens", f"{budgets.tokens:,} tokens")
    if run.active_s >= budgets.time_s:
        raise _exceeded(agent, run, "time_s", f"{budgets.time_s:g} seconds of work")
    if used.cost_usd is None:
        # An unknown price ends only runs with a limit of their own; the usual limit needs a known price.
        if budgets.cost_usd is not None:
            raise _exceeded(agent, run, "cost_usd", f"${budgets.cost_usd:g}, but its cost so far is unknown")
    elif used.cost_usd >= budgets.most_usd:
        raise _exceeded(agent, run, "cost_usd", f"${budgets.most_usd:g}")


def _exceeded(agent: Agent, run: Run, budget: str, limit: str) -> BudgetExceeded:
    used = run.usage
    return BudgetExceeded(
        f"the run may use at most {limit}",
        hint=f"Raise budgets.{budget} of agent {agent.name}, then: toolcrib runs retry {run.root_id}",
        details={
            "budget": budget,
            "iterations": run.iteration,
            "tokens": used.tokens,
            "cost_usd": used.cost_usd,
            "time_s": round(run.active_s, 3),
        },
    )
