"""Tools for agents of Pydantic AI."""

from __future__ import annotations

import sys
from typing import Any

from pydantic_core import SchemaValidator, core_schema

from toolcrib.integrations.offered import Offered, ToolProvider, imported_from
from toolcrib.spec.views import text_view

with imported_from("pydantic-ai-slim"):
    from pydantic_ai import RunContext
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

_ANY = SchemaValidator(core_schema.any_schema())
"""The call path checks arguments against the tool's own schema."""


def tools(source: ToolProvider, *, name: str | None = None, caller: str = "local") -> AbstractToolset[Any]:
    """Return a toolset for `Agent(toolsets=[…])`, with the source's tools at each step.

    `source` is a `Toolset` or a `Project`; `caller` is the name that rules and the audit log know, `name` the
    toolset's `id`. Wrong arguments let the model try again (`ModelRetry`); another failure is the answer.
    """
    return _Toolset(source, name, caller)


class _Toolset(AbstractToolset[Any]):
    def __init__(self, source: ToolProvider, name: str | None, caller: str) -> None:
        self._source, self._name, self._caller = source, name, caller
        self._offered = Offered(source, "anthropic", caller)

    @property
    def id(self) -> str | None:
        return self._name

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:  # noqa: ARG002
        self._offered = Offered(self._source, "anthropic", self._caller)
        described = [
            ToolDefinition(
                name=entry["name"],
                description=entry["description"],
                parameters_json_schema=entry["input_schema"],
            )
            for entry in self._offered.entries
        ]
        return {
            one.name: ToolsetTool(toolset=self, tool_def=one, max_retries=1, args_validator=_ANY)
            for one in described
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],  # noqa: ARG002
        tool: ToolsetTool[Any],  # noqa: ARG002
    ) -> Any:
        result = await self._offered.call(name, tool_args)
        text = self._offered.shown(result)
        if result.ok:
            return result.value if text == text_view(result, sys.maxsize) else text
        if result.error is not None and result.error.code == "invalid_input":
            raise ModelRetry(text)
        return text
