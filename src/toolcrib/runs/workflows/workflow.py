"""A workflow: inputs, steps that call tools, agents and workflows, and a result. Pure data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from toolcrib.errors import DefinitionError
from toolcrib.executors.composite.executor import Plan, plans
from toolcrib.executors.composite.kind import KIND
from toolcrib.spec import Tool
from toolcrib.template import Template, parse, step_namespaces

KINDS = ("tool", "agent", "workflow")
_MOST_DEEP = 8
_NO_INPUTS: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}


class Workflow:
    """A workflow, written as its file is: `name`, `description`, `inputs`, `steps`, `output`.

    A project that takes it checks the form. The steps are those of a composite tool; the `tool` of a step is
    `tool:NAME`, `agent:NAME` or `workflow:NAME`.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        made = sys._getframe(1)  # noqa: SLF001 - the only way to the caller that costs nothing
        self.made = (made.f_code.co_filename, made.f_lineno)
        """The file and line of the program that made this object, for its faults."""
        self.document = dict(data)
        """The workflow as JSON with the keys of its file."""
        self.name: str = data["name"]
        self.description: str = data.get("description", "")
        self.inputs: dict[str, Any] = (data.get("inputs") or {}).get("schema") or _NO_INPUTS
        """JSON Schema 2020-12 of what a run is given."""

    @cached_property
    def as_tool(self) -> Tool:
        """The steps as a composite tool, for checks and templates; it is never called."""
        steps = [_step(block) for block in self.document["steps"]]
        assert KIND.parse is not None
        config = KIND.parse({"steps": steps, "output": self.document.get("output")})
        return Tool(self.name, self.description, "composite", self.inputs, config)

    @cached_property
    def plans(self) -> list[Plan]:
        """The steps in the order of the file. Raises ManifestError for a bad template."""
        return plans(self.as_tool)

    @cached_property
    def output(self) -> Template | None:
        """The template of the result; None: it is the value of the last step."""
        template = self.document.get("output")
        return None if template is None else parse(template, step_namespaces(self.as_tool))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, as every interface shows it. Raises ManifestError for a bad template."""
        needs = {plan.step.id: sorted(plan.needs) for plan in self.plans}
        more = {"description": self.description, "inputs": self.inputs, "needs": needs}
        return {**self.document, **more}

    def callees(self, kind: str) -> list[str]:
        """Return the tools, agents or workflows that the steps name, each once."""
        return list(dict.fromkeys(block[kind] for block in self.document["steps"] if kind in block))


def _step(block: Mapping[str, Any]) -> dict[str, Any]:
    more = {key: value for key, value in block.items() if key not in (*KINDS, "prompt")}
    if "prompt" in block:
        more["args"] = {"prompt": block["prompt"]}
    (kind,) = (kind for kind in KINDS if kind in block)
    return {**more, "tool": f"{kind}:{block[kind]}"}


class WorkflowSet(NamedTuple):
    """A workflow with all workflows and agents below it. A run keeps them as they were."""

    workflow: Workflow
    others: Mapping[str, Workflow]
    agents: Mapping[str, tuple[str, str]]
    """Name to definition and provider."""

    @classmethod
    def gather(
        cls,
        workflow: Workflow,
        find: Callable[[str], Workflow],
        agent: Callable[[str], tuple[str, str]],
        tool: Callable[[str], object],
    ) -> WorkflowSet:
        """Return what a run needs. Raises what the finders raise, and `DefinitionError` for a circle."""
        others: dict[str, Workflow] = {}
        agents: dict[str, tuple[str, str]] = {}
        # Each workflow is looked into once: many may call the same ones, in many ways.
        deepest: dict[str, tuple[str, ...]] = {}

        def add(one: Workflow, way: tuple[str, ...]) -> None:
            below = deepest.get(one.name, (one.name,))
            if one.name in way or len(way) + len(below) > _MOST_DEEP:
                shown = " → ".join((*way, *below))
                raise DefinitionError(
                    f"workflows call each other in a circle, or more than {_MOST_DEEP} deep: {shown}"
                )
            if one.name in deepest:
                return
            for name in one.callees("tool"):
                tool(name)
            for name in one.callees("agent"):
                agents[name] = agents.get(name) or agent(name)
            for name in one.callees("workflow"):
                others[name] = others.get(name) or find(name)
                add(others[name], (*way, one.name))
                below = max(below, (one.name, *deepest[name]), key=len)
            deepest[one.name] = below

        add(workflow, ())
        return cls(workflow, others, agents)

    def below(self, name: str) -> WorkflowSet:
        """Return the set of one of the others."""
        return self._replace(workflow=self.others[name])

    @property
    def definition(self) -> str:
        """The set as JSON text."""
        others = {name: other.document for name, other in self.others.items()}
        return json.dumps({"workflow": self.workflow.document, "others": others, "agents": self.agents})

    @classmethod
    def of(cls, definition: str) -> WorkflowSet:
        """Return the set that `definition` has written."""
        data = json.loads(definition)
        others = {name: Workflow(other) for name, other in data["others"].items()}
        agents = {name: (text, provider) for name, (text, provider) in data["agents"].items()}
        return cls(Workflow(data["workflow"]), others, agents)
