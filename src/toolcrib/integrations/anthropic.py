"""Tools for the tool runner of the package `anthropic`."""

from __future__ import annotations

from typing import Any

from toolcrib.integrations.offered import Offered, ToolProvider, imported_from

with imported_from("anthropic"):
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, ToolError


def tools(source: ToolProvider, *, caller: str = "local") -> list[BetaAsyncBuiltinFunctionTool]:
    """Return the tools for `AsyncAnthropic().beta.messages.tool_runner(tools=…)`.

    `source` is a `Toolset` or a `Project`; `caller` is the name that rules and the audit log know.
    """
    offered = Offered(source, "anthropic", caller)
    return [_ClaudeTool(offered, entry) for entry in offered.entries]


class _ClaudeTool(BetaAsyncBuiltinFunctionTool):
    def __init__(self, offered: Offered, entry: dict[str, Any]) -> None:
        self._offered, self._entry = offered, entry

    def to_dict(self) -> Any:
        return self._entry

    async def call(self, input: object) -> str:  # noqa: A002 - the name in the base class
        assert isinstance(input, dict)
        result = await self._offered.call(self._entry["name"], input)
        if not result.ok:
            raise ToolError(self._offered.shown(result))
        return self._offered.shown(result)
