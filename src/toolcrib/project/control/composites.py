"""Composite tools in a project: which tools they call, whether their caller may, who must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolcrib.core.context import Context
from toolcrib.core.pipeline import Bound
from toolcrib.errors import NotFoundError, ToolUnavailable
from toolcrib.manifest import kind_of
from toolcrib.project.control.gate import ProjectGate
from toolcrib.spec import Call, Tool

__all__ = ["Composites"]


class Composites:
    """Looks at the steps of composite tools. `find` gives a tool ready to be called, or raises."""

    def __init__(self, find: Callable[[str], Bound], gate: ProjectGate) -> None:
        self._find = find
        self._gate = gate

    def steps_of(self, tool: Tool) -> Iterator[tuple[str, Bound]]:
        """Each step and its tool, those of composite steps after them, every tool once.

        Raises `ToolUnavailable` where there is none, `ManifestError` where its manifest is wrong.
        """
        met = {tool.name}
        waiting = [tool]
        while waiting:
            caller = waiting.pop(0)
            for step, name in kind_of(caller).calls(caller.config):
                if name in met:
                    continue
                met.add(name)
                try:
                    bound = self._find(name)
                except NotFoundError as error:
                    told = f"step {step} of {tool.name}: {error.message}"
                    raise ToolUnavailable(told, hint=error.hint) from None
                waiting.append(bound.tool)
                yield step, bound

    def tools_of(self, tool: Tool) -> list[Tool]:
        """Every tool that a call may lead to."""
        return [bound.tool for _, bound in self.steps_of(tool)]

    def admit(self, tool: Tool, call: Call) -> None:
        """Refuse, before anything runs, a call with steps that this caller may never make."""
        for _, bound in self.steps_of(tool):
            context = Context.of(call)
            context.tool, context.bound = bound.name, bound
            self._gate.authorise(bound, context)

    def asks(self, tool: Tool, call: Call) -> str | None:
        """Why a person may have to agree to calls of its steps; None where to none."""
        reasons = [
            f"step {step} ({bound.name}): {reason}"
            for step, bound in self.steps_of(tool)
            if (reason := self._gate.may_ask(bound.tool, bound.approval_reason, call.caller)) is not None
        ]
        return "; ".join(reasons) or None
