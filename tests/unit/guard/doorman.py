"""A gate with nothing in it but the policy, as the call path asks it."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ApprovalRequired
from toolcrib.guard import Policy
from toolcrib.spec import Call, Result


class Doorman:
    """Asks the policy about every call, and nothing else."""

    def __init__(self, held: Policy) -> None:
        self.held = held

    def visible(self, tool: Any, caller: str, identity: Any) -> bool:
        return self.held.visible(tool, caller, identity)

    def authorise(self, bound: Any, call: Call) -> None:
        self.held.admit(bound.tool, call.caller, call.identity)

    def admit(self, bound: Any, call: Call) -> dict[str, str]:
        assert isinstance(call.arguments, dict)
        if self.held.judge(bound.tool, call.caller, call.arguments).effect == "ask":
            raise ApprovalRequired
        return {}

    async def enter(self, bound: Any, call: Call) -> Result | None:
        raise AssertionError

    def record(self, bound: Any, call: Call, result: Result) -> None:
        """Nothing is written down."""

    def redact(self, value: Any) -> Any:
        return value
