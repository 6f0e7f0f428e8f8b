"""Tools for LangChain."""

from __future__ import annotations

from typing import Any

from toolcrib.integrations.offered import Offered, ToolProvider, imported_from
from toolcrib.spec import Result

with imported_from("langchain-core"):
    from langchain_core.tools import BaseTool, ToolException


def tools(source: ToolProvider, *, caller: str = "local") -> list[BaseTool]:
    """Return the tools for `model.bind_tools(…)` and for agents; they are called by `ainvoke` or `invoke`.

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
        return self._text(self.offered.call_sync(self.name, arguments))

    async def _arun(self, /, **arguments: Any) -> str:
        return self._text(await self.offered.call(self.name, arguments))

    def _text(self, result: Result) -> str:
        text: str = self.offered.shown(result)
        if not result.ok:
            raise ToolException(text)
        return text
