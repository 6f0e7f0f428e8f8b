"""Executors: each runs one attempt of one tool, whatever kind it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.executors.builtin import BuiltinExecutor
    from toolcrib.executors.composite import CompositeExecutor
    from toolcrib.executors.file import FileExecutor
    from toolcrib.executors.function.executor import function_executor
    from toolcrib.executors.http.executor import HttpExecutor
    from toolcrib.executors.process.command import CommandExecutor
    from toolcrib.executors.process.python import PythonExecutor
    from toolcrib.executors.process.sql import SqlExecutor
    from toolcrib.executors.workspace.workspace import Workspace

__all__ = [
    "BuiltinExecutor",
    "CommandExecutor",
    "CompositeExecutor",
    "FileExecutor",
    "HttpExecutor",
    "PythonExecutor",
    "SqlExecutor",
    "Workspace",
    "function_executor",
]

_HOMES = {
    "BuiltinExecutor": "builtin",
    "CommandExecutor": "process.command",
    "CompositeExecutor": "composite",
    "FileExecutor": "file",
    "HttpExecutor": "http.executor",
    "PythonExecutor": "process.python",
    "SqlExecutor": "process.sql",
    "Workspace": "workspace.workspace",
    "function_executor": "function.executor",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.executors.{_HOMES[name]}"), name)
