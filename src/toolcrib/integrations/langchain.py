"""Tools for LangChain."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, ToolException

from toolcrib.integrations.offered import Offered, ToolProvider


def tools(source: ToolProvider, *, caller: str = "local") -> list[BaseTool]:
    """Return the tools for `model.bind_tools(…)` and for agents; they are called by `ainvoke`.

    `source` is a `Toolset` or a `Project`; `caller` is the name that rules and the audit log know.
    """
    offered = Offered(source, "anthropic", caller)
    return [
        _LangchainTool(
            name=entry["name"],
            description=entry["description"],
            args_schema=entry["input_schema"],
            handle_tool_error=True,
            offered=offered,
        )
        for entry in offered.entries
    ]


class _LangchainTool(BaseTool):
    offered: Any

    def _run(self, /, **arguments: Any) -> str:
        raise NotImplementedError("use `await tool.ainvoke(…)`")

    async def _arun(self, /, **arguments: Any) -> str:
        result = await self.offered.call(self.name, arguments)
        text: str = self.offered.shown(result)
        if not result.ok:
            raise ToolException(text)
        return text
