"""An agent: a model, instructions, the tools and agents that it may call, and limits. Pure data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from typing import Any, NamedTuple

from toolcrib.errors import DefinitionError
from toolcrib.runs.sessions import Usage
from toolcrib.spec.model_provider import program_models
from toolcrib.spec.record import camel, record

_USUAL_COST_USD = 10.0
_FAMILIES = {"claude-": "anthropic", "gemini-": "google", "gpt-": "openai"}
"""Beginnings of the names of models to their provider."""


def full_model(name: str) -> str:
    """Return PROVIDER:MODEL for the name of a well-known model; any other name as it is."""
    providers = (provider for start, provider in _FAMILIES.items() if name.startswith(start))
    return next((f"{provider}:{name}" for provider in providers), name)


@record
class Budgets:
    """Limits of one run. What its sub-agents use counts too; each limit is checked before a model step."""

    iterations: int = 50
    """Model steps."""
    depth: int = 5
    """Levels of sub-agents below the run."""
    time_s: float = 3600.0
    """Seconds of work: model steps and tools, without waiting for people."""
    tokens: int = 1_000_000
    """Tokens of all model steps, in both directions."""
    cost_usd: float | None = None
    """US dollars: a model without a known price is refused. None: 10, for models with a known price."""

    @property
    def most_usd(self) -> float:
        """The cost that ends a run, where it is known."""
        return _USUAL_COST_USD if self.cost_usd is None else self.cost_usd

    def left(self, used: Usage, used_s: float) -> Budgets:
        """Return what a sub-agent may use of them."""
        cost = None if self.cost_usd is None else max(0.0, self.cost_usd - (used.cost_usd or 0.0))
        return replace(
            self,
            depth=self.depth - 1,
            time_s=max(0.0, self.time_s - used_s),
            tokens=max(0, self.tokens - used.tokens),
            cost_usd=cost,
        )

    def within(self, other: Budgets) -> Budgets:
        """Return the smaller one of each limit, but for `iterations`, which each run has of its own."""
        costs = [one.cost_usd for one in (self, other) if one.cost_usd is not None]
        return Budgets(
            self.iterations,
            min(self.depth, other.depth),
            min(self.time_s, other.time_s),
            min(self.tokens, other.tokens),
            min(costs, default=None),
        )


@record
class Agent:
    """An agent. `model` is PROVIDER:MODEL, or `scripted`, which answers by `script`.

    A model of pydantic-ai is one too. Its runs go on only in processes that made this agent, and the field
    has its name.
    """

    name: str
    """1 to 64 letters, digits, `_` or `-`."""
    model: Any
    instructions: str = ""
    """The system prompt, before the conversation."""
    description: str = ""
    """Its purpose, and when to use it, for agents that call it."""
    tools: tuple[str, ...] = ()
    """The names of the tools that it may call."""
    agents: tuple[str, ...] = ()
    """The names of the agents that it may call as tools."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the model: `max_tokens`, `temperature`, `top_p`, `seed`, …"""
    budgets: Budgets = field(default_factory=Budgets)
    compact_at: int = 100_000
    """Tokens of a conversation at which the model summarises it."""
    script: tuple[Mapping[str, Any], ...] = ()
    """The answers of the model `scripted`: `text`, `calls`; the last one is repeated."""

    def __post_init__(self) -> None:
        if isinstance(self.model, str):
            return
        if not (hasattr(self.model, "request") and hasattr(self.model, "model_name")):
            raise DefinitionError(
                f"the model of agent {self.name} is {self.model!r}, which is not a model of pydantic-ai",
                hint="Give PROVIDER:MODEL, `scripted`, or an object such as AnthropicModel(…).",
            )
        # Everything else handles an agent as data. The newest agent of a name has the model.
        provider = f"python.{self.name}"
        program_models[provider] = self.model
        object.__setattr__(self, "model", f"{provider}:{self.model.model_name}")

    @property
    def provider(self) -> str:
        """The provider of the model."""
        return str(self.model).partition(":")[0]

    @property
    def document(self) -> dict[str, Any]:
        """The agent as JSON with the keys of its file."""
        found = asdict(self)
        for name in ("tools", "agents", "script"):
            found[name] = list(found[name])
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, as every interface shows it."""
        return camel({**self.document, "budgets": camel(asdict(self.budgets))})

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Agent:
        """Return the agent of a file or of `document`, which has the right form."""
        more = dict(data)
        system = more.pop("system", "")
        for name in ("tools", "agents", "script"):
            more[name] = tuple(more.get(name) or ())
        budgets = Budgets(**more.pop("budgets", None) or {})
        more["instructions"] = more.get("instructions") or system
        more["settings"] = more.get("settings") or {}
        return cls(**more, budgets=budgets)


class AgentTeam(NamedTuple):
    """An agent, and all agents that it and those below it may call. A run keeps them as they were."""

    agent: Agent
    others: Mapping[str, Agent]

    @classmethod
    def gather(cls, agent: Agent, find: Callable[[str], Agent]) -> AgentTeam:
        """Return the agent with the others as they are now. Raises what `find` raises for a missing one."""
        others: dict[str, Agent] = {}
        # Agents may call each other in a circle: `depth` ends that, so each is looked up once.
        left = list(agent.agents)
        while left:
            name = left.pop()
            if name not in others:
                others[name] = find(name)
                left += others[name].agents
        return cls(agent, others)

    def below(self, name: str, budgets: Budgets) -> AgentTeam:
        """Return the team of one of the others, which may use this much."""
        other = self.others[name]
        # The smaller of both: an agent's own file must not raise what its caller has left.
        return AgentTeam(replace(other, budgets=other.budgets.within(budgets)), self.others)

    @property
    def definition(self) -> str:
        """The team as JSON text."""
        others = {name: other.document for name, other in self.others.items()}
        return json.dumps({"agent": self.agent.document, "others": others})

    @classmethod
    def of(cls, definition: str) -> AgentTeam:
        """Return the team that `definition` has written."""
        data = json.loads(definition)
        others = {name: Agent.of(other) for name, other in data["others"].items()}
        return cls(Agent.of(data["agent"]), others)
