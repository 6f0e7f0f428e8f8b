"""A call before it is made: what it would do, and whether it needs approval."""

from __future__ import annotations

from typing import Any

from toolcrib.core.bound import plan_of
from toolcrib.core.context import Context
from toolcrib.project.catalog.registry import ToolRegistry
from toolcrib.project.control.approvals.step import Question
from toolcrib.project.control.composites import Composites
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.spec import Call, CompositeExec, Permissions, Tool


class Preview:
    """Looks ahead at the calls of one project. Nothing is run."""

    def __init__(self, registry: ToolRegistry, steps: ProjectSteps, composites: Composites) -> None:
        self._registry = registry
        self._steps = steps
        self._composites = composites

    def permissions_of(self, tool: Tool) -> Permissions:
        """Return what a tool may touch; for a composite one, all that the tools of its steps may."""
        return tool.permissions.union(*(part.permissions for part in self._composites.tools_of(tool)))

    def plan(self, call: Call) -> dict[str, Any]:
        """Return as JSON what a call would do, without any secret. Raises as the call would."""
        bound = self._registry.bound(call.tool)
        self._steps.access.admit(bound.tool, call.caller, call.identity)
        call.arguments = bound.arguments.check(call.arguments)
        plan = plan_of(bound.tool, call.arguments)
        if isinstance(bound.tool.config, CompositeExec):
            self._composites.admit(bound.tool, call)
        plan["permissions"] = self.permissions_of(bound.tool).as_json()
        plan["approval"] = asks = self.asks(call)
        plan["policy"] = "allow" if asks is None else "ask"
        masked: dict[str, Any] = self._steps.secrets.mask(plan)
        return masked

    def asks(self, call: Call) -> str | None:
        """Return why a call needs approval; None if it does not. Its arguments are checked and completed."""
        questions = self.questions(call)
        if questions:
            return questions[-1].reason
        tool = self._registry.bound(call.tool).tool
        return self._composites.asks(tool, call) if isinstance(tool.config, CompositeExec) else None

    def questions(self, call: Call) -> list[Question]:
        """Return what a person must be asked about a call. Its arguments are checked and completed."""
        return self._steps.approval.questions(self._checked(call))

    def is_approved(self, call: Call) -> bool:
        """Return True if a person must be asked about a call, and has approved it already."""
        return self._steps.approval.allows(self._checked(call))

    def _checked(self, call: Call) -> Context:
        context = Context.of(call)
        context.bound = bound = self._registry.bound(call.tool)
        self._steps.access.authorise(context)
        call.arguments = context.arguments = bound.arguments.check(context.arguments)
        return context
