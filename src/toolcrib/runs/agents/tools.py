"""The tools of an agent, as its model sees them, and the calls that the model asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolcrib.builtin.names import READER
from toolcrib.core.bound import Bound
from toolcrib.errors import BudgetExceeded, InvalidInput, ToolcribError, ToolNotFound, Violation
from toolcrib.runs.agents.agent import Agent, AgentTeam
from toolcrib.runs.agents.conversation import WantedCall
from toolcrib.runs.known_tools import KnownTools
from toolcrib.runs.sessions import ClaimedRun, NewUse, RunDraft
from toolcrib.schema.provider_shapes import Shape, Shaped, shape_tools
from toolcrib.spec import Tool
from toolcrib.spec.model_provider import ModelApi
from toolcrib.spec.naming import suggestion
from toolcrib.spec.views import error_text

if TYPE_CHECKING:
    from pydantic_ai.tools import ToolDefinition

_SHAPES: Mapping[ModelApi, Shape] = {"anthropic": "anthropic", "openai": "openai", "google": "gemini-json"}
_PROMPT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string", "description": "The task, with all it needs to know."}},
}


PrepareCall = Callable[[str, Mapping[str, Any] | str, ClaimedRun], Mapping[str, Any]]
"""Checks a call as the path of every call does before it asks anybody, and returns what to store of it.

Raises the error of a call that would be refused.
"""


class AgentTools:
    """The tools of agents: those that are known to the store of the runs, whichever process has them.

    `here` returns a tool of this process, or raises `ToolNotFound`; `switch_on` gets an agent to serve.
    `offered` returns a tool as a model may read it, or None. `manifests` returns, of some tools, those that
    are offered as their manifests say, with the SHA-256 of these.
    """

    def __init__(
        self,
        known: Callable[[], KnownTools],
        here: Callable[[str], Bound],
        prepare: PrepareCall,
        switch_on: Callable[[Agent], None] = lambda _: None,
        offered: Callable[[Tool], Tool | None] = lambda tool: tool,
        manifests: Callable[[Iterable[str]], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._known, self._here, self._offered, self._manifests = known, here, offered, manifests
        self._switch_on = switch_on
        self.prepare = prepare

    def check(self, team: AgentTeam) -> None:
        """Raise `ToolNotFound` if one of the agents lists a tool that no process has recorded."""
        for agent in (team.agent, *team.others.values()):
            self._switch_on(agent)
            for name in agent.tools:
                self.require(name)

    def require(self, name: str) -> None:
        """Raise the reason why there is no tool of this name, here or elsewhere."""
        self.record((name,))
        try:
            self._here(name)
        except ToolcribError as error:
            if self._known().some((name,)):
                return
            if isinstance(error, ToolNotFound) and not error.details:
                self._known().find(name)  # Its error may name a near one.
            raise

    def record(self, names: Sequence[str], manifests: Mapping[str, str] | None = None) -> None:
        """Record those of these tools that this process has, for the steps of all runs.

        `manifests` are those of tools that are offered as these say, where that is known.
        """
        found, known = [], self._known()
        recorded = known.recorded(self._manifests(names) if manifests is None else manifests)
        for name in [name for name in names if name not in recorded]:
            with suppress(ToolcribError):
                bound = self._here(name)
                if (tool := self._offered(bound.tool)) is not None:
                    found.append((tool, bound.may_repeat, tool is bound.tool))
        known.record(found)

    def shaped(self, agent: Agent, api: ModelApi) -> Shaped:
        """Return the agent's tools in a provider's form. One that nobody may read yet is left out.

        The reader of cut outputs is one of them once there are any.
        """
        self._switch_on(agent)
        self.record((*agent.tools, READER))
        known = self._known().some((*agent.tools, READER))
        # Only the built-in reader goes to agents that do not list it, and not to one that has no tools at
        # all.
        if READER not in agent.tools and not (agent.tools and self._has_reader()):
            known.pop(READER, None)
        return shape_tools((bound.tool for bound in known.values()), _SHAPES[api])

    def _has_reader(self) -> bool:
        with suppress(ToolcribError):
            return self._here(READER).tool.is_builtin
        return False

    def use(self, wanted: WantedCall, claim: ClaimedRun, team: AgentTeam, shaped: Shaped) -> NewUse:
        """Return what becomes of a call: a call of a tool, a run, or the reason for the model why not."""
        use = NewUse(wanted.use_id, wanted.name, wanted.arguments)
        try:
            if wanted.name in team.agent.agents:
                return replace(use, child=_child(wanted, claim, team))
            name, arguments = _own_name(wanted, team.agent, shaped)
            return replace(use, call=self.prepare(name, arguments, claim))
        except ToolcribError as error:
            # The run continues: the model reads why, and can make a better call.
            return replace(use, answer=error_text(error))


def definitions(team: AgentTeam, shaped: Shaped) -> list[ToolDefinition]:
    """Return the tools and sub-agents of an agent for its model."""
    from pydantic_ai.tools import ToolDefinition

    found = [_definition(entry) for entry in shaped.entries]
    for name in team.agent.agents:
        description = team.others[name].description or f"The agent {name}."
        found.append(ToolDefinition(name=name, parameters_json_schema=_PROMPT, description=description))
    return found


def _child(wanted: WantedCall, claim: ClaimedRun, team: AgentTeam) -> RunDraft:
    prompt, run, agent = _prompt(wanted), claim.run, team.agent
    left = agent.budgets.left(run.usage, run.active_s)
    if left.depth < 0:
        raise BudgetExceeded(
            f"agent {wanted.name} is too deep below the first run: no more levels are allowed"
        )
    child = team.below(wanted.name, left)
    return RunDraft(
        wanted.name,
        child.definition,
        child.agent.provider,
        prompt,
        json.loads(run.variables),
        run.caller,
        claim.identity,
        claim.streams,
    )


def _definition(entry: dict[str, Any]) -> ToolDefinition:
    from pydantic_ai.tools import ToolDefinition

    shown = entry.get("function", entry)
    keys = ("input_schema", "parameters", "parametersJsonSchema")
    schema = next((shown[key] for key in keys if key in shown), {"type": "object", "properties": {}})
    about = shown.get("description")
    return ToolDefinition(name=shown["name"], parameters_json_schema=schema, description=about, strict=False)


def _own_name(wanted: WantedCall, agent: Agent, shaped: Shaped) -> tuple[str, Mapping[str, Any] | str]:
    """Return the full name of the tool that a model means, and the arguments in the tool's own form."""
    if wanted.name not in shaped.names:
        known = [*shaped.names, *agent.agents]
        hint = suggestion(wanted.name, known, f"Your tools are: {', '.join(known) or 'none'}.")
        raise ToolNotFound(f"you have no tool named {wanted.name[:100]!r}", hint=hint)
    arguments = wanted.parsed
    if arguments is None:  # The path says what is wrong with it.
        return shaped.names[wanted.name], wanted.arguments
    return shaped.call(wanted.name, arguments)


def _prompt(wanted: WantedCall) -> str:
    prompt = (wanted.parsed or {}).get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        violation = Violation("$.prompt", "must be a text that is not empty")
        raise InvalidInput(f"agent {wanted.name} takes a prompt", violations=[violation])
    return prompt
