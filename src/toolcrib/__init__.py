"""Toolcrib: the tool crib for AI agents.

Tools are described, checked, confined by the kernel, executed and accounted for. The names below are
imported on first use, so that `import toolcrib` itself costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.first_use import imported_on_use

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

__all__ = [
    "Agent", "Budgets", "Call", "Content", "Context", "Limits", "McpForms", "Project", "Result", "Retry",
    "RetryableError", "RunContext", "Tool", "ToolCancel", "ToolDiscard", "ToolSnooze", "ToolcribError",
    "Toolset", "Workflow", "get_run_context", "get_run_id", "get_session_id", "get_variable",
    "get_variable_or", "get_variables", "load_team", "must_get_variable",
]  # fmt: skip


__getattr__ = imported_on_use(__name__, {
    "core.context": "Context RunContext get_run_context get_run_id get_session_id get_variable"
    " get_variable_or get_variables must_get_variable",
    "errors": "RetryableError ToolCancel ToolDiscard ToolSnooze ToolcribError",
    "manifest.team": "load_team",
    "project": "Project",
    "runs.agents": "Agent Budgets",
    "runs.workflows": "Workflow",
    "spec": "Call Content Limits McpForms Result Retry Tool",
    "toolset": "Toolset",
})  # fmt: skip


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
