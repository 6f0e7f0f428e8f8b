"""Composite tools in a project: the tools they call, and whether the caller may call those."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolcrib.core.bound import Bound
from toolcrib.errors import NotFoundError, ToolUnavailable
from toolcrib.manifest import kind_of
from toolcrib.project.control.checks import AccessControl
from toolcrib.spec import Call, Tool


class Composites:
    """Finds the tools behind composite tools. `find` returns a bound tool, or raises."""

    def __init__(self, find: Callable[[str], Bound], access: AccessControl) -> None:
        self._find = find
        self._access = access

    def steps_of(self, tool: Tool) -> Iterator[tuple[str, Bound]]:
        """Return the id and the tool of each step, then those of composite steps, every tool once.

        Raises `ToolUnavailable` if a tool is missing, `ManifestError` if its manifest is wrong.
        """
        # Each tool once: composite tools that call each other in a circle must not be followed forever.
        seen = {tool.name}
        waiting = [tool]
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

    def tools_of(self, tool: Tool) -> list[Tool]:
        """Return every tool that a call may lead to."""
        return [bound.tool for _, bound in self.steps_of(tool)]

    def admit(self, tool: Tool, call: Call) -> None:
        """Refuse, before anything runs, a call with steps that this caller may never call."""
        for _, bound in self.steps_of(tool):
            self._access.admit(bound.tool, call.caller, call.identity)

    def asks(self, tool: Tool, call: Call) -> str | None:
        """Return why calls of its steps may need approval; None if none of them does."""
        reasons = []
        for step, bound in self.steps_of(tool):
            reason = self._access.may_ask(bound.tool, call.caller, call.identity) or bound.approval_reason
            if reason is not None:
                reasons.append(f"step {step} ({bound.name}): {reason}")
        return "; ".join(reasons) or None
