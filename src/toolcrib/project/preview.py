"""A call before it is made: the tools it may lead to, what it would do, and whether it needs approval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toolcrib.core.bound import Bound, plan_of
from toolcrib.core.context import Context
from toolcrib.errors import NotFoundError, ToolUnavailable
from toolcrib.manifest import kind_of
from toolcrib.project.control.steps import ProjectSteps, Question
from toolcrib.spec import Call, Permissions, Tool


class Preview:
    """Looks ahead at the calls of one project. Nothing is run. `find` returns a bound tool, or raises."""

    def __init__(self, find: Callable[[str], Bound], steps: ProjectSteps) -> None:
        self._find, self._steps = find, steps

    def _parts(self, tool: Tool) -> Iterator[tuple[str, Bound]]:
        """Return the id and the tool of each step, then those of composite steps, every tool once.

        Raises `ToolUnavailable` if a tool is missing, `ManifestError` if its manifest is wrong.
        """
        # Each tool once: composite tools that call each other in a circle must not be followed forever.
        seen, waiting = {tool.name}, [tool]
        while waiting:
            caller = waiting.pop(0)
            for step, name in kind_of(caller).calls(caller.config):
                if name in seen:
                    continue
                seen.add(name)
                try:
                    bound = self._find(name)
                except NotFoundError as error:
                    message = f"step {step} of {tool.name}: {error.message}"
                    raise ToolUnavailable(message, hint=error.hint) from None
                waiting.append(bound.tool)
                yield step, bound

    def parts_of(self, tool: Tool) -> list[Tool]:
        """Return every tool that a call of this one may lead to."""
        return [bound.tool for _, bound in self._parts(tool)]

    def admit(self, tool: Tool, call: Call) -> None:
        """Refuse, before anything runs, a call with steps that this caller may never call."""
        for part in self.parts_of(tool):
            self._steps.access.admit(part, call.caller, call.identity)

    def permissions_of(self, tool: Tool) -> Permissions:
        """Return what a tool may touch; for a composite one, all that the tools of its steps may."""
        return tool.permissions.union(*(part.permissions for part in self.parts_of(tool)))

    def plan(self, call: Call) -> dict[str, Any]:
        """Return as JSON what a call would do, without any secret. Raises as the call would."""
        tool = self._checked(call).bound.tool
        assert isinstance(call.arguments, dict)
        plan = plan_of(tool, call.arguments)
        self.admit(tool, call)
        plan["permissions"] = self.permissions_of(tool).as_json()
        plan["approval"] = asks = self.asks(call)
        plan["policy"] = "allow" if asks is None else "ask"
        masked: dict[str, Any] = self._steps.secrets.mask(plan)
        return masked

    def asks(self, call: Call) -> str | None:
        """Return why a call needs approval; None if it does not. Its arguments are checked and completed."""
        context, reasons = self._checked(call), []
        if questions := self._steps.approval.questions(context):
            return questions[-1].reason
        for step, bound in self._parts(context.bound.tool):
            may_ask = self._steps.access.may_ask(bound.tool, call.caller, call.identity)
            if (reason := may_ask or bound.approval_reason) is not None:
                reasons.append(f"step {step} ({bound.name}): {reason}")
        return "; ".join(reasons) or None

    def questions(self, call: Call) -> list[Question]:
        """Return what a person must be asked about a call. Its arguments are checked and completed."""
        return self._steps.approval.questions(self._checked(call))

    def is_approved(self, call: Call) -> bool:
        """Return True if a person must be asked about a call, and has approved it already."""
        return self._steps.approval.allows(self._checked(call))

    def _checked(self, call: Call) -> Context:
        context = Context.of(call)
        # A call on its way has its tool, which may be in no list.
        context.bound = bound = getattr(call, "bound", None) or self._find(call.tool)
        self._steps.access.authorise(context)
        call.arguments = context.arguments = bound.arguments.check(context.arguments)
        return context
