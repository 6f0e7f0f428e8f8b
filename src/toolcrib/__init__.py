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
    from toolcrib.errors import (
        RetryableError,
        ToolCancel,
        ToolcribError,
        ToolDiscard,
        ToolSnooze,
    )
    from toolcrib.manifest.team import load_team
    from toolcrib.project import Project
    from toolcrib.runs.agents import Agent, Budgets
    from toolcrib.runs.workflows import Workflow
    from toolcrib.spec import Call, Content, Limits, McpForms, Result, Retry, Tool
    from toolcrib.toolset import Toolset

__version__ = "0.1.0"

_HOMES = {
    "toolcrib.core.context": (
        "Context", "RunContext", "get_run_context", "get_run_id", "get_session_id", "get_variable",
        "get_variable_or", "get_variables", "must_get_variable",
    ),
    "toolcrib.errors": ("RetryableError", "ToolCancel", "ToolDiscard", "ToolSnooze", "ToolcribError"),
    "toolcrib.manifest.team": ("load_team",),
    "toolcrib.project": ("Project",),
    "toolcrib.runs.agents": ("Agent", "Budgets"),
    "toolcrib.runs.workflows": ("Workflow",),
    "toolcrib.spec": ("Call", "Content", "Limits", "McpForms", "Result", "Retry", "Tool"),
    "toolcrib.toolset": ("Toolset",),
}  # fmt: skip

__all__ = [
    "Agent", "Budgets", "Call", "Content", "Context", "Limits", "McpForms", "Project", "Result", "Retry",
    "RetryableError", "RunContext", "Tool", "ToolCancel", "ToolDiscard", "ToolSnooze", "ToolcribError",
    "Toolset", "Workflow", "get_run_context", "get_run_id", "get_session_id", "get_variable",
    "get_variable_or", "get_variables", "load_team", "must_get_variable",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
