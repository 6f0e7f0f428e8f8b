"""Executors: each runs one attempt of one tool, whatever kind it is.

A kind is one folder with its record in `kind.py`; `toolcrib.manifest.KINDS` finds it by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.executors.host import Host

if TYPE_CHECKING:
    from toolcrib.executors.builtin.executor import BuiltinExecutor
    from toolcrib.executors.command.executor import CommandExecutor
    from toolcrib.executors.composite.executor import CompositeExecutor
    from toolcrib.executors.file.executor import FileExecutor
    from toolcrib.executors.function.executor import function_executor
    from toolcrib.executors.http.executor import HttpExecutor
    from toolcrib.executors.python.executor import PythonExecutor
    from toolcrib.executors.sql.executor import SqlExecutor
    from toolcrib.executors.workspace.workspace import Workspace

__all__ = [
    "BuiltinExecutor",
    "CommandExecutor",
    "CompositeExecutor",
    "FileExecutor",
    "Host",
    "HttpExecutor",
    "PythonExecutor",
    "SqlExecutor",
    "Workspace",
    "function_executor",
]

_MODULES = {
    "BuiltinExecutor": "builtin.executor",
    "CommandExecutor": "command.executor",
    "CompositeExecutor": "composite.executor",
    "FileExecutor": "file.executor",
    "HttpExecutor": "http.executor",
    "PythonExecutor": "python.executor",
    "SqlExecutor": "sql.executor",
    "Workspace": "workspace.workspace",
    "function_executor": "function.executor",
}
"""Public names that are imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.executors.{_MODULES[name]}"), name)
