"""Toolcrib: the tool crib for AI agents.

Tools are described, checked, confined by the kernel, executed and accounted for. The names below are
imported on first use, so that `import toolcrib` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.core.context import (
        Context,
        RunContext,
        get_run_context,
        get_run_id,
        get_session_id,
        get_variable,
        get_variable_or,
        get_variables,
        must_get_variable,
    )
    from toolcrib.core.toolset import Toolset
    from toolcrib.errors import (
        RetryableError,
        ToolCancel,
        ToolcribError,
        ToolDiscard,
        ToolSnooze,
    )
    from toolcrib.project import Project
    from toolcrib.runs.agents import Agent, Budgets
    from toolcrib.spec import Call, Content, McpForms, Result, Retry, Tool

__version__ = "0.1.0"

_HOMES = {
    "Agent": "toolcrib.runs.agents",
    "Budgets": "toolcrib.runs.agents",
    "Call": "toolcrib.spec",
    "Content": "toolcrib.spec",
    "Context": "toolcrib.core.context",
    "McpForms": "toolcrib.spec",
    "Project": "toolcrib.project",
    "Result": "toolcrib.spec",
    "Retry": "toolcrib.spec",
    "RetryableError": "toolcrib.errors",
    "RunContext": "toolcrib.core.context",
    "Tool": "toolcrib.spec",
    "ToolCancel": "toolcrib.errors",
    "ToolDiscard": "toolcrib.errors",
    "ToolSnooze": "toolcrib.errors",
    "ToolcribError": "toolcrib.errors",
    "Toolset": "toolcrib.core.toolset",
    "get_run_context": "toolcrib.core.context",
    "get_run_id": "toolcrib.core.context",
    "get_session_id": "toolcrib.core.context",
    "get_variable": "toolcrib.core.context",
    "get_variable_or": "toolcrib.core.context",
    "get_variables": "toolcrib.core.context",
    "must_get_variable": "toolcrib.core.context",
}

__all__ = [
    "Agent",
    "Budgets",
    "Call",
    "Content",
    "Context",
    "McpForms",
    "Project",
    "Result",
    "Retry",
    "RetryableError",
    "RunContext",
    "Tool",
    "ToolCancel",
    "ToolDiscard",
    "ToolSnooze",
    "ToolcribError",
    "Toolset",
    "get_run_context",
    "get_run_id",
    "get_session_id",
    "get_variable",
    "get_variable_or",
    "get_variables",
    "must_get_variable",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
