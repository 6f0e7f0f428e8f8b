"""Tools for agents of the package `openai-agents`."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.integrations.offered import Offered, ToolProvider, imported_from
from toolcrib.schema.decode import decode_object
from toolcrib.spec.views import error_text

with imported_from("openai-agents"):
    from agents import FunctionTool


def tools(source: ToolProvider, *, caller: str = "local") -> list[FunctionTool]:
    """Return the tools for `Agent(tools=…)`.

    `source` is a `Toolset` or a `Project`; `caller` is the name that rules and the audit log know.
    """
    offered = Offered(source, "openai", caller)
    return [_tool(offered, entry["function"]) for entry in offered.entries]


def _tool(offered: Offered, function: dict[str, Any]) -> FunctionTool:
    async def invoke(_: Any, text: str) -> str:
        try:
            arguments = decode_object(text)
        except ToolcribError as error:
            return error_text(error)
        return await offered.text(function["name"], arguments)

    return FunctionTool(
        name=function["name"],
        description=function["description"],
        params_json_schema=function["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
