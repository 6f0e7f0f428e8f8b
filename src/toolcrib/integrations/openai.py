"""Tools for the runner of the Responses API in the package `openai`."""

from __future__ import annotations

from functools import partial
from typing import Any

from toolcrib.integrations.offered import Offered, ToolProvider, imported_from

with imported_from("openai"):
    from openai.lib.responses_tool_runner import AsyncRegisteredFunction


def tools(source: ToolProvider, *, caller: str = "local") -> list[AsyncRegisteredFunction]:
    """Return the tools for `AsyncResponsesToolRunner(functions=…)`.

    `source` is a `Toolset` or a `Project`; `caller` is the name that rules and the audit log know.
    """
    offered = Offered(source, "openai", caller)
    return [_tool(offered, entry["function"]) for entry in offered.entries]


def _tool(offered: Offered, function: dict[str, Any]) -> AsyncRegisteredFunction:
    described: Any = {"type": "function", "strict": False, **function}
    return AsyncRegisteredFunction(described, partial(offered.text, function["name"]))
